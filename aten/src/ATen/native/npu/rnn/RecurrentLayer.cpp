// See RecurrentLayer.h.

#include <ATen/native/npu/rnn/RecurrentLayer.h>

#include <ATen/native/npu/frame/command/DeviceOf.h>
#include <ATen/native/npu/frame/command/OpCommand.h>
#include <ATen/native/npu/frame/inference/NewLike.h>
#include <ATen/native/npu/frame/inference/Wide.h>
#include <ATen/native/npu/frame/registration/CustomAutograd.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tanh.h>
#include <torch/csrc/autograd/autograd.h>

namespace at::native::npu {
namespace {

const char* name_of(RecurrentCell cell) {
  switch (cell) {
    case RecurrentCell::Lstm:
      return "lstm";
    case RecurrentCell::Gru:
      return "gru";
    case RecurrentCell::Tanh:
      return "tanh";
    case RecurrentCell::Relu:
      break;
  }
  return "relu";
}

void input_sizes(OpCommand& cmd, IntArrayRef sizes) { sizes.empty() ? cmd.Input() : cmd.Input(sizes); }
void output(OpCommand& cmd, const Tensor& t) { t.defined() ? cmd.Output(t) : cmd.Output(); }

// y, h, c, and what the gradient needs again: the gates' values and an LSTM's cells, in the dtype that is computed in.
struct Computed {
  Tensor y, h, c, gates, cells;
};

Computed compute(RecurrentCell cell, const Tensor& x, IntArrayRef sizes, const Tensor& h0, const Tensor& c0,
                 const RecurrentWeights& w, bool reverse, bool training) {
  const DeviceOf guard(x);
  const bool lstm = cell == RecurrentCell::Lstm;
  const ScalarType wide = x.scalar_type() == kDouble ? kDouble : kFloat;
  const auto rows = [&](int64_t width, ScalarType dtype) {
    DimVector dims(x.sizes());
    dims.back() = width;
    return new_like(x, dims, dtype);
  };
  const int64_t hidden = h0.size(1);
  Computed result{rows(hidden, x.scalar_type()), new_like(h0), lstm ? new_like(c0) : Tensor(), {}, {}};
  if (training && (lstm || cell == RecurrentCell::Gru)) result.gates = rows(4 * hidden, wide);
  if (training && lstm) result.cells = rows(hidden, wide);
  OpCommand cmd;
  cmd.Name("RecurrentLayer").Input(x);
  input_sizes(cmd, sizes);
  cmd.Input(h0).Input(c0).Input(w.w_ih).Input(w.w_hh).Input(w.b_ih).Input(w.b_hh);
  for (const Tensor& t : {result.y, result.h, result.c, result.gates, result.cells}) output(cmd, t);
  cmd.Attr("cell", name_of(cell)).Attr("reverse", reverse).Attr("training", training).Run();
  return result;
}

// The new state, and an LSTM's new cell, of one step.
std::pair<Tensor, Tensor> step(RecurrentCell cell, const Tensor& from_input, const Tensor& from_hidden, const Tensor& h,
                               const Tensor& c) {
  if (cell == RecurrentCell::Tanh) return {at::tanh(from_input + from_hidden), Tensor()};
  if (cell == RecurrentCell::Relu) return {at::relu(from_input + from_hidden), Tensor()};
  if (cell == RecurrentCell::Gru) {
    const auto a = from_input.chunk(3, 1), b = from_hidden.chunk(3, 1);
    const Tensor update = at::sigmoid(a[1] + b[1]), fresh = at::tanh(a[2] + at::sigmoid(a[0] + b[0]) * b[2]);
    return {fresh + update * (h - fresh), Tensor()};
  }
  const auto gates = (from_input + from_hidden).chunk(4, 1);
  const Tensor next = at::sigmoid(gates[1]) * c + at::sigmoid(gates[0]) * at::tanh(gates[2]);
  return {at::sigmoid(gates[3]) * at::tanh(next), next};
}

// The same layer made of differentiable operators, for gradients of gradients.
variable_list composed(RecurrentCell cell, const Tensor& x, IntArrayRef sizes, Tensor h, Tensor c,
                       const RecurrentWeights& w, bool reverse) {
  const bool packed = !sizes.empty();
  const int64_t count = packed ? static_cast<int64_t>(sizes.size()) : x.size(0);
  std::vector<Tensor> inputs = packed ? x.split_with_sizes(sizes) : x.unbind(0), results(inputs.size());
  for (int64_t k = 0; k < count; ++k) {
    const int64_t t = reverse ? count - 1 - k : k, rows = inputs[t].size(0), others = h.size(0) - rows;
    const Tensor now = h.narrow(0, 0, rows), cell_now = c.defined() ? c.narrow(0, 0, rows) : Tensor();
    const auto [next, next_cell] =
        step(cell, at::linear(inputs[t], w.w_ih, given(w.b_ih)), at::linear(now, w.w_hh, given(w.b_hh)), now, cell_now);
    results[t] = next;
    // Sequences that have ended, or not begun, keep their state.
    h = others == 0 ? next : at::cat({next, h.narrow(0, rows, others)});
    if (c.defined()) c = others == 0 ? next_cell : at::cat({next_cell, c.narrow(0, rows, others)});
  }
  variable_list out{packed ? at::cat(results) : at::stack(results), h};
  if (c.defined()) out.push_back(c);
  return out;
}

enum Saved : size_t { kX, kH0, kC0, kWeightInput, kWeightHidden, kBiasInput, kBiasHidden, kY, kGates, kCells };

struct Layer : Function<Layer> {
  static variable_list forward(AutogradContext* ctx, const Tensor& x, const Tensor& h0, const std::optional<Tensor>& c,
                               const Tensor& w_ih, const Tensor& w_hh, const std::optional<Tensor>& bias_input,
                               const std::optional<Tensor>& bias_hidden, int64_t cell, std::vector<int64_t> sizes,
                               bool reverse) {
    const at::AutoDispatchBelowADInplaceOrView below;
    const Tensor c0 = value_of(c), b_ih = value_of(bias_input), b_hh = value_of(bias_hidden);
    const Computed out =
        compute(static_cast<RecurrentCell>(cell), x, sizes, h0, c0, {w_ih, w_hh, b_ih, b_hh}, reverse, true);
    ctx->save_for_backward({x, h0, c0, w_ih, w_hh, b_ih, b_hh, out.y, out.gates, out.cells});
    ctx->saved_data["cell"] = cell;
    ctx->saved_data["sizes"] = std::move(sizes);
    ctx->saved_data["reverse"] = reverse;
    ctx->set_materialize_grads(false);
    variable_list results{out.y, out.h};
    if (out.c.defined()) results.push_back(out.c);
    return results;
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const NoAutocast no_autocast;
    variable_list result = GradMode::is_enabled() ? differentiable(ctx, grads) : fused(ctx, grads);
    result.resize(10);
    return result;
  }

 private:
  static variable_list fused(AutogradContext* ctx, const variable_list& grads) {
    const auto s = ctx->get_saved_variables();
    const auto cell = static_cast<RecurrentCell>(ctx->saved_data["cell"].toInt());
    const DeviceOf guard(s[kX]);
    const auto like = [](const Tensor& t, bool needed = true) {
      return t.defined() && needed ? new_like(t) : Tensor();
    };
    const bool by_input = ctx->needs_input_grad(0), biases = s[kBiasInput].defined();
    const variable_list out{like(s[kX], by_input),  like(s[kH0]),        like(s[kC0]),        like(s[kWeightInput]),
                            like(s[kWeightHidden]), like(s[kBiasInput]), like(s[kBiasHidden])};
    OpCommand cmd;
    cmd.Name("RecurrentLayerGrad").Input(s[kX]);
    input_sizes(cmd, ctx->saved_data["sizes"].toIntVector());
    for (const Saved i : {kH0, kC0, kWeightInput, kWeightHidden, kY, kGates, kCells}) cmd.Input(s[i]);
    cmd.Input(grads[0]).Input(grads[1]).Input(grads.size() > 2 ? grads[2] : Tensor());
    for (const Tensor& t : out) output(cmd, t);
    cmd.Attr("cell", name_of(cell)).Attr("reverse", ctx->saved_data["reverse"].toBool());
    cmd.Attr("biases", biases).Attr("input_gradient", by_input).Run();
    return out;
  }

  static variable_list differentiable(AutogradContext* ctx, const variable_list& grads) {
    const auto s = ctx->get_saved_variables();
    const variable_list outputs = composed(static_cast<RecurrentCell>(ctx->saved_data["cell"].toInt()), s[kX],
                                           ctx->saved_data["sizes"].toIntVector(), s[kH0], s[kC0],
                                           {s[kWeightInput], s[kWeightHidden], s[kBiasInput], s[kBiasHidden]},
                                           ctx->saved_data["reverse"].toBool());
    variable_list used, by_used, wanted;
    for (size_t i = 0; i < grads.size(); ++i) {
      if (grads[i].defined()) used.push_back(outputs[i]), by_used.push_back(grads[i]);
    }
    std::vector<size_t> places;
    for (size_t i = kX; i <= kBiasHidden; ++i) {
      if (s[i].defined() && s[i].requires_grad()) places.push_back(i), wanted.push_back(s[i]);
    }
    variable_list result(kBiasHidden + 1);
    if (used.empty() || wanted.empty()) return result;
    const variable_list found = torch::autograd::grad(used, wanted, by_used, true, true, true);
    for (size_t i = 0; i < places.size(); ++i) result[places[i]] = found[i];
    return result;
  }
};

}  // namespace

int64_t gates_of(RecurrentCell cell) {
  if (cell == RecurrentCell::Lstm) return 4;
  return cell == RecurrentCell::Gru ? 3 : 1;
}

RecurrentStates recurrent_layer(RecurrentCell cell, const Tensor& x, IntArrayRef sizes, const Tensor& h0,
                                const Tensor& c0, const RecurrentWeights& w, bool reverse) {
  bool recorded = false;
  for (const Tensor& t : {x, h0, c0, w.w_ih, w.w_hh, w.b_ih, w.b_hh}) recorded |= t.defined() && t.requires_grad();
  if (!recorded || !GradMode::is_enabled()) {
    const at::AutoDispatchBelowADInplaceOrView below;
    const Computed out = compute(cell, x, sizes, h0, c0, w, reverse, false);
    return {out.y, out.h, out.c};
  }
  const variable_list out = Layer::apply(x, h0, given(c0), w.w_ih, w.w_hh, given(w.b_ih), given(w.b_hh),
                                         static_cast<int64_t>(cell), sizes.vec(), reverse);
  return {out[0], out[1], out.size() > 2 ? out[2] : Tensor()};
}

}  // namespace at::native::npu
