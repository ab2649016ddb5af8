#pragma once
// ACL descriptors and attributes of commands seen before, found by a key of plain words, so that a repeated
// operator builds none.
//
// Note [Command keys]
// A key says all that descriptors depend on: the operator's name (the address of a literal), how many inputs and
// outputs there are, a half word per operand, then the dims of those operands that do not have the dims of the one
// before, then the attributes. So the commands of most operators take a few words. OpCommand writes a key operand by
// operand (CommandKey), PlainLaunch at once; both write the same for the same command.

#include <acl/acl.h>

#include <c10/util/ArrayRef.h>
#include <c10/util/SmallVector.h>
#include <c10/util/intrusive_ptr.h>

#include <cstdint>

namespace at::native::npu {

using KeyWords = c10::SmallVector<int64_t, 64>;

// How an operand stands in a key; 0 is an absent one. Without a format the rank decides it.
constexpr uint32_t operand_word(aclDataType dtype, size_t rank, bool dims_as_before, bool host = false,
                                int format = ACL_FORMAT_UNDEFINED) {
  return static_cast<uint32_t>(dtype + 1) | static_cast<uint32_t>(rank) << 8 |
         static_cast<uint32_t>(dims_as_before) << 15 | static_cast<uint32_t>(host) << 16 |
         static_cast<uint32_t>(format + 1) << 17;
}
constexpr int64_t count_word(size_t inputs, size_t outputs) { return static_cast<int64_t>(inputs << 32 | outputs); }
constexpr int64_t pair_word(uint32_t first, uint32_t second) {
  return static_cast<int64_t>(first | static_cast<uint64_t>(second) << 32);
}

class CommandKey {
 public:
  static constexpr size_t kFirstOperand = 2;  // the word after the name and the counts

  void start(const char* name, size_t inputs, size_t outputs) {
    words_.assign(kFirstOperand + (inputs + outputs + 1) / 2, 0);
    words_[0] = reinterpret_cast<int64_t>(name);
    words_[1] = count_word(inputs, outputs);
    dims_at_ = rank_ = 0;
  }
  // Operands are told in order, inputs first; those that are left out are absent.
  void operand(size_t i, aclDataType dtype, c10::IntArrayRef dims, bool host, int format) {
    bool as_before = dims_at_ != 0 && rank_ == dims.size();
    for (size_t d = 0; as_before && d < dims.size(); ++d) as_before = words_[dims_at_ + d] == dims[d];
    const auto word = static_cast<uint64_t>(operand_word(dtype, dims.size(), as_before, host, format));
    words_[kFirstOperand + i / 2] |= static_cast<int64_t>(word << (i % 2 * 32));
    if (as_before) return;
    dims_at_ = words_.size();
    rank_ = dims.size();
    for (const int64_t dim : dims) words_.push_back(dim);
  }
  // Name (an address), kind and length, value of each; after the operands.
  void attributes(const KeyWords& words) { words_.append(words.begin(), words.end()); }
  c10::IntArrayRef words() const { return words_; }

 private:
  KeyWords words_;
  size_t dims_at_ = 0;  // of the last operand that had some; 0: none yet
  size_t rank_ = 0;
};

// The descriptors of one command. Immutable once built, shared by the cache and by tasks in the queue.
class Prepared final : public c10::intrusive_ptr_target {
 public:
  Prepared(uint64_t hash, c10::IntArrayRef key)
      : hash_(hash), num_inputs_(static_cast<uint64_t>(key[1]) >> 32), key_(key.begin(), key.end()) {}
  ~Prepared() override;
  // Makes what the key describes.
  void build();

  bool is(uint64_t hash, c10::IntArrayRef key) const {
    if (hash_ != hash || key_.size() != key.size()) return false;
    for (size_t i = 0; i < key.size(); ++i) {
      if (key_[i] != key[i]) return false;
    }
    return true;
  }

  const aclTensorDesc* const* inputs() const { return descs_.data(); }
  const aclTensorDesc* const* outputs() const { return descs_.data() + num_inputs_; }
  const aclopAttr* attributes() const { return attributes_; }

 private:
  void set_attribute(const char* name, int kind, const int64_t* value, size_t bytes);

  uint64_t hash_;
  size_t num_inputs_;
  aclopAttr* attributes_ = nullptr;
  c10::SmallVector<int64_t, 8> key_;
  c10::SmallVector<const aclTensorDesc*, 4> descs_;
};

// One per thread: no locks. Bounded; when full it starts anew.
class DescriptorCache {
 public:
  // The calling thread's cache.
  static DescriptorCache& local();

  DescriptorCache() = default;
  DescriptorCache(const DescriptorCache&) = delete;
  DescriptorCache& operator=(const DescriptorCache&) = delete;
  ~DescriptorCache() { delete[] slots_; }

  // What a key describes, built if it is new. The cache may drop it at the next call: keep a reference for longer.
  Prepared& get(c10::IntArrayRef key);

 private:
  Prepared& insert(uint64_t hash, c10::IntArrayRef key);

  static constexpr size_t kSlots = 8192;  // a power of two
  static constexpr size_t kMostEntries = kSlots / 2;
  c10::intrusive_ptr<Prepared>* slots_ = nullptr;  // kSlots of them, made when first needed
  size_t size_ = 0;
};

}  // namespace at::native::npu
