#pragma once
// Operator attributes as a caller sets them: a string of bytes that is compared and hashed as it stands, and taken
// apart only when an operator is compiled.

#include <acl/acl.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

namespace [[gnu::visibility("hidden")]] acl_sim {

enum class AttrType : uint8_t {
  Bool,
  Int,
  Float,
  String,
  DataType,
  ListBool,
  ListInt,
  ListFloat,
  ListString,
  ListDataType,
  ListListInt
};

const char* attr_type_name(AttrType type);

}  // namespace acl_sim

struct aclopAttr {
  static constexpr uint32_t kMagic = 0x41415431;

  // Every entry begins with this, followed by the name and the value, each padded to eight bytes with zeros.
  struct Entry {
    acl_sim::AttrType type;
    uint8_t name_bytes;
    uint16_t padding;
    uint32_t value_bytes;
    const char* name() const { return reinterpret_cast<const char*>(this + 1); }
    const char* value() const { return name() + padded(name_bytes); }
    size_t bytes() const { return sizeof(Entry) + padded(name_bytes) + padded(value_bytes); }
    static size_t padded(size_t n) { return (n + 7) & ~size_t{7}; }
  };

  uint32_t magic = 0;
  uint32_t used = 0;
  aclopAttr* next_free = nullptr;
  uint64_t stamp = 0;           // number of this content
  std::vector<uint64_t> words;  // keeps its room over reuse

  bool valid() const { return magic == kMagic; }
  const char* data() const { return reinterpret_cast<const char*>(words.data()); }
  // Room for the value of a new entry of that name, replacing an earlier one; nullptr for a name that is refused.
  char* add(acl_sim::AttrType type, const char* name, size_t value_bytes);
  template <class F>
  void each(F&& visit) const {
    for (size_t at = 0; at < used;) {
      const auto* entry = reinterpret_cast<const Entry*>(data() + at);
      visit(*entry);
      at += entry->bytes();
    }
  }
};
