// The kernel author's side of a command: records operands and attributes, then has them prepared and launched.

#include <ATen/native/npu/frame/command/OpCommand.h>

#include <ATen/native/npu/frame/command/Launcher.h>
#include <ATen/native/npu/frame/command/OpCommandImpl.h>
#include <ATen/native/npu/frame/inference/Dtype.h>

#include <cstring>
#include <memory>
#include <utility>
#include <vector>

namespace at::native::npu {

namespace {

// Owns a prepared command on its way to the stream. Moved into the queue it leaves the operands' tensors behind, for
// the caller to drop once the task is queued: memory is freed at the call, whether there is a queue or not.
class OwnedCommand {
 public:
  OwnedCommand() = default;
  OwnedCommand(OwnedCommand&& other) : impl_(other.impl_) {
    if (impl_ != nullptr) other.left_ = impl_->take_tensors();
    other.impl_ = nullptr;
  }
  OwnedCommand(const OwnedCommand&) = delete;
  OwnedCommand& operator=(const OwnedCommand&) = delete;
  OwnedCommand& operator=(OwnedCommand&&) = delete;
  ~OwnedCommand() {
    if (impl_ != nullptr) OpCommandImpl::release(impl_);
  }
  void own(OpCommandImpl* impl) { impl_ = impl; }
  Memory* memory() { return impl_->memory(); }
  const Memory* memory() const { return impl_->memory(); }

 private:
  OpCommandImpl* impl_ = nullptr;
  std::unique_ptr<std::vector<Tensor>> left_;
};

}  // namespace

OpCommand::OpCommand() : impl_(OpCommandImpl::acquire()) {}

OpCommand::~OpCommand() {
  if (impl_ != nullptr) OpCommandImpl::release(impl_);
}

OpCommand& OpCommand::Name(const char* ir_type) {
  impl_->name = ir_type;
  return *this;
}

OpCommand& OpCommand::Elementwise() {
  impl_->elementwise = true;
  return *this;
}

OpCommand& OpCommand::Compute(ScalarType dtype) {
  impl_->compute = dtype;
  return *this;
}

OpCommand& OpCommand::Input() {
  impl_->add_input(Operand::Kind::kAbsent);
  return *this;
}

OpCommand& OpCommand::Input(const Tensor& input) {
  impl_->add_input(input.defined() ? Operand::Kind::kTensor : Operand::Kind::kAbsent).tensor = input;
  return *this;
}

OpCommand& OpCommand::InputOptional(const std::optional<Tensor>& input) {
  return input.has_value() ? Input(*input) : Input();
}

OpCommand& OpCommand::InputAs(const Tensor& input, IntArrayRef dims, aclFormat format) {
  Operand& operand = impl_->add_input(Operand::Kind::kTensorAs);
  operand.format = format;
  operand.tensor = input;
  operand.dims.assign(dims.begin(), dims.end());
  return *this;
}

OpCommand& OpCommand::Input(const Scalar& value, ScalarType dtype) {
  impl_->add_host_scalar(value, dtype);
  return *this;
}

OpCommand& OpCommand::Input(const std::optional<Scalar>& value, ScalarType dtype) {
  return value.has_value() ? Input(*value, dtype) : Input();
}

OpCommand& OpCommand::Input(IntArrayRef values, ScalarType dtype) {
  impl_->add_host_list(values, dtype);
  return *this;
}

OpCommand& OpCommand::InputStorage(const Tensor& view, int64_t offset, int64_t numel) {
  Operand& operand = impl_->add_input(Operand::Kind::kStorage);
  operand.tensor = view;
  operand.offset = offset;
  operand.dims.assign({numel});
  return *this;
}

OpCommand& OpCommand::OutputStorage(const Tensor& view, int64_t offset, int64_t numel) {
  Operand& operand = impl_->add_output(Operand::Kind::kStorage);
  operand.tensor = view;
  operand.offset = offset;
  operand.dims.assign({numel});
  return *this;
}

OpCommand& OpCommand::Output() {
  impl_->add_output(Operand::Kind::kAbsent);
  return *this;
}

OpCommand& OpCommand::Output(const Tensor& output) {
  impl_->add_output(Operand::Kind::kTensor).tensor = output;
  return *this;
}

OpCommand& OpCommand::Output(const Tensor& output, ScalarType natural) {
  Operand& operand = impl_->add_output(Operand::Kind::kTensor);
  operand.tensor = output;
  operand.dtype = natural;
  return *this;
}

OpCommand& OpCommand::OutputAs(const Tensor& output, IntArrayRef dims, aclFormat format) {
  Operand& operand = impl_->add_output(Operand::Kind::kTensorAs);
  operand.format = format;
  operand.tensor = output;
  operand.dims.assign(dims.begin(), dims.end());
  return *this;
}

OpCommand& OpCommand::Attr(const char* name, bool value) {
  const int64_t word = value ? 1 : 0;
  impl_->add_attr(name, 'b', &word, sizeof(word));
  return *this;
}

OpCommand& OpCommand::Attr(const char* name, int64_t value) {
  impl_->add_attr(name, 'i', &value, sizeof(value));
  return *this;
}

OpCommand& OpCommand::Attr(const char* name, double value) {
  impl_->add_attr(name, 'f', &value, sizeof(value));
  return *this;
}

OpCommand& OpCommand::Attr(const char* name, const char* value) {
  impl_->add_attr(name, 's', value, std::strlen(value) + 1);
  return *this;
}

OpCommand& OpCommand::Attr(const char* name, IntArrayRef value) {
  impl_->add_attr(name, 'I', value.data(), value.size() * sizeof(int64_t));
  return *this;
}

OpCommand& OpCommand::Attr(const char* name, ArrayRef<double> value) {
  impl_->add_attr(name, 'F', value.data(), value.size() * sizeof(double));
  return *this;
}

OpCommand& OpCommand::Attr(const char* name, ScalarType value) {
  const int64_t word = acl_dtype(value);
  impl_->add_attr(name, 't', &word, sizeof(word));
  return *this;
}

OpCommand& OpCommand::Attr(const char* name, ArrayRef<bool> value) {
  const DimVector words(value.begin(), value.end());
  impl_->add_attr(name, 'B', words.data(), words.size() * sizeof(int64_t));
  return *this;
}

void OpCommand::Run() {
  Prepared& prepared = impl_->prepare();
  // The list of results that were computed aside outlives the launch, which may take the command away.
  std::vector<OpCommandImpl::Aside> aside;
  if (C10_UNLIKELY(impl_->has_write_back())) aside = impl_->take_aside();
  launch_command<OwnedCommand>(impl_->stream(), impl_->name, prepared,
                               [this](OwnedCommand& command) { command.own(std::exchange(impl_, nullptr)); });
  if (C10_UNLIKELY(!aside.empty())) OpCommandImpl::write_back(aside);
}

}  // namespace at::native::npu
