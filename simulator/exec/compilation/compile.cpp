#include "exec/compilation/compile.h"

#include "core/config.h"
#include "exec/compilation/choice.h"
#include "exec/compilation/narrow.h"

#include <algorithm>
#include <cmath>

namespace acl_sim {
namespace {

// A cube operator's work grows faster than its operands.
constexpr int64_t kTinyCube = 16384;
constexpr int64_t kModest = 16;  // times what is tiny otherwise

// Never on the thread that submits, however small (ops/copy/sleep.cpp).
bool takes_its_time(const OpDef& op) { return op.type == "Sleep"; }

[[noreturn]] void invalid(const Description& d, const std::string& reason) {
  throw Error(ACL_ERROR_INVALID_PARAM, std::string(d.type) + ": " + reason);
}

Operand make_operand(const Description& d, const aclTensorDesc& desc, const char* kind, size_t i) {
  Operand operand;
  operand.dtype = desc.dtype;
  operand.format = desc.format;
  operand.host = desc.placement != ACL_MEMTYPE_DEVICE;
  operand.absent = desc.dtype == ACL_DT_UNDEFINED;
  if (operand.absent) return operand;
  operand.dims.assign(desc.dims(), desc.dims() + desc.ndim);
  operand.elements = 1;
  for (int64_t dim : operand.dims) {
    if (dim < 0) {
      throw Error(ACL_ERROR_OP_UNSUPPORTED_DYNAMIC,
                  format("%s: %s %zu has the dynamic shape %s; the simulated device runs known shapes only", d.type,
                         kind, i, describe_tensor(desc.dtype, desc.dims(), desc.ndim, desc.format).c_str()));
    }
    if (__builtin_mul_overflow(operand.elements, dim, &operand.elements))
      invalid(d, format("%s %zu has too many elements", kind, i));
  }
  const size_t element = dtype_bytes(desc.dtype);
  if (element == 0) {
    throw Error(ACL_ERROR_GE_FAILURE,
                format("%s: %s %zu has dtype %s, which the simulated device does not compute with", d.type, kind, i,
                       dtype_name(desc.dtype)));
  }
  if (__builtin_mul_overflow(static_cast<size_t>(operand.elements), element, &operand.bytes))
    invalid(d, format("%s %zu is too large", kind, i));
  return operand;
}

// The dims of an image or filter as NCHW, where its format says another order and the operator heeds it.
void read_format(CompiledOp& op, Operand& operand) {
  if (!op.def->takes_image_formats || operand.dims.size() != 4) return;
  const auto& d = operand.dims;
  if (operand.format == ACL_FORMAT_NHWC) {
    operand.order = HostOrder::kRows;
    operand.logical = {d[0], d[3], d[1], d[2]};
  } else if (operand.format == ACL_FORMAT_HWCN) {
    operand.order = HostOrder::kFilterColumns;
    operand.logical = {d[3], d[2], d[0], d[1]};
  } else {
    return;
  }
  op.reordered = true;
}

std::string names_of(DtypeSet set) {
  std::string names;
  for (int t = 0; t < 64; ++t) {
    if (set >> t & 1) names += (names.empty() ? "" : ", ") + std::string(dtype_name(static_cast<aclDataType>(t)));
  }
  return names;
}

// Failures here are what CANN's graph engine reports when it finds no kernel for an operator.
[[noreturn]] void no_kernel(const CompiledOp& op, const std::string& reason) {
  throw Error(ACL_ERROR_GE_FAILURE, "[EZ3003] no supported kernel for " + op.describe() + ": " + reason);
}

std::string range(int least, int most) {
  return most >= kManyInputs ? format("at least %d", least)
         : least == most     ? std::to_string(least)
                             : format("%d to %d", least, most);
}

void check_operands(const CompiledOp& op) {
  const OpDef& def = *op.def;
  const int inputs = static_cast<int>(op.inputs.size()), outputs = static_cast<int>(op.outputs.size());
  if (inputs < def.min_inputs || inputs > def.max_inputs)
    no_kernel(op, format("it takes %s inputs, not %d", range(def.min_inputs, def.max_inputs).c_str(), inputs));
  if (outputs < def.min_outputs || outputs > def.max_outputs) {
    no_kernel(op, format("it has %s outputs, not %d", range(def.min_outputs, def.max_outputs).c_str(), outputs));
  }
  for (size_t i = 0; i < op.inputs.size() && !def.input_dtypes.empty(); ++i) {
    const DtypeSet allowed = def.input_dtypes.size() == 1  ? def.input_dtypes[0]
                             : i < def.input_dtypes.size() ? def.input_dtypes[i]
                                                           : def.input_dtypes.back();
    const auto dtype = op.inputs[i].dtype;
    if (!op.inputs[i].absent && !(allowed & dtype_bit(dtype))) {
      no_kernel(op, format("input %zu cannot be %s; it supports %s", i, dtype_name(dtype), names_of(allowed).c_str()));
    }
  }
}

// Multiplications of a cube operator, as far as its operands' sizes tell: rather too many than too few.
double products(const CompiledOp& op) {
  double all = 1, kernel = HUGE_VAL, batch = 1, largest = 0, rows = 0, weights = 0;
  int operands = 0;
  for (size_t i = 0; i < op.inputs.size() + op.outputs.size(); ++i) {
    const auto& operand = op.operand(i);
    const size_t rank = operand.dims.size();
    if (operand.absent || operand.host || operand.elements == 0 || rank < 2) continue;
    ++operands;
    const auto elements = static_cast<double>(operand.elements);
    const auto width = static_cast<double>(operand.dims[rank - 1]),
               height = static_cast<double>(operand.dims[rank - 2]);
    all *= elements;
    kernel = std::min(kernel, elements / static_cast<double>(operand.dims[0] * operand.dims[1]));
    batch = std::max(batch, elements / (width * height));
    largest = std::max(largest, elements);
    if (rank == 2) weights = std::max(weights, elements);
    rows = std::max(rows, rank > 3 ? height : elements / width);
  }
  // The square root of mk * kn * mn is mnk; of a convolution's operands it lacks one edge of the kernel.
  if (operands == 3 && op.def->cube_class == CubeClass::Conv) return std::sqrt(all * kernel);
  if (operands == 3 && op.def->cube_class == CubeClass::MatMul) return std::sqrt(all / batch);
  if (operands == 0) return static_cast<double>(op.elements);  // of vectors
  return (weights > 0 ? weights : largest) * rows;             // a recurrent layer; attention
}

// Note [Narrow operators]
// To wake the other threads of a team takes as long as 16 million products, or as an element-wise operator on some
// hundred thousand elements: what is no more than that one thread computes sooner, and leaves the other cores to the
// host and to whoever else needs them. It depends on sizes alone, so that results do, too; of element-wise operators on
// the largest operand, so that the steps of a fused one are all narrow or none is (Note [Fused element-wise
// operators]).
bool is_narrow(const CompiledOp& op, int64_t largest) {
  constexpr double kProducts = 16e6;
  if (op.def->costs_more) return false;
  if (op.def->cube) return products(op) <= kProducts;
  // It is many operators, and divides itself so that each rounds as it would alone.
  if (op.def->type == "FusedElementwise") return false;
  // Lists are of tensors of any sizes, one after another.
  const bool lists = op.def->max_inputs == kManyInputs;
  return lists ? op.elements <= 2 * kNarrowElements : largest <= kNarrowElements;
}

void decide_size(CompiledOp& op) {
  const auto limit = config().tiny_elements;
  int64_t largest = 0;
  bool one_size = op.outputs.size() == 1 && !op.inputs.empty() && !op.outputs[0].absent;
  for (size_t i = 0; i < op.inputs.size() + op.outputs.size(); ++i) {
    const auto& operand = op.operand(i);
    op.elements += operand.elements;
    // Of its table a gather reads no more than it writes.
    if (i > 0 || op.def->type != "GatherV2") largest = std::max(largest, operand.elements);
    if (i < op.inputs.size()) op.host_inputs |= operand.host && !operand.absent;
    one_size = one_size && !operand.absent && operand.elements == op.inputs[0].elements;
    const bool is_output = i == op.inputs.size();
    const aclDataType wanted = is_output && op.def->tiny_makes_bool ? ACL_BOOL
                               : op.inputs.empty()                  ? operand.dtype
                                                                    : op.inputs[0].dtype;
    one_size = one_size && operand.dtype == wanted;
  }
  op.tiny = !takes_its_time(*op.def) && op.elements <= (op.def->cube ? std::min(limit, kTinyCube) : limit);
  op.modest = !takes_its_time(*op.def) && op.elements <= kModest * limit;
  op.narrow = op.tiny || is_narrow(op, largest);
  op.tiny_loop = op.tiny && one_size && op.def->tiny_fn && op.inputs.size() <= 4;
}

}  // namespace

std::unique_ptr<CompiledOp> compile(const Description& d, CubeRounding rounding) {
  const OpDef* def = find_op(d.type);
  if (!def) {
    throw Error(
        ACL_ERROR_GE_FAILURE,
        format("[EZ3003] no supported kernel: there is no operator of type '%s' on the simulated device", d.type));
  }
  auto op = std::make_unique<CompiledOp>(*def, d.attr);
  for (int i = 0; i < d.inputs; ++i)
    op->inputs.push_back(make_operand(d, *d.input[i], "input", static_cast<size_t>(i)));
  for (int i = 0; i < d.outputs; ++i)
    op->outputs.push_back(make_operand(d, *d.output[i], "output", static_cast<size_t>(i)));
  for (auto* list : {&op->inputs, &op->outputs}) {
    for (auto& operand : *list) read_format(*op, operand);
  }
  check_operands(*op);
  try {
    check_attrs(*def, op->attrs);
  } catch (const Error& error) {
    no_kernel(*op, error.what());
  }
  decide_size(*op);
  const auto is_float = [](const Operand& o) { return !o.absent && o.dtype == ACL_FLOAT; };
  if (std::any_of(op->inputs.begin(), op->inputs.end(), is_float)) op->rounding = rounding;
  decide_choice(*op);
  // What was tuned is computed as was found best, what rounds as its rounding says.
  if (op->kernel < 0 && op->rounding == CubeRounding::None) op->small = small_way(*op);
  return op;
}

std::string CompiledOp::describe() const {
  std::string text = def->type + "(";
  for (size_t i = 0; i < inputs.size(); ++i) {
    const auto& o = inputs[i];
    text += (i ? ", " : "") +
            (o.absent ? std::string("absent")
                      : describe_tensor(o.dtype, o.dims.data(), static_cast<int>(o.dims.size()), o.format));
  }
  text += ") -> (";
  for (size_t i = 0; i < outputs.size(); ++i) {
    const auto& o = outputs[i];
    text += (i ? ", " : "") +
            (o.absent ? std::string("absent")
                      : describe_tensor(o.dtype, o.dims.data(), static_cast<int>(o.dims.size()), o.format));
  }
  return text + ")";
}

}  // namespace acl_sim
