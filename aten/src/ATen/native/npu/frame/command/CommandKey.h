#pragma once
// A row of plain words says all of a command but the addresses of its operands, so that what was prepared for it is
// found again.
//
// Note [Command keys]
// A key is a row of words: the operator's name (the address of a literal), the numbers of inputs and outputs, half a
// word for each operand, the dims of each operand that has others than the one before (and the strides of each that is
// not contiguous), then the attributes. So the key of most operators is a few words long. OpCommand writes it operand
// by operand (CommandKey), PlainLaunch all at once; both write the same words for the same command. Encoders read it
// (KeyReader).

#include <acl/acl_base.h>

#include <c10/util/ArrayRef.h>
#include <c10/util/SmallVector.h>

#include <cstdint>

namespace at::native::npu {

using KeyWords = c10::SmallVector<int64_t, 64>;

// How an operand stands in a key; 0 is an absent one. Without a format the rank decides it.
constexpr uint32_t operand_word(aclDataType dtype, size_t rank, bool dims_as_before, bool host = false,
                                int format = ACL_FORMAT_UNDEFINED, bool strided = false) {
  return static_cast<uint32_t>(dtype + 1) | static_cast<uint32_t>(rank) << 8 |
         static_cast<uint32_t>(dims_as_before) << 15 | static_cast<uint32_t>(host) << 16 |
         static_cast<uint32_t>(format + 1) << 17 | static_cast<uint32_t>(strided) << 31;
}
constexpr int64_t count_word(size_t inputs, size_t outputs) { return static_cast<int64_t>(inputs << 32 | outputs); }
constexpr int64_t pair_word(uint32_t first, uint32_t second) {
  return static_cast<int64_t>(first | static_cast<uint64_t>(second) << 32);
}
constexpr size_t kFirstOperandWord = 2;  // the word after the name and the counts
constexpr size_t kMostKeyDims = 127;     // of one operand: what operand_word has room for

class CommandKey {
 public:
  void start(const char* name, size_t inputs, size_t outputs) {
    words_.assign(kFirstOperandWord + (inputs + outputs + 1) / 2, 0);
    words_[0] = reinterpret_cast<int64_t>(name);
    words_[1] = count_word(inputs, outputs);
    dims_at_ = rank_ = 0;
  }
  // Operands are told in order, inputs first; those that are left out are absent.
  void operand(size_t i, aclDataType dtype, c10::IntArrayRef dims, bool host, int format) {
    bool as_before = dims_at_ != 0 && rank_ == dims.size();
    for (size_t d = 0; as_before && d < dims.size(); ++d) as_before = words_[dims_at_ + d] == dims[d];
    put(i, operand_word(dtype, dims.size(), as_before, host, format));
    if (as_before) return;
    dims_at_ = words_.size();
    rank_ = dims.size();
    words_.append(dims.begin(), dims.end());
  }
  // An operand that is not contiguous, for an encoder that takes strides.
  void strided_operand(size_t i, aclDataType dtype, c10::IntArrayRef dims, c10::IntArrayRef strides, int format) {
    put(i, operand_word(dtype, dims.size(), false, false, format, true));
    dims_at_ = words_.size();
    rank_ = dims.size();
    words_.append(dims.begin(), dims.end());
    words_.append(strides.begin(), strides.end());
  }
  // Name (an address), kind and length, value of each; after the operands.
  void attributes(const KeyWords& words) { words_.append(words.begin(), words.end()); }
  c10::IntArrayRef words() const { return words_; }

 private:
  void put(size_t i, uint32_t word) {
    words_[kFirstOperandWord + i / 2] |= static_cast<int64_t>(static_cast<uint64_t>(word) << (i % 2 * 32));
  }

  KeyWords words_;
  size_t dims_at_ = 0;  // of the last operand that had some; 0: none yet
  size_t rank_ = 0;
};

// An operand and an attribute as a key tells them; both point into the key.
struct KeyOperand {
  bool absent = true;
  bool host = false;  // a value in host memory
  aclDataType dtype = ACL_DT_UNDEFINED;
  aclFormat format = ACL_FORMAT_UNDEFINED;
  c10::IntArrayRef dims;
  c10::IntArrayRef strides;  // empty: contiguous
};
struct KeyAttribute {
  const char* name;
  char kind;  // as OpCommand::Attr writes it: b i t f s I B F
  const int64_t* value;
  size_t bytes;
};

// Reads a key from front to back: all operands, then the attributes.
class KeyReader {
 public:
  explicit KeyReader(c10::IntArrayRef key) : key_(key), at_(kFirstOperandWord + (operands() + 1) / 2) {}

  const char* name() const { return reinterpret_cast<const char*>(key_[0]); }
  size_t inputs() const { return static_cast<uint64_t>(key_[1]) >> 32; }
  size_t outputs() const { return static_cast<uint32_t>(key_[1]); }
  size_t operands() const { return inputs() + outputs(); }

  KeyOperand next_operand();
  // False after the last one.
  bool next_attribute(KeyAttribute& attribute);

 private:
  c10::IntArrayRef key_;
  size_t at_;
  size_t operand_ = 0;
  c10::IntArrayRef dims_;
};

}  // namespace at::native::npu
