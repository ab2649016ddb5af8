#include "exec/watching/dump_format.h"

namespace acl_sim {
namespace {

class Message {
 public:
  // Zero is what an absent field means.
  void number(int field, uint64_t value) {
    if (value == 0) return;
    put(static_cast<uint64_t>(field) << 3);
    put(value);
  }
  void bytes(int field, const std::string& value) {
    put(static_cast<uint64_t>(field) << 3 | 2);
    put(value.size());
    text_ += value;
  }
  void put(uint64_t value) {
    for (; value >= 0x80; value >>= 7) text_ += static_cast<char>(value | 0x80);
    text_ += static_cast<char>(value);
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

uint64_t data_type(aclDataType dtype) {
  switch (dtype) {
    case ACL_DT_UNDEFINED:
      return 0;
    case ACL_FLOAT:
      return 1;
    case ACL_FLOAT16:
      return 2;
    case ACL_INT8:
      return 3;
    case ACL_UINT8:
      return 4;
    case ACL_INT16:
      return 5;
    case ACL_UINT16:
      return 6;
    case ACL_INT32:
      return 7;
    case ACL_INT64:
      return 8;
    case ACL_UINT32:
      return 9;
    case ACL_UINT64:
      return 10;
    case ACL_BOOL:
      return 11;
    case ACL_DOUBLE:
      return 12;
    default:
      // The same numbers up to bf16; aclDataType then leaves one out.
      return static_cast<uint64_t>(dtype) - (dtype > ACL_BF16 ? 1 : 0);
  }
}

std::string shape(const Operand& operand) {
  Message message, dims;
  for (const int64_t dim : operand.dims) dims.put(static_cast<uint64_t>(dim));
  if (!operand.dims.empty()) message.bytes(1, dims.text());
  return message.text();
}

// `origin` is the same tensor in a plain format.
std::string tensor(const Operand& operand, const Operand& origin, int size_field) {
  Message message;
  message.number(1, data_type(operand.dtype));
  message.number(2, static_cast<uint64_t>(operand.format < 0 ? ACL_FORMAT_ND : operand.format));
  message.bytes(3, shape(operand));
  message.number(size_field, operand.absent ? 0 : operand.bytes);
  message.bytes(size_field + 1, shape(origin));
  return message.text();
}

}  // namespace

std::string dump_header(const CompiledOp& op, const std::string& op_name, uint64_t time_us, bool inputs, bool outputs) {
  // The host sees tensors in private formats only where TransData makes them or takes them back.
  const bool reformats = op.def->type == "TransData" && op.inputs.size() == 1 && op.outputs.size() == 1;
  const auto origin = [&](const Operand& operand) -> const Operand& {
    if (!reformats || operand.format == ACL_FORMAT_ND) return operand;
    const bool plain = operand.format == ACL_FORMAT_NCHW || operand.format == ACL_FORMAT_NHWC ||
                       operand.format == ACL_FORMAT_NCDHW || operand.format == ACL_FORMAT_NDHWC;
    return plain ? operand : &operand == &op.inputs[0] ? op.outputs[0] : op.inputs[0];
  };
  Message message;
  message.bytes(1, "2.0");
  message.number(2, time_us);
  for (size_t i = 0; outputs && i < op.outputs.size(); ++i)
    message.bytes(3, tensor(op.outputs[i], origin(op.outputs[i]), 6));
  for (size_t i = 0; inputs && i < op.inputs.size(); ++i)
    message.bytes(4, tensor(op.inputs[i], origin(op.inputs[i]), 5));
  message.bytes(6, op_name);
  return message.text();
}

std::string dump_name_part(std::string name) {
  for (char& c : name) {
    if (c == '.' || c == '/' || c == '\\' || c == ' ') c = '_';
  }
  return name;
}

}  // namespace acl_sim
