// The boxed kernel: results are allocated, the command is built from schema and stack.

#include <ATen/native/npu/frame/registration/AtenOp.h>

#include <ATen/MemoryOverlap.h>
#include <ATen/native/npu/frame/command/DeviceOf.h>
#include <ATen/native/npu/frame/command/DrawPlace.h>
#include <ATen/native/npu/frame/command/Missing.h>
#include <ATen/native/npu/frame/command/OpCommand.h>
#include <ATen/native/npu/frame/inference/Allocate.h>
#include <ATen/native/npu/frame/inference/Give.h>
#include <ATen/native/npu/frame/inference/Resize.h>
#include <ATen/native/npu/frame/registration/Announced.h>
#include <ATen/native/npu/frame/registration/Fallback.h>
#include <ATen/native/npu/frame/registration/SameDevice.h>
#include <ATen/npu/NPUGeneratorImpl.h>
#include <c10/util/strides.h>

#include <algorithm>

namespace at::native::npu {
namespace {

using c10::TypeKind;

const c10::Type& inner(const c10::Type& type) {
  return type.kind() == TypeKind::OptionalType ? *type.castRaw<c10::OptionalType>()->getElementType() : type;
}

bool is_written(const c10::Argument& argument) {
  return argument.alias_info() != nullptr && argument.alias_info()->isWrite();
}

bool on_npu(const Tensor& t) { return t.defined() && t.device().is_privateuseone(); }

c10::OperatorHandle find_overload(const std::string& name) {
  const auto dot = name.find('.');
  const std::string base = "aten::" + name.substr(0, dot);
  const std::string rest = dot == std::string::npos ? "" : name.substr(dot + 1);
  return c10::Dispatcher::singleton().findSchemaOrThrow(base.c_str(), rest.c_str());
}

// Every tensor of an argument, absent ones included.
template <class Visit>
void each_tensor(const c10::IValue& value, const Visit& visit) {
  if (value.isTensor()) {
    visit(value.toTensor());
  } else if (value.isList()) {
    for (const c10::IValue& item : value.toListRef()) {
      if (item.isTensor()) visit(item.toTensor());
    }
  }
}

c10::Device device_of(const c10::OperatorHandle& op, const c10::IValue* values) {
  std::optional<c10::Device> device;
  SameDevice operands(op.schema().name().c_str());
  for (size_t i = 0; i < op.schema().arguments().size(); ++i) {
    const bool written = is_written(op.schema().arguments()[i]);
    each_tensor(values[i], [&](const Tensor& t) {
      written ? operands.written(t) : operands.read(t);
      if (on_npu(t)) device = t.device();
    });
    if (values[i].isDevice() && values[i].toDevice().is_privateuseone() && !device.has_value()) {
      device = resolve_device(values[i].toDevice());
    }
  }
  TORCH_CHECK(device.has_value(), op.schema().name(), " has no argument on an npu");
  return *device;
}

void check_first_dtype(const c10::FunctionSchema& schema, const c10::IValue* values, DtypeMask allowed) {
  for (size_t i = 0; i < schema.arguments().size(); ++i) {
    if (!values[i].isTensor() || !values[i].toTensor().defined()) continue;
    check_dtype(values[i].toTensor().scalar_type(), allowed, schema.name().c_str() + 6);
    return;
  }
}

void check_outs_apart(const c10::FunctionSchema& schema, const c10::IValue* values) {
  for (size_t i = 0; i < schema.arguments().size(); ++i) {
    if (schema.arguments()[i].is_out()) at::assert_no_internal_overlap(values[i].toTensor());
  }
}

// Turns the arguments of a call into the operands of a command.
class Submission {
 public:
  Submission(const char* ir, c10::Device device, DtypeMask wide) : device_(device), wide_(wide) { cmd_.Name(ir); }

  // `natural`: the dtypes that the operator gives, for the out= tensors in order, which are then cast to.
  void add(const c10::Argument& argument, const c10::IValue& value, const OutputSpecs& natural) {
    if (argument.is_out()) {
      const Tensor& out = value.toTensor();
      output(out, natural.at(outputs_).dtype);
      return;
    }
    const c10::Type& type = inner(*argument.real_type());
    const char* name = argument.name().c_str();
    const TypeKind kind = type.kind();
    if (kind == TypeKind::DeviceObjType || kind == TypeKind::LayoutType || kind == TypeKind::MemoryFormatType ||
        argument.name() == "pin_memory") {
      return;
    }
    if (kind == TypeKind::GeneratorType) {
      add_generator(value);
    } else if (kind == TypeKind::TensorType) {
      if (value.isNone()) {
        cmd_.Input();
      } else {
        add_tensor(value.toTensor(), is_written(argument));
      }
    } else if (kind == TypeKind::NumberType || kind == TypeKind::FloatType) {
      add_number(value);
    } else if (!value.isNone()) {
      kind == TypeKind::ListType ? add_list(argument, *type.castRaw<c10::ListType>()->getElementType(), value)
                                 : add_attr(name, kind, value);
    }
  }

  void output(const Tensor& t, ScalarType natural = ScalarType::Undefined) {
    ++outputs_;
    if (!t.defined()) {
      cmd_.Output();
      return;
    }
    elements_ += t.numel();
    cmd_.Output(t, wide_ == 0 ? natural : computed(natural, t));
  }

  void run() {
    // Without outputs it is an assertion.
    if (elements_ > 0 || outputs_ == 0) cmd_.Run();
  }

 private:
  // The dtype in which the operator gives what is of dtype `natural`, or of the tensor's if that is not said.
  ScalarType computed(ScalarType natural, const Tensor& t) const {
    return widened(natural == ScalarType::Undefined ? t.scalar_type() : natural, wide_);
  }

  void add_tensor(const Tensor& t, bool written) {
    cmd_.Input(t.defined() && wide_ != 0 ? t.to(widened(t.scalar_type(), wide_)) : t);
    if (written && t.defined()) output(t);
  }

  void add_number(const c10::IValue& value) {
    if (value.isNone()) {
      cmd_.Input();
      return;
    }
    const Scalar number = value.toScalar();
    cmd_.Input(number, number.isComplex()         ? kComplexDouble
                       : number.isFloatingPoint() ? kDouble
                       : number.isBoolean()       ? kBool
                                                  : kLong);
  }

  void add_generator(const c10::IValue& value) {
    const std::optional<Generator> given =
        value.isNone() ? std::nullopt : std::optional<Generator>(value.toGenerator());
    auto* impl =
        get_generator_or_default<NPUGeneratorImpl>(given, at::npu::detail::getDefaultNPUGenerator(device_.index()));
    add_seed_and_offset(cmd_, next_place(impl));
  }

  void add_attr(const char* name, TypeKind kind, const c10::IValue& value) {
    switch (kind) {
      case TypeKind::ScalarTypeType:
        cmd_.Attr(name, value.toScalarType());
        break;
      case TypeKind::BoolType:
        cmd_.Attr(name, value.toBool());
        break;
      case TypeKind::StringType:
        cmd_.Attr(name, value.toStringRef());
        break;
      default:
        cmd_.Attr(name, value.toInt());
    }
  }

  void add_list(const c10::Argument& argument, const c10::Type& element, const c10::IValue& value) {
    const char* name = argument.name().c_str();
    const TypeKind kind = inner(element).kind();
    const c10::ArrayRef<c10::IValue> items = value.toListRef();
    DimVector words;
    switch (kind) {
      case TypeKind::TensorType:
        for (const c10::IValue& item : items) words.push_back(item.isTensor() && item.toTensor().defined() ? 1 : 0);
        cmd_.Attr(name, IntArrayRef(words));
        for (size_t i = 0; i < items.size(); ++i) {
          if (words[i] != 0) add_tensor(items[i].toTensor(), is_written(argument));
        }
        break;
      case TypeKind::FloatType:
      case TypeKind::NumberType:
        cmd_.Attr(name, static_cast<int64_t>(items.size()));
        for (const c10::IValue& item : items) add_number(item);
        break;
      default:
        for (const c10::IValue& item : items) words.push_back(item.isBool() ? item.toBool() : item.toInt());
        cmd_.Attr(name, IntArrayRef(words));
    }
  }

  c10::Device device_;
  DtypeMask wide_;
  OpCommand cmd_;
  int64_t elements_ = 0, outputs_ = 0;
};

// Gives the out= tensors the shapes that the results have.
void resize_outs(const c10::FunctionSchema& schema, const c10::IValue* values, const OutputSpecs& specs) {
  size_t k = 0;
  for (size_t i = 0; i < schema.arguments().size(); ++i) {
    if (!schema.arguments()[i].is_out()) continue;
    const Tensor& out = values[i].toTensor();
    const OutputSpec& spec = specs.at(k++);
    if (out.sizes() != IntArrayRef(spec.sizes)) {
      resize_tensor(out, spec.sizes, spec.strides.empty() ? OptionalIntArrayRef() : OptionalIntArrayRef(spec.strides));
    }
  }
}

// What the operator gives, where out= tensors may differ from it in dtype.
OutputSpecs natural_outputs(const AtenEntry& entry, const c10::IValue* values, const OutputSpecs& specs) {
  if (entry.functional == nullptr) return specs;
  return meta_outputs(find_overload(entry.functional), values);
}

void check_outs(const c10::FunctionSchema& schema, const c10::IValue* values, const OutputSpecs& natural, bool exact) {
  size_t k = 0;
  for (size_t i = 0; i < schema.arguments().size(); ++i) {
    if (!schema.arguments()[i].is_out()) continue;
    const ScalarType given = values[i].toTensor().scalar_type(), dtype = natural.at(k++).dtype;
    TORCH_CHECK(!exact || given == dtype, "Expected out tensor to have dtype ", c10::scalarTypeToTypeMeta(dtype),
                ", but got ", c10::scalarTypeToTypeMeta(given), " instead");
    TORCH_CHECK(canCast(dtype, given), "result type ", dtype, " can't be cast to the desired output type ", given);
  }
}

class AtenKernel final : public c10::OperatorKernel {
 public:
  explicit AtenKernel(const AtenEntry& entry) : entry_(entry) {}

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet /*keys*/, torch::jit::Stack* stack) {
    const c10::FunctionSchema& schema = op.schema();
    const size_t first = stack->size() - schema.arguments().size();
    const c10::IValue* values = stack->data() + first;
    const c10::Device device = device_of(op, values);
    const DeviceOf guard(device);
    check_first_dtype(schema, values, entry_.dtypes & ~refused_here(entry_.refused));
    check_outs_apart(schema, values);
    if (entry_.check != nullptr) entry_.check(AtenArguments(schema, values));
    const OutputSpecs specs =
        entry_.rule != nullptr ? entry_.rule(AtenArguments(schema, values)) : meta_outputs(op, values);
    const OutputSpecs natural = natural_outputs(entry_, values, specs);
    check_outs(schema, values, natural, entry_.exact);
    resize_outs(schema, values, specs);
    if (entry_.special != nullptr) {
      if (const auto computed = entry_.special(AtenArguments(schema, values)))
        return hand_back(op, stack, specs, *computed);
    }
    if (lacks(entry_.ir))
      return entry_.composed != nullptr ? compose(op, stack, specs) : run_on_cpu(op, stack, entry_.ir);

    Submission command(entry_.ir, device, entry_.wide);
    std::vector<c10::IValue> results;
    for (size_t i = 0; i < schema.arguments().size(); ++i) command.add(schema.arguments()[i], values[i], natural);
    size_t k = 0;
    for (const c10::Argument& result : schema.returns()) {
      if (result.alias_info() != nullptr) {
        results.push_back(aliased(schema, values, result));
        ++k;
      } else if (result.type()->kind() == TypeKind::ListType) {
        c10::List<Tensor> list;
        for (; k < specs.size(); ++k) list.push_back(make(specs[k], device, command));
        results.emplace_back(list);
      } else {
        results.emplace_back(make(specs.at(k++), device, command));
      }
    }
    command.run();
    torch::jit::drop(*stack, schema.arguments().size());
    for (auto& result : results) stack->push_back(std::move(result));
  }

 private:
  void compose(const c10::OperatorHandle& op, torch::jit::Stack* stack, const OutputSpecs& specs) const {
    const c10::FunctionSchema& schema = op.schema();
    const c10::IValue* values = stack->data() + (stack->size() - schema.arguments().size());
    std::vector<Tensor> computed;
    try {
      computed = entry_.composed(AtenArguments(schema, values));
    } catch (const MissingOperator& missing) {
      return run_on_cpu(op, stack, missing.ir());  // this use of it has no composition
    }
    hand_back(op, stack, specs, computed);
  }

  // Leaves what other operators computed as this one's results.
  static void hand_back(const c10::OperatorHandle& op, torch::jit::Stack* stack, const OutputSpecs& specs,
                        const std::vector<Tensor>& computed) {
    const c10::FunctionSchema& schema = op.schema();
    const c10::IValue* values = stack->data() + (stack->size() - schema.arguments().size());
    std::vector<c10::IValue> results;
    size_t k = 0;
    const auto next = [&] {
      const OutputSpec& spec = specs.at(k);
      const Tensor& t = computed.at(k++);
      if (!t.defined() || spec.dtype == ScalarType::Undefined) return t;
      const DimVector strides = spec.strides.empty() ? c10::contiguous_strides(spec.sizes) : spec.strides;
      return as_announced(t, spec.dtype, spec.sizes, strides);
    };
    for (const c10::Argument& argument : schema.arguments()) {
      if (argument.is_out()) values[&argument - schema.arguments().data()].toTensor().copy_(next());
    }
    for (const c10::Argument& result : schema.returns()) {
      if (result.alias_info() != nullptr) {
        results.push_back(aliased(schema, values, result));
      } else if (result.type()->kind() == TypeKind::ListType) {
        c10::List<Tensor> list;
        while (k < computed.size()) list.push_back(next());
        results.emplace_back(list);
      } else {
        results.emplace_back(next());
      }
    }
    torch::jit::drop(*stack, schema.arguments().size());
    for (auto& result : results) stack->push_back(std::move(result));
  }

  static Tensor make(const OutputSpec& spec, c10::Device device, Submission& command) {
    Tensor result;
    if (spec.dtype != ScalarType::Undefined) {
      result = spec.strides.empty() ? empty_npu(spec.sizes, spec.dtype, device)
                                    : empty_npu(spec.sizes, spec.strides, spec.dtype, device);
    }
    command.output(result);
    return result;
  }

  static c10::IValue aliased(const c10::FunctionSchema& schema, const c10::IValue* values,
                             const c10::Argument& result) {
    for (size_t i = 0; i < schema.arguments().size(); ++i) {
      const auto* info = schema.arguments()[i].alias_info();
      if (info != nullptr && *info == *result.alias_info()) return values[i];
    }
    TORCH_CHECK(false, schema.name(), ": a result refers to no argument");
  }

  AtenEntry entry_;
};

class GiveKernel final : public c10::OperatorKernel {
 public:
  GiveKernel(const char* functional, bool exact) : functional_(functional), exact_(exact) {}

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet /*keys*/, torch::jit::Stack* stack) {
    const size_t count = op.schema().returns().size();
    std::vector<c10::IValue> outs(stack->end() - static_cast<std::ptrdiff_t>(count), stack->end());
    torch::jit::drop(*stack, count);
    find_overload(functional_).callBoxed(stack);
    const size_t first = stack->size() - count;
    for (size_t i = 0; i < count; ++i) {
      Tensor out = outs[i].toTensor();
      const Tensor result = (*stack)[first + i].toTensor();
      TORCH_CHECK(!exact_ || result.scalar_type() == out.scalar_type(), "Expected out tensor to have dtype ",
                  result.dtype(), ", but got ", out.dtype(), " instead");
      give(result, out);
      (*stack)[first + i] = outs[i];
    }
  }

 private:
  const char* functional_;
  bool exact_;
};

}  // namespace

const c10::IValue& AtenArguments::operator[](std::string_view name) const {
  for (size_t i = 0; i < schema_.arguments().size(); ++i) {
    if (schema_.arguments()[i].name() == name) return values_[i];
  }
  TORCH_CHECK(false, schema_.name(), " has no argument ", name);
}

bool AtenArguments::has(std::string_view name) const {
  const auto& all = schema_.arguments();
  return std::any_of(all.begin(), all.end(), [name](const c10::Argument& a) { return a.name() == name; });
}

OutputSpec AtenArguments::like(std::string_view name) const {
  const Tensor& t = tensor(name);
  return {t.scalar_type(), DimVector(t.sizes()), {}};
}

void register_aten_op(torch::Library& library, const AtenEntry& entry) {
  library.impl(entry.overload, torch::CppFunction::makeFromBoxedFunctor(std::make_unique<AtenKernel>(entry)));
}

void register_give(torch::Library& library, const char* overload, const char* functional, bool exact) {
  library.impl(overload, torch::CppFunction::makeFromBoxedFunctor(std::make_unique<GiveKernel>(functional, exact)));
}

OutputSpecs no_outputs(const AtenArguments& /*arguments*/) { return {}; }

}  // namespace at::native::npu
