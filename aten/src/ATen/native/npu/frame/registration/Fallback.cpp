// The boxed fallback.

#include <ATen/native/npu/frame/registration/Fallback.h>

#include <ATen/SparseCsrTensorUtils.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/native/npu/frame/registration/Announced.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <c10/npu/NPUGraphsC10Utils.h>
#include <c10/npu/NPUOptions.h>
#include <torch/library.h>

#include <cstring>
#include <mutex>
#include <set>

namespace at::native::npu {

namespace {

// Note [Fallback]
// Arguments go to the CPU, results come back. What must not happen silently:
// - a view: its result would not share memory with its base. Refused.
// - random numbers: they would come from the CPU's generator. Refused.
// - operands on two devices: the copies would hide upstream's error. Refused, but for 0-d CPU tensors and those
//   arguments that operators take from the CPU by their definition.
// Arguments that the schema marks as written are written back, resized if the CPU kernel resized its copy: composite
// operators hand an empty tensor to their out= form.
// A result gets the dtype and strides that meta and fake tensors announce, where the CPU's kernel has others.

std::mutex mutex;
std::map<std::string, int64_t>& counts() {
  static auto* map = new std::map<std::string, int64_t>();
  return *map;
}

// Arguments whose values are wanted on the host.
const std::set<std::string>& host_arguments() {
  static const std::set<std::string> names{"lengths", "input_lengths", "target_lengths", "batch_sizes", "indices"};
  return names;
}

void count_call(const c10::OperatorHandle& op) {
  static auto* said = new std::set<std::string>();
  const std::string name = c10::toString(op.operator_name());
  bool first = false;
  {
    const std::lock_guard<std::mutex> lock(mutex);
    ++counts()[name];
    first = said->insert(name).second;
  }
  if (first) {
    TORCH_WARN("The operator '", name,
               "' is not currently supported on the NPU backend and will fall back to run on the CPU. This may have "
               "performance implications.");
  }
}

[[noreturn]] void refuse(const c10::OperatorHandle& op, const std::string& reason) {
  TORCH_CHECK_NOT_IMPLEMENTED(false, "Could not run '", c10::toString(op.operator_name()),
                              "' with arguments from the 'npu' backend: the device has no kernel for it, and ", reason,
                              ", so it cannot run on the CPU instead.");
}

bool is_view(const c10::FunctionSchema& schema) {
  for (const auto& result : schema.returns()) {
    if (result.alias_info() != nullptr && !result.alias_info()->isWrite()) return true;
  }
  return false;
}

// The copies of one call: each device tensor once, so that two arguments that are one tensor stay one.
class Copies {
 public:
  explicit Copies(const c10::OperatorHandle& op) : op_(op) {}

  Tensor to_cpu(const Tensor& t, const std::string& argument, bool written) {
    if (!t.defined()) return t;
    if (!t.device().is_privateuseone()) {
      if (t.dim() > 0 && !host_arguments().contains(argument)) host_ = t;
      return t;
    }
    check_device(t);
    for (auto& [original, copy] : pairs_) {
      if (original.is_same(t)) {
        if (written) written_.insert(original.unsafeGetTensorImpl());
        return copy;
      }
    }
    if (written) written_.insert(t.unsafeGetTensorImpl());
    pairs_.emplace_back(t, t.to(kCPU));
    return pairs_.back().second;
  }

  void set_device(Device device) { device_ = device; }
  const std::optional<Device>& device() const { return device_; }

  void check_mixed() const {
    TORCH_CHECK(!host_.has_value() || pairs_.empty(),
                "Expected all tensors to be on the same device, but found at least two devices, ", *device_, " and ",
                host_->device(), "! (when checking arguments of ", c10::toString(op_.operator_name()), ")");
  }

  void write_back() {
    for (auto& [original, copy] : pairs_) {
      if (!written_.contains(original.unsafeGetTensorImpl())) continue;
      if (at::sparse_csr::is_sparse_compressed(original)) original.resize_as_sparse_(copy);
      const bool resizable = original.layout() == kStrided && !original.is_nested();
      if (resizable && original.sizes() != copy.sizes()) original.resize_(copy.sizes());
      original.copy_(copy);
    }
  }

  // Meta tensors like the arguments, for the operator's announcement.
  static Tensor to_meta(const Tensor& t) {
    return t.defined() ? at::empty_strided(t.sizes(), t.strides(), t.options().device(kMeta)) : t;
  }

  // The device's counterpart of a result.
  Tensor to_device(const Tensor& result) {
    if (!result.defined() || !result.is_cpu() || !device_.has_value()) return result;
    for (auto& [original, copy] : pairs_) {
      if (copy.is_same(result) && written_.contains(original.unsafeGetTensorImpl())) return original;
    }
    return result.to(*device_);
  }

 private:
  void check_device(const Tensor& t) {
    if (!device_.has_value()) device_ = t.device();
    TORCH_CHECK(*device_ == t.device(),
                "Expected all tensors to be on the same device, but found at least two devices, ", *device_, " and ",
                t.device(), "! (when checking arguments of ", c10::toString(op_.operator_name()), ")");
  }

  const c10::OperatorHandle& op_;
  std::vector<std::pair<Tensor, Tensor>> pairs_;
  std::set<const TensorImpl*> written_;
  std::optional<Device> device_;
  std::optional<Tensor> host_;
};

c10::IValue to_cpu(Copies& copies, const c10::IValue& value, const c10::Argument& argument) {
  const bool written = argument.alias_info() != nullptr && argument.alias_info()->isWrite();
  if (value.isTensor()) return copies.to_cpu(value.toTensor(), argument.name(), written);
  if (value.isTensorList()) {
    c10::List<Tensor> list;
    for (const Tensor& t : value.toTensorVector()) list.push_back(copies.to_cpu(t, argument.name(), written));
    return list;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<Tensor>> list;
    for (const std::optional<Tensor>& t : value.toOptionalTensorVector()) {
      list.push_back(t.has_value() ? std::optional(copies.to_cpu(*t, argument.name(), written)) : std::nullopt);
    }
    return list;
  }
  if (value.isDevice()) {
    const Device device = value.toDevice();
    if (!device.is_privateuseone()) return value;
    copies.set_device(device);
    return Device(kCPU);
  }
  return value;
}

c10::IValue to_meta(const c10::IValue& value) {
  if (value.isTensor()) return Copies::to_meta(value.toTensor());
  if (value.isTensorList()) {
    c10::List<Tensor> list;
    for (const Tensor& t : value.toTensorVector()) list.push_back(Copies::to_meta(t));
    return list;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<Tensor>> list;
    for (const std::optional<Tensor>& t : value.toOptionalTensorVector())
      list.push_back(t.has_value() ? std::optional(Copies::to_meta(*t)) : std::nullopt);
    return list;
  }
  return value.isDevice() ? c10::IValue(Device(kMeta)) : value;
}

// What meta tensors say of the results; nothing where they cannot, as for what only values tell.
torch::jit::Stack announced_results(const c10::OperatorHandle& op, const torch::jit::Stack& arguments) {
  for (const auto& result : op.schema().returns()) {
    if (result.alias_info() != nullptr) return {};
  }
  torch::jit::Stack stack;
  try {
    for (const c10::IValue& value : arguments) stack.push_back(to_meta(value));
    op.callBoxed(&stack);
  } catch (const std::exception&) {
    return {};
  }
  return stack;
}

Tensor arranged(const Tensor& result, const c10::IValue& announced) {
  if (!announced.isTensor() || !announced.toTensor().defined() || result.layout() != kStrided) return result;
  const Tensor& meta = announced.toTensor();
  return as_announced(result, meta.scalar_type(), meta.sizes(), meta.strides());
}

c10::IValue to_device(Copies& copies, const c10::IValue& value, const c10::IValue& announced) {
  if (value.isTensor()) {
    const Tensor& result = value.toTensor();
    return copies.to_device(result.defined() && result.is_cpu() ? arranged(result, announced) : result);
  }
  if (value.isTensorList()) {
    c10::List<Tensor> list;
    for (const Tensor& t : value.toTensorVector()) list.push_back(copies.to_device(t));
    return list;
  }
  return value;
}

}  // namespace

void run_on_cpu(const c10::OperatorHandle& op, torch::jit::Stack* stack, c10::DispatchKey key) {
  const c10::FunctionSchema& schema = op.schema();
  if (is_view(schema)) refuse(op, "its result would not share memory with its input");
  if (op.hasTag(at::Tag::nondeterministic_seeded)) refuse(op, "it draws random numbers, which would be the CPU's");
  if (C10_UNLIKELY(c10::npu::is_any_capture_under_way())) {
    const std::string what = c10::str("'", c10::toString(op.operator_name()), "' is computed on the CPU");
    c10::npu::assert_not_capturing(c10::npu::getCurrentNPUStream(), what.c_str());
  }
  Copies copies(op);
  const size_t first = stack->size() - schema.arguments().size();
  for (size_t i = 0; i < schema.arguments().size(); ++i) {
    c10::IValue& value = (*stack)[first + i];
    value = to_cpu(copies, value, schema.arguments()[i]);
  }
  copies.check_mixed();
  count_call(op);
  torch::jit::Stack announced;  // meta tensors say nothing of other layouts
  if (key == c10::DispatchKey::CPU) {
    announced = announced_results(op, {stack->begin() + static_cast<int64_t>(first), stack->end()});
  }
  op.redispatchBoxed(c10::DispatchKeySet(key), stack);
  copies.write_back();
  const size_t count = schema.returns().size(), results = stack->size() - count;
  for (size_t i = 0; i < count; ++i) {
    c10::IValue& value = (*stack)[results + i];
    value = to_device(copies, value, announced.size() == count ? announced[i] : c10::IValue());
  }
}

bool fallback_enabled() {
  const char* value = c10::npu::environment("NPU_FALLBACK");
  return value == nullptr || std::strcmp(value, "0") != 0;
}

namespace {

void fallback(const c10::OperatorHandle& op, c10::DispatchKeySet /*keys*/, torch::jit::Stack* stack) {
  run_on_cpu(op, stack, c10::DispatchKey::CPU);
}

// Composites of upstream's that read their operands on the host, whatever device they are on: the process would end.
void read_on_host(const c10::OperatorHandle& op, c10::DispatchKeySet /*keys*/, torch::jit::Stack* stack) {
  TORCH_CHECK_NOT_IMPLEMENTED(fallback_enabled(), "Could not run '", c10::toString(op.operator_name()),
                              "' with arguments from the 'npu' backend: it reads its operands on the host, and "
                              "NPU_FALLBACK=0 forbids the CPU.");
  run_on_cpu(op, stack, c10::DispatchKey::CPU);
}

}  // namespace

void run_on_cpu(const c10::OperatorHandle& op, torch::jit::Stack* stack, const char* ir) {
  TORCH_CHECK_NOT_IMPLEMENTED(fallback_enabled(), "Could not run '", c10::toString(op.operator_name()),
                              "' with arguments from the 'npu' backend: the device has no IR operator '", ir,
                              "', and NPU_FALLBACK=0 forbids the CPU.");
  run_on_cpu(op, stack, c10::DispatchKey::CPU);
}

std::map<std::string, int64_t> fallback_stats() {
  const std::lock_guard<std::mutex> lock(mutex);
  return counts();
}

void reset_fallback_stats() {
  const std::lock_guard<std::mutex> lock(mutex);
  counts().clear();
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) {
  if (fallback_enabled()) m.fallback(torch::CppFunction::makeFromBoxedFunction<&fallback>());
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  for (const char* name :
       {"_reshape_from_tensor", "_saturate_weight_to_fp16", "_sobol_engine_draw", "_sobol_engine_ff_",
        "_sobol_engine_initialize_state_", "_sobol_engine_scramble_", "range.out_"}) {
    m.impl(name, torch::CppFunction::makeFromBoxedFunction<&read_on_host>());
  }
}

}  // namespace at::native::npu
