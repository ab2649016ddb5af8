// The general function behind SIM_ATEN: operands and attributes become a stack, the CPU's kernel runs on it.

#include "exec/definition/aten.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/stack.h>

#include "exec/running/context.h"

namespace acl_sim {
namespace {

using c10::TypeKind;

c10::OperatorHandle find(const char* overload) {
  const std::string name(overload);
  const auto dot = name.find('.');
  const std::string base = "aten::" + name.substr(0, dot);
  const std::string rest = dot == std::string::npos ? "" : name.substr(dot + 1);
  return c10::Dispatcher::singleton().findSchemaOrThrow(base.c_str(), rest.c_str());
}

const c10::Type& inner(const c10::Type& type) {
  return type.kind() == TypeKind::OptionalType ? *type.castRaw<c10::OptionalType>()->getElementType() : type;
}

// What the device has no say in.
bool is_left_out(const c10::Argument& argument) {
  const TypeKind kind = inner(*argument.real_type()).kind();
  return argument.is_out() || kind == TypeKind::DeviceObjType || kind == TypeKind::LayoutType ||
         kind == TypeKind::MemoryFormatType || argument.name() == "pin_memory";
}

bool is_written(const c10::Argument& argument) {
  return argument.alias_info() != nullptr && argument.alias_info()->isWrite();
}

const char* attr_kind(const c10::Type& type) {
  switch (type.kind()) {
    case TypeKind::IntType:
    case TypeKind::SymIntType:
      return ":int";
    case TypeKind::ScalarTypeType:
      return ":dtype";
    case TypeKind::BoolType:
      return ":bool";
    case TypeKind::StringType:
      return ":str";
    case TypeKind::ListType: {
      const TypeKind element = type.castRaw<c10::ListType>()->getElementType()->kind();
      return element == TypeKind::FloatType || element == TypeKind::NumberType ? ":int" : ":ints";
    }
    default:
      return nullptr;
  }
}

// Takes the operands of one execution in the schema's order.
class Reader {
 public:
  explicit Reader(OpContext& c) : c_(c) {}

  // How many outputs were handed to the kernel.
  size_t outputs() const { return output_; }

  // Some kernels give the conjugate and mark it so (lu_solve from the right); memory has no marks.
  void resolve() {
    for (at::Tensor& t : written_) {
      if (!t.is_conj()) continue;
      t._set_conj(false);
      at::conj_physical_(t);
    }
  }

  c10::IValue next(const c10::Argument& argument) {
    if (argument.is_out()) return written_.emplace_back(c_.out(output_++));
    if (is_left_out(argument)) return {};
    const c10::Type& type = inner(*argument.real_type());
    const bool optional = argument.type()->kind() == TypeKind::OptionalType;
    const std::string& name = argument.name();
    switch (type.kind()) {
      case TypeKind::TensorType:
        return tensor(is_written(argument), optional);
      case TypeKind::NumberType:
        return c_.has_input(input_) ? c10::IValue(c_.in_scalar(input_++)) : absent();
      case TypeKind::FloatType:
        return c_.has_input(input_) ? c10::IValue(c_.in_scalar(input_++).toDouble()) : absent();
      case TypeKind::GeneratorType:
        return generator();
      case TypeKind::ListType:
        return list(*type.castRaw<c10::ListType>()->getElementType(), argument);
      default:
        break;
    }
    if (!c_.attrs().has(name)) return {};
    switch (type.kind()) {
      case TypeKind::IntType:
      case TypeKind::SymIntType:
        return c_.attrs().integer(name, 0);
      case TypeKind::ScalarTypeType:
        return static_cast<int64_t>(scalar_type(static_cast<aclDataType>(c_.attrs().integer(name, 0))));
      case TypeKind::BoolType:
        return c_.attrs().boolean(name, false);
      case TypeKind::StringType:
        return c_.attrs().text(name, "");
      default:
        throw OpError(ACL_ERROR_GE_FAILURE, "argument '" + name + "' is of a type that no device operand has");
    }
  }

 private:
  c10::IValue absent() {
    ++input_;
    return {};
  }

  c10::IValue tensor(bool written, bool optional) {
    if (!c_.has_input(input_)) {
      ++input_;
      return optional ? c10::IValue() : c10::IValue(at::Tensor());
    }
    const at::Tensor before = c_.in(input_++);
    if (!written) return before;
    const at::Tensor after = c_.out(output_++);
    if (after.data_ptr() != before.data_ptr()) after.copy_(before);
    return after;
  }

  c10::IValue generator() {
    if (!c_.has_input(input_)) return absent();
    const std::vector<int64_t> state = c_.in_values(input_++);
    const uint64_t seed = static_cast<uint64_t>(state.at(0)), offset = static_cast<uint64_t>(state.at(1));
    return at::detail::createCPUGenerator(seed ^ (offset + 1) * 0x9E3779B97F4A7C15ULL);
  }

  c10::IValue list(const c10::Type& element, const c10::Argument& argument) {
    const std::string& name = argument.name();
    if (!c_.attrs().has(name)) return {};
    switch (inner(element).kind()) {
      case TypeKind::TensorType:
        return tensors(element.kind() == TypeKind::OptionalType, argument);
      case TypeKind::IntType:
      case TypeKind::SymIntType:
        return c_.attrs().integers(name);
      case TypeKind::BoolType: {
        c10::List<bool> values;
        for (const int64_t value : c_.attrs().integers(name)) values.push_back(value != 0);
        return values;
      }
      case TypeKind::FloatType: {
        c10::List<double> values;
        for (int64_t n = c_.attrs().integer(name, 0); n > 0; --n) values.push_back(c_.in_scalar(input_++).toDouble());
        return values;
      }
      case TypeKind::NumberType: {
        c10::List<at::Scalar> values;
        for (int64_t n = c_.attrs().integer(name, 0); n > 0; --n) values.push_back(c_.in_scalar(input_++));
        return values;
      }
      default:
        throw OpError(ACL_ERROR_GE_FAILURE, "argument '" + name + "' is of a type that no device operand has");
    }
  }

  c10::IValue tensors(bool optional, const c10::Argument& argument) {
    const bool written = is_written(argument);
    c10::List<at::Tensor> some;
    c10::List<std::optional<at::Tensor>> all;
    for (const int64_t given : c_.attrs().integers(argument.name())) {
      at::Tensor t = given ? tensor(written, false).toTensor() : at::Tensor();
      if (!optional) {
        some.push_back(t);
      } else {
        all.push_back(given ? std::optional(t) : std::nullopt);
      }
    }
    return optional ? c10::IValue(all) : c10::IValue(some);
  }

  OpContext& c_;
  size_t input_ = 0, output_ = 0;
  std::vector<at::Tensor> written_;
};

}  // namespace

AtenOp::AtenOp(const char* type, const char* overload, void (*run)(OpContext&)) : op_(find(overload)) {
  OpDef& def = register_op(type).costly();
  std::vector<std::string> attrs;
  int inputs = 0, outputs = 0;
  bool listed_inputs = false, listed_outputs = false;
  for (const c10::Argument& argument : op_.schema().arguments()) {
    const c10::Type& type_of = inner(*argument.real_type());
    const bool list = type_of.kind() == TypeKind::ListType;
    if (is_written(argument)) (list ? listed_outputs = true : ++outputs);
    if (is_left_out(argument)) continue;
    const char* kind = attr_kind(type_of);
    if (kind) attrs.push_back(argument.name() + kind);
    if (list) {
      const TypeKind element = inner(*type_of.castRaw<c10::ListType>()->getElementType()).kind();
      listed_inputs = listed_inputs || element == TypeKind::TensorType || element == TypeKind::FloatType ||
                      element == TypeKind::NumberType;
    } else if (!kind) {
      ++inputs;
    }
  }
  for (const c10::Argument& result : op_.schema().returns()) {
    if (result.alias_info() != nullptr) continue;
    (result.type()->kind() == TypeKind::TensorType ? ++outputs : listed_outputs = true);
  }
  def.inputs(inputs, listed_inputs ? kManyInputs : inputs).outputs(outputs, listed_outputs ? kManyInputs : outputs);
  def.dtypes(kAllTypes).attrs(std::move(attrs)).ai_cpu().run(run);
}

torch::jit::Stack AtenOp::call(OpContext& c) const {
  Reader reader(c);
  torch::jit::Stack stack;
  for (const c10::Argument& argument : op_.schema().arguments()) stack.push_back(reader.next(argument));
  op_.callBoxed(&stack);
  return stack;
}

void AtenOp::run(OpContext& c) const {
  const c10::FunctionSchema& schema = op_.schema();
  Reader reader(c);
  torch::jit::Stack stack;
  for (const c10::Argument& argument : schema.arguments()) stack.push_back(reader.next(argument));
  size_t output = reader.outputs();
  if (output == 0 && c.num_outputs() == 1) c.place_next_allocation(0);
  op_.callBoxed(&stack);
  reader.resolve();
  const auto give = [&](const at::Tensor& result) {
    if (result.defined()) c.set_out(output, result.resolve_conj().resolve_neg());
    ++output;
  };
  for (size_t i = 0; i < stack.size(); ++i) {
    if (schema.returns()[i].alias_info() != nullptr) continue;
    if (stack[i].isTensor()) {
      give(stack[i].toTensor());
    } else if (stack[i].isTensorList()) {
      for (const at::Tensor& t : stack[i].toTensorVector()) give(t);
    }
  }
}

}  // namespace acl_sim
