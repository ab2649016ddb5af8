// Reading keys, see Note [Command keys].

#include <ATen/native/npu/frame/command/CommandKey.h>

namespace at::native::npu {

KeyOperand KeyReader::next_operand() {
  const auto pair = static_cast<uint64_t>(key_[kFirstOperandWord + operand_ / 2]);
  const auto word = static_cast<uint32_t>(pair >> (operand_ % 2 * 32));
  ++operand_;
  KeyOperand operand;
  if (word == 0) return operand;
  const size_t rank = word >> 8 & kMostKeyDims;
  const bool strided = (word >> 31 & 1) != 0;
  if ((word >> 15 & 1) == 0) {
    dims_ = key_.slice(at_, rank);
    at_ += rank;
  }
  operand.absent = false;
  operand.host = (word >> 16 & 1) != 0;
  operand.dtype = static_cast<aclDataType>(static_cast<int>(word & 0xFF) - 1);
  operand.format = static_cast<aclFormat>(static_cast<int>(word >> 17 & 0x3FFF) - 1);
  operand.dims = dims_;
  if (strided) {
    operand.strides = key_.slice(at_, rank);
    at_ += rank;
  }
  return operand;
}

bool KeyReader::next_attribute(KeyAttribute& attribute) {
  if (at_ >= key_.size()) return false;
  attribute.name = reinterpret_cast<const char*>(key_[at_]);
  attribute.kind = static_cast<char>(key_[at_ + 1] & 0xFF);
  attribute.bytes = static_cast<size_t>(key_[at_ + 1] >> 8);
  attribute.value = key_.data() + at_ + 2;
  at_ += 2 + (attribute.bytes + sizeof(int64_t) - 1) / sizeof(int64_t);
  return true;
}

}  // namespace at::native::npu
