#include "exec/definition/attr.h"

#include <algorithm>

#include "core/stamp.h"

namespace acl_sim {

const char* attr_type_name(AttrType type) {
  switch (type) {
    case AttrType::Bool:
      return "bool";
    case AttrType::Int:
      return "int";
    case AttrType::Float:
      return "float";
    case AttrType::String:
      return "str";
    case AttrType::DataType:
      return "dtype";
    case AttrType::ListBool:
      return "bools";
    case AttrType::ListInt:
      return "ints";
    case AttrType::ListFloat:
      return "floats";
    case AttrType::ListString:
      return "strs";
    case AttrType::ListDataType:
      return "dtypes";
    case AttrType::ListListInt:
      return "lists";
  }
  return "unknown";
}

}  // namespace acl_sim

char* aclopAttr::add(acl_sim::AttrType type, const char* name, size_t value_bytes) {
  const size_t length = std::strlen(name);
  if (length == 0 || length > 255 || value_bytes > UINT32_MAX / 2) return nullptr;
  for (size_t at = 0; at < used;) {
    const auto* entry = reinterpret_cast<const Entry*>(data() + at);
    const size_t bytes = entry->bytes();
    if (entry->name_bytes == length && std::memcmp(entry->name(), name, length) == 0) {
      char* begin = reinterpret_cast<char*>(words.data());
      std::memmove(begin + at, begin + at + bytes, used - at - bytes);
      used -= static_cast<uint32_t>(bytes);
      break;
    }
    at += bytes;
  }
  const Entry entry{type, static_cast<uint8_t>(length), 0, static_cast<uint32_t>(value_bytes)};
  const size_t name_room = Entry::padded(length), value_room = Entry::padded(value_bytes);
  const size_t total = used + sizeof(Entry) + name_room + value_room;
  if (words.size() * 8 < total) words.resize(std::max<size_t>(total / 8, words.size() * 2 + 16));
  char* at = reinterpret_cast<char*>(words.data()) + used;
  std::memcpy(at, &entry, sizeof entry);
  at += sizeof entry;
  if (name_room) std::memset(at + name_room - 8, 0, 8);
  std::memcpy(at, name, length);
  at += name_room;
  if (value_room) std::memset(at + value_room - 8, 0, 8);
  used = static_cast<uint32_t>(total);
  stamp = acl_sim::Stamp::next();
  return at;
}
