// The cells that upstream's LSTM and GRU ask an accelerator for. Composed of element-wise operators; what the gradient
// needs again is kept in the workspace.

#include <ATen/native/npu/frame/command/DeviceOf.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/zeros_like.h>
#include <NPUNativeFunctions.h>
#include <torch/library.h>

#include <tuple>

namespace at::native::npu {
namespace {

Tensor with_bias(const Tensor& gates, const std::optional<Tensor>& bias) {
  return bias.has_value() && bias->defined() ? gates + *bias : gates;
}

// The gradient through a sigmoid with result s, and through a tanh with result t.
Tensor through_sigmoid(const Tensor& grad, const Tensor& s) { return grad * s * (1 - s); }
Tensor through_tanh(const Tensor& grad, const Tensor& t) { return grad * (1 - t * t); }

}  // namespace

// Gates in the order input, forget, cell, output.
std::tuple<Tensor, Tensor, Tensor> lstm_cell(const Tensor& input_gates, const Tensor& hidden_gates, const Tensor& cx,
                                             const std::optional<Tensor>& input_bias,
                                             const std::optional<Tensor>& hidden_bias) {
  DeviceOf guard(input_gates);
  const auto gates = (with_bias(input_gates, input_bias) + with_bias(hidden_gates, hidden_bias)).chunk(4, 1);
  const Tensor in = at::sigmoid(gates[0]), forget = at::sigmoid(gates[1]), cell = at::tanh(gates[2]);
  const Tensor out = at::sigmoid(gates[3]);
  const Tensor cy = forget * cx + in * cell;
  return {out * at::tanh(cy), cy, at::cat({in, forget, cell, out}, 1)};
}

std::tuple<Tensor, Tensor, Tensor> lstm_cell_backward(const std::optional<Tensor>& grad_hy,
                                                      const std::optional<Tensor>& grad_cy, const Tensor& cx,
                                                      const Tensor& cy, const Tensor& workspace, bool has_bias) {
  const bool from_hy = grad_hy.has_value() && grad_hy->defined(), from_cy = grad_cy.has_value() && grad_cy->defined();
  if (!from_hy && !from_cy) {
    return {};
  }
  DeviceOf guard(cx);
  const auto saved = workspace.chunk(4, 1);
  const Tensor &in = saved[0], &forget = saved[1], &cell = saved[2], &out = saved[3];
  const Tensor squashed = at::tanh(cy);
  const Tensor dhy = from_hy ? *grad_hy : at::zeros_like(cy);
  Tensor dcy = through_tanh(dhy * out, squashed);
  if (from_cy) {
    dcy = dcy + *grad_cy;
  }
  const Tensor dgates = at::cat({through_sigmoid(dcy * cell, in), through_sigmoid(dcy * cx, forget),
                                 through_tanh(dcy * in, cell), through_sigmoid(dhy * squashed, out)},
                                1);
  return {dgates, dcy * forget, has_bias ? dgates.sum(0) : Tensor()};
}

// Gates in the order reset, update, new. The workspace holds the gates' values, hx, and the hidden part of `new`.
std::tuple<Tensor, Tensor> gru_cell(const Tensor& input_gates, const Tensor& hidden_gates, const Tensor& hx,
                                    const std::optional<Tensor>& input_bias, const std::optional<Tensor>& hidden_bias) {
  DeviceOf guard(input_gates);
  const auto from_input = with_bias(input_gates, input_bias).chunk(3, 1);
  const auto from_hidden = with_bias(hidden_gates, hidden_bias).chunk(3, 1);
  const Tensor reset = at::sigmoid(from_input[0] + from_hidden[0]);
  const Tensor update = at::sigmoid(from_input[1] + from_hidden[1]);
  const Tensor fresh = at::tanh(from_input[2] + reset * from_hidden[2]);
  return {fresh + update * (hx - fresh), at::cat({reset, update, fresh, hx, from_hidden[2]}, 1)};
}

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> gru_cell_backward(const Tensor& grad_hy, const Tensor& workspace,
                                                                     bool has_bias) {
  DeviceOf guard(grad_hy);
  const auto saved = workspace.chunk(5, 1);
  const Tensor &reset = saved[0], &update = saved[1], &fresh = saved[2], &hx = saved[3], &hidden = saved[4];
  const Tensor dupdate = through_sigmoid(grad_hy * (hx - fresh), update);
  const Tensor dfresh = through_tanh(grad_hy * (1 - update), fresh);
  const Tensor dreset = through_sigmoid(dfresh * hidden, reset);
  const Tensor dinput = at::cat({dreset, dupdate, dfresh}, 1), dhidden = at::cat({dreset, dupdate, dfresh * reset}, 1);
  return {dinput, dhidden, grad_hy * update, has_bias ? dinput.sum(0) : Tensor(), has_bias ? dhidden.sum(0) : Tensor()};
}

// The shapes of a traced GRU cell; upstream has a meta function of the LSTM cell alone.
TORCH_LIBRARY_IMPL(aten, Meta, m) {
  m.impl("_thnn_fused_gru_cell", TORCH_FN(gru_cell));
  m.impl("_thnn_fused_gru_cell_backward", TORCH_FN(gru_cell_backward));
}

}  // namespace at::native::npu
