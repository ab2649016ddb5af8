// Connectionist temporal classification. Shapes depend on the lengths, so those are wanted on the host.

#include <ATen/TensorUtils.h>
#include <ATen/native/npu/frame/command/DeviceOf.h>
#include <ATen/native/npu/frame/command/OpCommand.h>
#include <ATen/native/npu/frame/inference/Allocate.h>
#include <NPUNativeFunctions.h>

#include <algorithm>
#include <tuple>

namespace at::native::npu {
namespace {

void check_dtypes(const Tensor& log_probs, const Tensor& targets) {
  TORCH_CHECK_NOT_IMPLEMENTED(log_probs.scalar_type() == kFloat || log_probs.scalar_type() == kDouble,
                              "\"ctc_loss\" not implemented for '", toString(log_probs.scalar_type()), "'");
  TORCH_CHECK(targets.scalar_type() == kLong || targets.scalar_type() == kInt,
              "ctc_loss: targets must be int32 or int64, but got ", targets.scalar_type());
}

// Everything that the device would trip over; returns the longest target.
int64_t check_operands(const Tensor& log_probs, const Tensor& targets, IntArrayRef input_lengths,
                       IntArrayRef target_lengths, int64_t blank) {
  constexpr CheckedFrom kName = "ctc_loss";
  TORCH_CHECK(log_probs.numel() > 0, "log_probs tensor must not be empty");
  check_dtypes(log_probs, targets);
  const TensorArg log_probs_arg(log_probs, "log_probs", 1), targets_arg(targets, "targets", 2);
  checkSameGPU(kName, log_probs_arg, targets_arg);
  checkDim(kName, log_probs_arg, 3);
  checkDimRange(kName, targets_arg, 1, 3);
  const int64_t steps = log_probs.size(0), batch = log_probs.size(1);
  TORCH_CHECK(blank >= 0 && blank < log_probs.size(2), "blank must be in label range");
  TORCH_CHECK(static_cast<int64_t>(input_lengths.size()) == batch, "input_lengths must be of size batch_size");
  TORCH_CHECK(static_cast<int64_t>(target_lengths.size()) == batch, "target_lengths must be of size batch_size");
  int64_t longest = 0, total = 0;
  for (const int64_t length : target_lengths) {
    TORCH_CHECK(length >= 0, "Expected target_lengths to have value at least 0, but got value ", length,
                " (while checking arguments for ctc_loss)");
    longest = std::max(longest, length);
    total += length;
  }
  if (targets.dim() == 1) {
    checkSize(kName, targets_arg, 0, total);
  } else {
    checkSize(kName, targets_arg, 0, batch);
    TORCH_CHECK(targets.size(1) >= longest, "Expected tensor to have size at least ", longest,
                " at dimension 1, but got size ", targets.size(1),
                " for argument #2 'targets' (while checking "
                "arguments for ctc_loss)");
  }
  for (const int64_t length : input_lengths) {
    TORCH_CHECK(length >= 0 && length <= steps, "Expected input_lengths to have values from 0 to ", steps,
                ", but got value ", length, " (while checking arguments for ctc_loss)");
  }
  return longest;
}

DimVector on_host(const Tensor& lengths, const char* name) {
  TORCH_CHECK(isIntegralType(lengths.scalar_type(), /*includeBool=*/false), name, " must be integral");
  const Tensor values = lengths.to(Device(kCPU), kLong).contiguous();
  return {values.const_data_ptr<int64_t>(), values.const_data_ptr<int64_t>() + values.numel()};
}

}  // namespace

std::tuple<Tensor, Tensor> ctc_loss(const Tensor& log_probs, const Tensor& targets, IntArrayRef input_lengths,
                                    IntArrayRef target_lengths, int64_t blank, bool zero_infinity) {
  DeviceOf guard(log_probs);
  const int64_t longest = check_operands(log_probs, targets, input_lengths, target_lengths, blank);
  const int64_t batch = log_probs.size(1);
  const Tensor loss = empty_npu({batch}, log_probs.scalar_type(), log_probs.device());
  const Tensor alpha =
      empty_npu({batch, log_probs.size(0), 2 * longest + 1}, log_probs.scalar_type(), log_probs.device());
  OpCommand cmd;
  cmd.Name("CTCLossV2").Input(log_probs).Input(targets).Input(input_lengths).Input(target_lengths).Output(loss);
  cmd.Output(alpha).Attr("blank", blank).Attr("zero_infinity", zero_infinity).Attr("reduction", "none").Run();
  return {loss, alpha};
}

std::tuple<Tensor, Tensor> ctc_loss_tensor(const Tensor& log_probs, const Tensor& targets, const Tensor& input_lengths,
                                           const Tensor& target_lengths, int64_t blank, bool zero_infinity) {
  return npu::ctc_loss(log_probs, targets, on_host(input_lengths, "input_lengths"),
                       on_host(target_lengths, "target_lengths"), blank, zero_infinity);
}

Tensor ctc_loss_backward(const Tensor& grad, const Tensor& log_probs, const Tensor& targets, IntArrayRef input_lengths,
                         IntArrayRef target_lengths, const Tensor& neg_log_likelihood, const Tensor& log_alpha,
                         int64_t blank, bool zero_infinity) {
  DeviceOf guard(log_probs);
  check_operands(log_probs, targets, input_lengths, target_lengths, blank);
  const Tensor result = empty_as(log_probs);
  OpCommand cmd;
  cmd.Name("CTCLossV2Grad").Input(grad).Input(log_probs).Input(targets).Input(input_lengths).Input(target_lengths);
  cmd.Input(neg_log_likelihood).Input(log_alpha).Output(result).Attr("blank", blank);
  cmd.Attr("zero_infinity", zero_infinity).Attr("reduction", "none").Run();
  return result;
}

Tensor ctc_loss_backward_tensor(const Tensor& grad, const Tensor& log_probs, const Tensor& targets,
                                const Tensor& input_lengths, const Tensor& target_lengths,
                                const Tensor& neg_log_likelihood, const Tensor& log_alpha, int64_t blank,
                                bool zero_infinity) {
  return npu::ctc_loss_backward(grad, log_probs, targets, on_host(input_lengths, "input_lengths"),
                                on_host(target_lengths, "target_lengths"), neg_log_likelihood, log_alpha, blank,
                                zero_infinity);
}

}  // namespace at::native::npu
