// See HostKernels.h.

#include <ATen/native/npu/frame/command/HostKernels.h>

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/scalar_tensor.h>

// The kernels are compiled once more for this library, under a namespace of their own: the simulator may be loaded,
// too.
#define acl_sim acl_host
#include <simulator/core/config.h>
#include <simulator/exec/definition/op.h>
#undef acl_sim

// The registry asks which operators the simulated device is set to have; here all of the few serve.
const acl_host::Config& acl_host::config() {
  static const Config all;
  return all;
}

namespace at::native::npu {

namespace {

// Attributes of one call. What is not there, or not of the type asked for, is the default.
class HostAttrs final : public acl_host::Attrs {
 public:
  using Values = std::map<std::string, std::variant<bool, int64_t, std::vector<int64_t>>, std::less<>>;
  explicit HostAttrs(const Values& values) : values_(values) {}

  bool has(std::string_view name) const override { return values_.find(name) != values_.end(); }
  bool boolean(std::string_view name, bool otherwise) const override { return get(name, otherwise); }
  int64_t integer(std::string_view name, int64_t otherwise) const override { return get(name, otherwise); }
  std::vector<int64_t> integers(std::string_view name, std::vector<int64_t> otherwise) const override {
    return get(name, otherwise);
  }
  double real(std::string_view, double otherwise) const override { return otherwise; }
  std::string text(std::string_view, const std::string& otherwise) const override { return otherwise; }
  std::vector<double> reals(std::string_view, std::vector<double> otherwise) const override { return otherwise; }

 private:
  template <class T>
  T get(std::string_view name, const T& otherwise) const {
    const auto found = values_.find(name);
    const T* value = found == values_.end() ? nullptr : std::get_if<T>(&found->second);
    return value != nullptr ? *value : otherwise;
  }
  const Values& values_;
};

}  // namespace

// A device whose memory is the host's, all of it contiguous.
class HostContext final : public acl_host::OpContext {
 public:
  explicit HostContext(const AnyCommand& command) : command_(command), attrs_(command.attrs_) {}

  size_t num_inputs() const override { return command_.inputs_.size(); }
  size_t num_outputs() const override { return command_.outputs_.size(); }
  bool has_input(size_t i) const override { return i < num_inputs() && command_.inputs_[i].defined(); }
  const acl_host::Attrs& attrs() const override { return attrs_; }
  Tensor in(size_t i) override { return command_.inputs_.at(i).contiguous(); }
  Tensor in_any(size_t i) override { return in(i); }
  Tensor in_channels_last(size_t i) override { return in(i).contiguous(MemoryFormat::ChannelsLast); }
  std::vector<int64_t> in_values(size_t i) override {
    const Tensor values = in(i).to(kLong);
    return {values.const_data_ptr<int64_t>(), values.const_data_ptr<int64_t>() + values.numel()};
  }
  Scalar in_scalar(size_t i) override { return in(i).item(); }
  Tensor out(size_t i) override { return command_.outputs_.at(i); }
  Tensor out_channels_last(size_t i) override { return out(i); }
  Tensor out_as(size_t i, const Tensor&) override { return out(i); }
  void place_next_allocation(size_t) override {}
  void set_out(size_t i, const Tensor& result) override { out(i).copy_(result); }
  std::string describe() const override { return command_.type_; }

 private:
  const AnyCommand& command_;
  HostAttrs attrs_;
};

AnyCommand::AnyCommand(Device device, const char* type) : type_(type) {
  if (device.is_privateuseone()) {
    device_.emplace();
    device_->Name(type);
  }
}

AnyCommand& AnyCommand::Input(const Tensor& input) {
  device_.has_value() ? static_cast<void>(device_->Input(input)) : inputs_.push_back(input);
  return *this;
}

AnyCommand& AnyCommand::Input(const Scalar& value, ScalarType dtype) {
  if (device_.has_value()) {
    device_->Input(value, dtype);
  } else {
    inputs_.push_back(at::scalar_tensor(value, TensorOptions().dtype(dtype).device(kCPU)));
  }
  return *this;
}

AnyCommand& AnyCommand::Output(const Tensor& output) {
  device_.has_value() ? static_cast<void>(device_->Output(output)) : outputs_.push_back(output);
  return *this;
}

AnyCommand& AnyCommand::Attr(const char* name, bool value) {
  device_.has_value() ? static_cast<void>(device_->Attr(name, value)) : void(attrs_[name] = value);
  return *this;
}

AnyCommand& AnyCommand::Attr(const char* name, int64_t value) {
  device_.has_value() ? static_cast<void>(device_->Attr(name, value)) : void(attrs_[name] = value);
  return *this;
}

AnyCommand& AnyCommand::Attr(const char* name, IntArrayRef value) {
  device_.has_value() ? static_cast<void>(device_->Attr(name, value)) : void(attrs_[name] = value.vec());
  return *this;
}

void AnyCommand::Run() {
  if (device_.has_value()) {
    device_->Run();
    return;
  }
  const acl_host::OpDef* op = acl_host::find_op(type_);
  TORCH_INTERNAL_ASSERT(op != nullptr, "the CPU has no kernel of ", type_);
  const AutoDispatchBelowADInplaceOrView below_autograd;
  HostContext context(*this);
  try {
    op->run_fn(context);
  } catch (const acl_host::Error& error) {
    TORCH_CHECK(false, type_, " on the CPU: ", error.what());
  }
}

}  // namespace at::native::npu
