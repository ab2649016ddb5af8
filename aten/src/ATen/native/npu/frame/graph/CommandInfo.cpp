#include <ATen/native/npu/frame/graph/CommandInfo.h>

#include <acl_ir_graph.h>
#include <c10/util/accumulate.h>

#include <array>
#include <cstdio>
#include <string_view>

namespace at::native::npu::graph {

namespace {

Kind kind_of(std::string_view ir) {
  if (c10::npu::acl::is_among(c10::npu::acl::kExact, ir)) return Kind::Exact;
  return c10::npu::acl::is_among(c10::npu::acl::kRounded, ir) ? Kind::Whole : Kind::Other;
}

bool computes(aclDataType dtype) {
  switch (dtype) {
    case ACL_FLOAT:
    case ACL_FLOAT16:
    case ACL_BF16:
    case ACL_DOUBLE:
    case ACL_BOOL:
    case ACL_UINT8:
    case ACL_INT8:
    case ACL_INT16:
    case ACL_INT32:
    case ACL_INT64:
      return true;
    default:
      return false;
  }
}

// False if a program has no words for it.
bool write_attribute(const KeyAttribute& attribute, std::string& text) {
  text += text.empty() ? '{' : '|';
  text += attribute.name;
  text += '=';
  switch (attribute.kind) {
    case 'b':
      text += *attribute.value != 0 ? "b:1" : "b:0";
      return true;
    case 'i':
    case 't':
      text += "i:" + std::to_string(*attribute.value);
      return true;
    case 'f': {
      std::array<char, 48> word{};
      const auto value = static_cast<float>(*reinterpret_cast<const double*>(attribute.value));
      std::snprintf(word.data(), word.size(), "f:%a", static_cast<double>(value));
      text += word.data();
      return true;
    }
    case 's': {
      const std::string_view word(reinterpret_cast<const char*>(attribute.value));
      if (word.find_first_of("|}") != std::string_view::npos) return false;
      text += "s:";
      text += word;
      return true;
    }
    default:
      return false;
  }
}

OperandInfo info_of(const KeyOperand& operand) {
  OperandInfo info;
  info.absent = operand.absent;
  if (operand.absent) return info;
  info.host = operand.host;
  info.dtype = operand.dtype;
  info.format = operand.format;
  info.dims = operand.dims;
  info.elements = c10::multiply_integers(operand.dims);
  return info;
}

bool is_fusible(const CommandInfo& info) {
  if (info.kind == Kind::Other || info.outputs.size() != 1 || info.inputs.empty()) return false;
  const OperandInfo& out = info.outputs[0];
  // Of no dimension it is an operator on the host's thread anyway, and some kernels have ways of their own for it.
  if (out.absent || out.host || out.elements == 0 || out.dims.empty() || !computes(out.dtype)) return false;
  bool whole = false;
  for (const OperandInfo& in : info.inputs) {
    if (in.absent) continue;
    if (!computes(in.dtype) || in.format != ACL_FORMAT_UNDEFINED) return false;
    if (in.host) {
      if (!in.dims.empty()) return false;
      continue;
    }
    whole = whole || in.elements == out.elements;
    // One value without dimensions is a number to every kernel; with some it is a tensor that broadcasts.
    const bool broadcasts = in.elements != out.elements && !in.dims.empty();
    if (broadcasts && info.kind != Kind::Exact) return false;
    if (in.dims.size() > out.dims.size()) return false;
  }
  return whole && out.format == ACL_FORMAT_UNDEFINED;
}

Fills fills_of(const CommandInfo& info) {
  if (info.outputs.size() != 1 || info.outputs[0].absent || info.outputs[0].format != ACL_FORMAT_UNDEFINED ||
      !computes(info.outputs[0].dtype)) {
    return Fills::No;
  }
  const std::string_view ir(info.ir);
  if (ir == "ZerosLike") return Fills::WithZeros;
  if (ir != "Fill" || info.inputs.size() != 2 || !info.inputs[1].host || !info.inputs[1].dims.empty()) return Fills::No;
  const aclDataType given = info.inputs[1].dtype, filled = info.outputs[0].dtype;
  // Numbers for the short floats come as floats.
  const bool rounds = given == ACL_FLOAT && (filled == ACL_FLOAT16 || filled == ACL_BF16);
  return given == filled || rounds ? Fills::WithInput : Fills::No;
}

Moves moves_of(const CommandInfo& info) {
  if (!info.pure || info.outputs.size() != 1 || info.outputs[0].absent || info.inputs.empty()) return Moves::No;
  const OperandInfo &in = info.inputs[0], &out = info.outputs[0];
  if (in.absent || in.host) return Moves::No;
  for (size_t i = 1; i < info.inputs.size(); ++i) {
    if (!info.inputs[i].absent && !info.inputs[i].host) return Moves::No;
  }
  const std::string_view ir(info.ir);
  if (ir == "Identity") {
    const bool plain = in.dtype == out.dtype && in.elements == out.elements && in.format == out.format;
    return plain ? Moves::Copy : Moves::No;
  }
  if (ir == "Cast") return Moves::Cast;
  if (ir == "TransData") return Moves::Format;
  if (ir == "Transpose") return info.inputs.size() == 2 ? Moves::Order : Moves::No;
  return ir == "AsStrided" || ir == "BroadcastTo" ? Moves::Gather : Moves::No;
}

}  // namespace

size_t bytes_of(aclDataType dtype) {
  switch (dtype) {
    case ACL_BOOL:
    case ACL_UINT8:
    case ACL_INT8:
      return 1;
    case ACL_FLOAT16:
    case ACL_BF16:
    case ACL_INT16:
      return 2;
    case ACL_FLOAT:
    case ACL_INT32:
      return 4;
    default:
      return 8;
  }
}

bool holds_all_of(aclDataType narrow, aclDataType wide) {
  const auto is_integer = [](aclDataType t) {
    return t == ACL_INT8 || t == ACL_UINT8 || t == ACL_INT16 || t == ACL_INT32 || t == ACL_INT64;
  };
  switch (narrow) {
    case ACL_FLOAT16:
    case ACL_BF16:
      return wide == ACL_FLOAT || wide == ACL_DOUBLE;
    case ACL_FLOAT:
      return wide == ACL_DOUBLE;
    case ACL_INT8:
    case ACL_INT16:
    case ACL_INT32:
      return is_integer(wide) && wide != ACL_UINT8 && bytes_of(wide) > bytes_of(narrow);
    case ACL_UINT8:
      return is_integer(wide) && bytes_of(wide) > 1;
    default:
      return false;
  }
}

const CommandInfo& CommandInfos::get(const Prepared& prepared) {
  if (const auto found = infos_.find(&prepared); found != infos_.end()) return *found->second;
  auto info = std::make_unique<CommandInfo>();
  info->prepared = c10::intrusive_ptr<const Prepared>::reclaim_copy(&prepared);
  KeyReader reader(prepared.key());
  info->ir = reader.name();
  info->kind = kind_of(info->ir);
  bool strided = false;
  for (size_t i = 0; i < reader.operands(); ++i) {
    const KeyOperand operand = reader.next_operand();
    strided = strided || !operand.strides.empty();
    (i < reader.inputs() ? info->inputs : info->outputs).push_back(info_of(operand));
  }
  bool told = true;
  for (KeyAttribute attribute; reader.next_attribute(attribute);) {
    told = told && write_attribute(attribute, info->attributes);
  }
  if (!info->attributes.empty()) info->attributes += '}';
  info->fusible = told && !strided && is_fusible(*info);
  if (info->fusible) info->elements = info->outputs[0].elements;
  info->pure = !strided && (info->kind != Kind::Other || c10::npu::acl::is_among(c10::npu::acl::kPure, info->ir));
  if (info->pure) info->fills = fills_of(*info);
  info->moves = moves_of(*info);
  return *(infos_[&prepared] = std::move(info));
}

}  // namespace at::native::npu::graph
