// npu operators for whole recurrent layers. Time comes first; gates are in upstream's order.

#include <ATen/native/npu/frame/command/DeviceOf.h>
#include <ATen/native/npu/frame/command/OpCommand.h>
#include <ATen/native/npu/frame/inference/Dtype.h>
#include <ATen/native/npu/frame/inference/NewLike.h>
#include <ATen/ops/zeros_like.h>
#include <NPUCustomFunctions.h>

#include <tuple>

namespace at::native::npu {
namespace {

// The device's layer is one layer in one direction; everything else is made of such by the caller.
void check_layer(const char* name, const Tensor& input, int64_t num_layers, bool bidirectional, bool batch_first) {
  TORCH_CHECK(input.dim() == 3, name, ": input of shape (time, batch, features) expected, got ", input.sizes());
  check_dtype(input.scalar_type(), kDtypeFloat, name);
  TORCH_CHECK_NOT_IMPLEMENTED(num_layers == 1 && !bidirectional && !batch_first, name,
                              " is one layer in one direction, time first; got num_layers=", num_layers,
                              ", bidirectional=", bidirectional, ", batch_first=", batch_first);
}

void check_sizes(const char* name, const char* what, const Tensor& t, int64_t rows, int64_t columns) {
  TORCH_CHECK(t.dim() == 2 && t.size(0) == rows && t.size(1) == columns, name, ": ", what, " of shape (", rows, ", ",
              columns, ") expected, got ", t.sizes());
}

// (batch, hidden), with a leading 1 or without.
void check_state(const char* name, const Tensor& t, int64_t batch, int64_t hidden) {
  TORCH_CHECK((t.dim() == 2 || (t.dim() == 3 && t.size(0) == 1)) && t.size(-2) == batch && t.size(-1) == hidden, name,
              ": a state of shape (1, ", batch, ", ", hidden, ") expected, got ", t.sizes());
}

Tensor or_zeros(const std::optional<Tensor>& grad, const Tensor& like) {
  return grad.has_value() && grad->defined() ? *grad : at::zeros_like(like);
}

// No sequence, no gradient: true, and zeros, if there is nothing to go through.
bool without_steps(const Tensor& input, TensorList grads) {
  if (input.numel() > 0) return false;
  for (const Tensor& grad : grads) grad.zero_();
  return true;
}

// The attributes that forward and gradient share; CANN's types differ in the others.
void lstm_attrs(OpCommand& cmd, bool reverse) {
  cmd.Attr("cell_type", "LSTM").Attr("direction", reverse ? "REDIRECTIONAL" : "UNIDIRECTIONAL");
  cmd.Attr("cell_depth", 1).Attr("use_peephole", false).Attr("keep_prob", 1.0).Attr("cell_clip", -1.0);
  cmd.Attr("num_proj", 0).Attr("time_major", true).Attr("gate_order", "ifjo");
}

void forward_attrs(OpCommand& cmd, bool train) { cmd.Attr("activation", "tanh").Attr("is_training", train); }

void gru_attrs(OpCommand& cmd) {
  cmd.Attr("direction", "UNIDIRECTIONAL").Attr("cell_depth", 1).Attr("keep_prob", 1.0).Attr("cell_clip", -1.0);
  cmd.Attr("num_proj", 0).Attr("time_major", true).Attr("gate_order", "rzh").Attr("reset_after", true);
}

using Eight = std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor>;

}  // namespace

Eight npu_lstm(const Tensor& input, const Tensor& weight, const Tensor& bias, const Tensor& seqMask, const Tensor& h,
               const Tensor& c, bool has_biases, int64_t num_layers, double /*dropout: between layers*/, bool train,
               bool bidirectional, bool batch_first, bool flagSeq, bool direction) {
  DeviceOf guard(input);
  check_layer("npu_lstm", input, num_layers, bidirectional, batch_first);
  TORCH_CHECK(weight.dim() == 2 && weight.size(1) % 4 == 0,
              "npu_lstm: weight of shape (features + hidden, 4 * hidden) "
              "expected, got ",
              weight.sizes());
  const int64_t steps = input.size(0), batch = input.size(1), hidden = weight.size(1) / 4;
  check_sizes("npu_lstm", "weight", weight, input.size(2) + hidden, 4 * hidden);
  check_state("npu_lstm", h, batch, hidden);
  check_state("npu_lstm", c, batch, hidden);
  const auto fresh = [&] { return new_like(input, {steps, batch, hidden}); };
  Eight out{fresh(), fresh(), fresh(), fresh(), fresh(), fresh(), fresh(), fresh()};
  if (input.is_meta() || std::get<0>(out).numel() == 0) return out;
  OpCommand cmd;
  cmd.Name("DynamicRNN").Input(input).Input(weight);
  // CANN's operator has a bias even where the layer has none.
  cmd.Input(has_biases ? bias : at::zeros({weight.size(1)}, weight.options()));
  flagSeq ? cmd.Input(seqMask) : cmd.Input();
  cmd.Input(h).Input(c);
  std::apply([&](auto&... t) { (cmd.Output(t), ...); }, out);
  lstm_attrs(cmd, direction);
  forward_attrs(cmd, train);
  cmd.Attr("forget_bias", 0.0).Run();
  return out;
}

// Steps that `seq_mask` (lengths or a mask, see npu_lstm) leaves out hand the state's gradient on.
std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> npu_lstm_masked_backward(
    const std::optional<Tensor>& grady, const std::optional<Tensor>& gradh, const std::optional<Tensor>& gradc,
    const Tensor& input, const Tensor& weight, const Tensor& bias, const Tensor& hx, const Tensor& cx,
    const Tensor& y_output, const Tensor& h_output, const Tensor& c_output, const Tensor& i, const Tensor& j,
    const Tensor& f, const Tensor& o, const Tensor& tanhc, const std::optional<Tensor>& seq_mask) {
  DeviceOf guard(input);
  const Tensor dx = new_like(input), dw = new_like(weight), db = new_like(weight, {weight.size(1)});
  const Tensor dh = new_like(hx), dc = new_like(cx);
  if (input.is_meta() || without_steps(input, {dw, db, dh, dc})) return {dx, dw, db, dh, dc};
  OpCommand cmd;
  cmd.Name("DynamicRNNGrad").Input(input).Input(weight).Input(bias).Input(y_output).Input(hx).Input(cx);
  cmd.Input(h_output).Input(c_output).Input(or_zeros(grady, y_output)).Input(or_zeros(gradh, h_output));
  cmd.Input(or_zeros(gradc, c_output)).Input(i).Input(j).Input(f).Input(o).Input(tanhc).InputOptional(seq_mask);
  cmd.Output(dw).Output(db).Output(dx).Output(dh).Output(dc);
  lstm_attrs(cmd, false);
  cmd.Attr("forget_bias", 0.0).Run();
  return {dx, dw, db, dh, dc};
}

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> npu_lstm_backward(
    const std::optional<Tensor>& grady, const std::optional<Tensor>& gradh, const std::optional<Tensor>& gradc,
    const Tensor& input, const Tensor& weight, const Tensor& bias, const Tensor& hx, const Tensor& cx,
    const Tensor& y_output, const Tensor& h_output, const Tensor& c_output, const Tensor& i, const Tensor& j,
    const Tensor& f, const Tensor& o, const Tensor& tanhc) {
  return npu_lstm_masked_backward(grady, gradh, gradc, input, weight, bias, hx, cx, y_output, h_output, c_output, i, j,
                                  f, o, tanhc, std::nullopt);
}

Eight npu_lstm_cell(const Tensor& input, const Tensor& w_ih, const Tensor& w_hh, const Tensor& h, const Tensor& c,
                    const std::optional<Tensor>& bias) {
  DeviceOf guard(input);
  TORCH_CHECK(input.dim() == 2 && w_hh.dim() == 2,
              "npu_lstm_cell: input of shape (batch, features) and w_hh of shape "
              "(hidden, 4 * hidden) expected, got ",
              input.sizes(), " and ", w_hh.sizes());
  const int64_t batch = input.size(0), hidden = w_hh.size(0);
  check_sizes("npu_lstm_cell", "w_ih", w_ih, input.size(1), 4 * hidden);
  check_sizes("npu_lstm_cell", "w_hh", w_hh, hidden, 4 * hidden);
  check_state("npu_lstm_cell", h, batch, hidden);
  check_state("npu_lstm_cell", c, batch, hidden);
  const auto fresh = [&] { return new_like(input, {1, batch, hidden}); };
  Eight out{fresh(), fresh(), fresh(), fresh(), fresh(), fresh(), fresh(), fresh()};
  if (!input.is_meta() && std::get<0>(out).numel() > 0) {
    OpCommand cmd;
    cmd.Name("DynamicRNNV2").Input(input.unsqueeze(0)).Input(w_ih).Input(w_hh).InputOptional(bias).Input();
    cmd.Input(h).Input(c);
    std::apply([&](auto&... t) { (cmd.Output(t), ...); }, out);
    lstm_attrs(cmd, false);
    forward_attrs(cmd, true);
    cmd.Attr("forget_bias", 0.0).Run();
  }
  // The state is that of the one step.
  std::get<1>(out) = std::get<1>(out).squeeze(0);
  std::get<2>(out) = std::get<2>(out).squeeze(0);
  return out;
}

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor, Tensor> npu_lstm_cell_backward(
    const std::optional<Tensor>& grady, const std::optional<Tensor>& gradh, const std::optional<Tensor>& gradc,
    const Tensor& input, const Tensor& w_ih, const Tensor& w_hh, const Tensor& h, const Tensor& c,
    const Tensor& y_output, const Tensor& h_output, const Tensor& c_output, const Tensor& i, const Tensor& j,
    const Tensor& f, const Tensor& o, const Tensor& tanhc) {
  DeviceOf guard(input);
  const Tensor dx = new_like(input), dw_ih = new_like(w_ih), dw_hh = new_like(w_hh);
  const Tensor db = new_like(w_ih, {w_ih.size(1)}), dh = new_like(h), dc = new_like(c);
  if (!input.is_meta() && !without_steps(input, {dw_ih, dw_hh, db, dh, dc})) {
    const auto step = [&](const Tensor& t) { return t.view(y_output.sizes()); };
    OpCommand cmd;
    cmd.Name("DynamicRNNV2Grad").Input(input.unsqueeze(0)).Input(w_ih).Input(w_hh).Input(y_output).Input(h).Input(c);
    cmd.Input(step(h_output.contiguous())).Input(step(c_output.contiguous())).Input(or_zeros(grady, y_output));
    cmd.Input(step(or_zeros(gradh, h_output).contiguous())).Input(step(or_zeros(gradc, c_output).contiguous()));
    cmd.Input(i).Input(j).Input(f).Input(o).Input(tanhc);
    cmd.Output(dw_ih).Output(dw_hh).Output(db).OutputAs(dx, {1, dx.size(0), dx.size(1)}).Output(dh).Output(dc);
    lstm_attrs(cmd, false);
    cmd.Attr("activation", "tanh").Run();
  }
  return {dx, dw_ih, dw_hh, db, dh, dc};
}

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor, Tensor> npu_gru(
    const Tensor& input, const Tensor& hx, const Tensor& weight_input, const Tensor& weight_hidden,
    const Tensor& bias_input, const Tensor& bias_hidden, const Tensor& /*seq_length: as on the device, not looked at*/,
    bool has_biases, int64_t num_layers, double /*dropout: between layers*/, bool train, bool bidirectional,
    bool batch_first) {
  DeviceOf guard(input);
  check_layer("npu_gru", input, num_layers, bidirectional, batch_first);
  TORCH_CHECK(weight_hidden.dim() == 2, "npu_gru: weight_hidden of shape (hidden, 3 * hidden) expected, got ",
              weight_hidden.sizes());
  const int64_t steps = input.size(0), batch = input.size(1), hidden = weight_hidden.size(0);
  check_sizes("npu_gru", "weight_input", weight_input, input.size(2), 3 * hidden);
  check_sizes("npu_gru", "weight_hidden", weight_hidden, hidden, 3 * hidden);
  check_state("npu_gru", hx, batch, hidden);
  const auto fresh = [&] { return new_like(input, {steps, batch, hidden}); };
  std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor, Tensor> out{fresh(), fresh(), fresh(), fresh(), fresh(), fresh()};
  if (input.is_meta() || std::get<0>(out).numel() == 0) return out;
  OpCommand cmd;
  cmd.Name("DynamicGRUV2").Input(input).Input(weight_input).Input(weight_hidden);
  has_biases ? cmd.Input(bias_input).Input(bias_hidden) : cmd.Input().Input();
  cmd.Input().Input(hx);
  std::apply([&](auto&... t) { (cmd.Output(t), ...); }, out);
  gru_attrs(cmd);
  forward_attrs(cmd, train);
  cmd.Run();
  return out;
}

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor, Tensor> npu_gru_backward(
    const std::optional<Tensor>& grady, const std::optional<Tensor>& gradh, const Tensor& input,
    const Tensor& weight_input, const Tensor& weight_hidden, const Tensor& /*bias_input*/,
    const Tensor& /*bias_hidden*/, const Tensor& /*seq_length*/, const Tensor& hx, const Tensor& y_output,
    const Tensor& h_output, const Tensor& output_updata, const Tensor& output_reset, const Tensor& output_new,
    const Tensor& hidden_new) {
  DeviceOf guard(input);
  const Tensor dx = new_like(input), dh = new_like(hx), dw_ih = new_like(weight_input);
  const Tensor dw_hh = new_like(weight_hidden), db_ih = new_like(weight_input, {weight_input.size(1)});
  const Tensor db_hh = new_like(weight_hidden, {weight_hidden.size(1)});
  if (!input.is_meta() && !without_steps(input, {dh, dw_ih, dw_hh, db_ih, db_hh})) {
    OpCommand cmd;
    cmd.Name("DynamicGRUV2Grad").Input(input).Input(weight_input).Input(weight_hidden).Input(y_output).Input(hx);
    cmd.Input(h_output).Input(or_zeros(grady, y_output)).Input(or_zeros(gradh, h_output)).Input(output_updata);
    cmd.Input(output_reset).Input(output_new).Input(hidden_new);
    cmd.Output(dw_ih).Output(dw_hh).Output(db_ih).Output(db_hh).Output(dx).Output(dh);
    gru_attrs(cmd);
    cmd.Run();
  }
  return {dx, dh, dw_ih, dw_hh, db_ih, db_hh};
}

}  // namespace at::native::npu
