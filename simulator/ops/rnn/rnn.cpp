// Recurrent layers over whole sequences, time first. Gates of LSTM are in the order input, forget, candidate, output,
// those of GRU reset, update, new; weights are (inputs, gates * hidden).

#include "ops/nn_util.h"

namespace acl_sim {
namespace {

using at::Tensor;

bool reversed(OpContext& c) {
  const std::string direction = c.attrs().text("direction", "UNIDIRECTIONAL");
  if (direction != "UNIDIRECTIONAL" && direction != "REDIRECTIONAL") refuse("direction " + direction);
  return direction == "REDIRECTIONAL";
}

// 1 where a step counts: (T, B, 1) from lengths (B), or a mask (T, B, H) as it is; undefined where all steps do.
Tensor steps_of(const Tensor& given, int64_t steps) {
  if (!given.defined() || given.numel() == 0 || given.dim() == 0) return {};
  if (given.dim() > 1) return given.to(at::kFloat);
  return (at::arange(steps).unsqueeze(1) < given.to(at::kLong).unsqueeze(0)).to(at::kFloat).unsqueeze(2);
}

int64_t step_at(int64_t k, int64_t steps, bool backwards) { return backwards ? steps - 1 - k : k; }

// x, w_ih, w_hh, bias (may be undefined), lengths, h0, c0 -> outputs from 0 on: y, h, c, i, j, f, o, tanhc
void lstm(OpContext& c, const Tensor& x, const Tensor& w_ih, const Tensor& w_hh, const Tensor& bias,
          const Tensor& lengths, Tensor h, Tensor cell) {
  const int64_t steps = x.size(0);
  const bool backwards = reversed(c);
  const Tensor counts = steps_of(lengths, steps);
  Tensor from_input = at::matmul(x, w_ih);
  if (bias.defined()) from_input = from_input + bias;
  std::vector<Tensor> out;
  for (size_t i = 0; i < c.num_outputs(); ++i) out.push_back(c.out(i));
  for (int64_t k = 0; k < steps; ++k) {
    const int64_t t = step_at(k, steps, backwards);
    const auto gates = (from_input[t] + at::mm(h, w_hh)).chunk(4, 1);
    const Tensor i = gates[0].sigmoid(), f = gates[1].sigmoid(), j = gates[2].tanh(), o = gates[3].sigmoid();
    Tensor next = f * cell + i * j;
    const Tensor squashed = next.tanh();
    Tensor hidden = o * squashed, y = hidden;
    if (counts.defined()) {
      y = hidden * counts[t];
      hidden = at::where(counts[t] > 0, hidden, h);
      next = at::where(counts[t] > 0, next, cell);
    }
    h = hidden, cell = next;
    const Tensor values[] = {y, h, cell, i, j, f, o, squashed};
    for (size_t n = 0; n < out.size(); ++n) out[n][t].copy_(values[n]);
  }
}

Tensor state(const Tensor& t) { return widen(t.dim() == 3 ? t[0] : t); }

// x, w (I + H, 4H), b, seq_length, init_h, init_c
void dynamic_rnn(OpContext& c) {
  const Tensor x = widen(c.in(0)), w = widen(c.in(1));
  const int64_t inputs = x.size(2);
  lstm(c, x, w.narrow(0, 0, inputs), w.narrow(0, inputs, w.size(0) - inputs), widen(optional_in(c, 2)),
       optional_in(c, 3), state(c.in(4)), state(c.in(5)));
}
// What each of the operators has beside these.
std::vector<std::string> rnn_attrs(std::initializer_list<const char*> more) {
  std::vector<std::string> names = {"direction:str", "cell_depth:int",  "keep_prob:float", "cell_clip:float",
                                    "num_proj:int",  "time_major:bool", "gate_order:str"};
  names.insert(names.end(), more.begin(), more.end());
  return names;
}
const DtypeSet kMask = kFloatTypes | kIntTypes;
SIM_OP(DynamicRNN)
    .inputs(6)
    .outputs(8)
    .dtypes({kFloatTypes, kFloatTypes, kFloatTypes, kMask, kFloatTypes, kFloatTypes})
    .attrs(rnn_attrs({"cell_type:str", "use_peephole:bool", "activation:str", "forget_bias:float", "is_training:bool"}))
    .on_cube()
    .run(dynamic_rnn);

// x, w_ih, w_hh, b, seq_length, init_h, init_c
void dynamic_rnn_v2(OpContext& c) {
  lstm(c, widen(c.in(0)), widen(c.in(1)), widen(c.in(2)), widen(optional_in(c, 3)), optional_in(c, 4), state(c.in(5)),
       state(c.in(6)));
}
SIM_OP(DynamicRNNV2)
    .inputs(7)
    .outputs(8)
    .dtypes({kFloatTypes, kFloatTypes, kFloatTypes, kFloatTypes, kMask, kFloatTypes, kFloatTypes})
    .attrs(rnn_attrs({"cell_type:str", "use_peephole:bool", "activation:str", "recurrent_activation:str",
                      "forget_bias:float", "stateful:bool", "merge_mode:str", "is_training:bool"}))
    .on_cube()
    .run(dynamic_rnn_v2);

struct LstmGrads {
  Tensor dx, dw_ih, dw_hh, db, dh, dc;
};

// dy, dh, dc are (T, B, H): the gradients of all steps' outputs.
LstmGrads lstm_grad(const Tensor& x, const Tensor& w_ih, const Tensor& w_hh, const Tensor& h0, const Tensor& c0,
                    const Tensor& h, const Tensor& cells, const Tensor& dy, const Tensor& dh_all, const Tensor& dc_all,
                    const Tensor& i, const Tensor& j, const Tensor& f, const Tensor& o, const Tensor& squashed,
                    const Tensor& counts, bool backwards) {
  const int64_t steps = x.size(0);
  Tensor dh = at::zeros_like(h0), dc = at::zeros_like(c0);
  const Tensor dgates = at::empty({steps, x.size(1), 4 * h0.size(1)}, x.options());
  const Tensor before_h = at::empty_like(h);
  for (int64_t k = steps - 1; k >= 0; --k) {
    const int64_t t = step_at(k, steps, backwards);
    const Tensor h_before = k == 0 ? h0 : h[step_at(k - 1, steps, backwards)];
    const Tensor c_before = k == 0 ? c0 : cells[step_at(k - 1, steps, backwards)];
    before_h[t].copy_(h_before);
    dh = dh + dh_all[t];
    dc = dc + dc_all[t];
    Tensor own_dh = dh, own_dc = dc, past_dh, past_dc;
    if (counts.defined()) {
      // A step that does not count hands its state's gradient on.
      const Tensor is_counted = counts[t] > 0;
      past_dh = at::where(is_counted, 0, dh), past_dc = at::where(is_counted, 0, dc);
      own_dh = at::where(is_counted, dh, 0) + dy[t] * counts[t], own_dc = at::where(is_counted, dc, 0);
    } else {
      own_dh = dh + dy[t];
    }
    own_dc = own_dc + own_dh * o[t] * (1 - squashed[t] * squashed[t]);
    const Tensor di = own_dc * j[t] * i[t] * (1 - i[t]), df = own_dc * c_before * f[t] * (1 - f[t]);
    const Tensor dj = own_dc * i[t] * (1 - j[t] * j[t]), d_o = own_dh * squashed[t] * o[t] * (1 - o[t]);
    dgates[t].copy_(at::cat({di, df, dj, d_o}, 1));
    dh = at::mm(dgates[t], w_hh.t());
    dc = own_dc * f[t];
    if (counts.defined()) dh = dh + past_dh, dc = dc + past_dc;
  }
  const Tensor flat = dgates.reshape({-1, dgates.size(2)});
  return {at::matmul(dgates, w_ih.t()),
          at::mm(x.reshape({-1, x.size(2)}).t(), flat),
          at::mm(before_h.reshape({-1, before_h.size(2)}).t(), flat),
          flat.sum(0),
          dh,
          dc};
}

// x, w, b, y, init_h, init_c, h, c, dy, dh, dc, i, j, f, o, tanhc, seq_length -> dw, db, dx, dh_prev, dc_prev
void dynamic_rnn_grad(OpContext& c) {
  const auto in = [&](size_t k) { return widen(c.in(k)); };
  const Tensor x = in(0), w = in(1);
  const int64_t inputs = x.size(2);
  const LstmGrads g = lstm_grad(x, w.narrow(0, 0, inputs), w.narrow(0, inputs, w.size(0) - inputs), state(c.in(4)),
                                state(c.in(5)), in(6), in(7), in(8), in(9), in(10), in(11), in(12), in(13), in(14),
                                in(15), steps_of(optional_in(c, 16), x.size(0)), reversed(c));
  c.out(0).copy_(at::cat({g.dw_ih, g.dw_hh}, 0));
  c.out(1).copy_(g.db);
  c.out(2).copy_(g.dx);
  c.out(3).copy_(g.dh.reshape(c.out(3).sizes()));
  c.out(4).copy_(g.dc.reshape(c.out(4).sizes()));
}
SIM_OP(DynamicRNNGrad)
    .inputs(16, 17)
    .outputs(5)
    .dtypes(kMask)
    .attrs(rnn_attrs({"cell_type:str", "use_peephole:bool", "forget_bias:float"}))
    .on_cube()
    .run(dynamic_rnn_grad);

// x, w_ih, w_hh, y, init_h, init_c, h, c, dy, dh, dc, i, j, f, o, tanhc -> dw_ih, dw_hh, db, dx, dh_prev, dc_prev
void dynamic_rnn_v2_grad(OpContext& c) {
  const auto in = [&](size_t k) { return widen(c.in(k)); };
  const Tensor x = in(0);
  const LstmGrads g = lstm_grad(x, in(1), in(2), state(c.in(4)), state(c.in(5)), in(6), in(7), in(8), in(9), in(10),
                                in(11), in(12), in(13), in(14), in(15), {}, reversed(c));
  const Tensor all[] = {g.dw_ih, g.dw_hh, g.db, g.dx, g.dh, g.dc};
  for (size_t k = 0; k < 6; ++k) c.out(k).copy_(all[k].reshape(c.out(k).sizes()));
}
SIM_OP(DynamicRNNV2Grad)
    .inputs(16)
    .outputs(6)
    .dtypes(kFloatTypes)
    .attrs(rnn_attrs({"cell_type:str", "use_peephole:bool", "activation:str", "recurrent_activation:str",
                      "stateful:bool", "merge_mode:str"}))
    .on_cube()
    .run(dynamic_rnn_v2_grad);

// x, w_ih, w_hh, b_ih, b_hh, seq_length, init_h -> y, h, update, reset, new, hidden_new
void dynamic_gru_v2(OpContext& c) {
  const Tensor x = widen(c.in(0)), w_hh = widen(c.in(2));
  const Tensor b_ih = widen(optional_in(c, 3)), b_hh = widen(optional_in(c, 4));
  const int64_t steps = x.size(0);
  Tensor from_input = at::matmul(x, widen(c.in(1)));
  if (b_ih.defined()) from_input = from_input + b_ih;
  const Tensor counts = steps_of(optional_in(c, 5), steps);
  Tensor h = state(c.in(6));
  std::vector<Tensor> out;
  for (size_t i = 0; i < c.num_outputs(); ++i) out.push_back(c.out(i));
  for (int64_t t = 0; t < steps; ++t) {
    Tensor from_hidden = at::mm(h, w_hh);
    if (b_hh.defined()) from_hidden = from_hidden + b_hh;
    const auto a = from_input[t].chunk(3, 1), b = from_hidden.chunk(3, 1);
    const Tensor reset = (a[0] + b[0]).sigmoid(), update = (a[1] + b[1]).sigmoid();
    const Tensor fresh = (a[2] + reset * b[2]).tanh();
    Tensor next = fresh + update * (h - fresh), y = next;
    if (counts.defined()) {
      y = next * counts[t];
      next = at::where(counts[t] > 0, next, h);
    }
    h = next;
    const Tensor values[] = {y, h, update, reset, fresh, b[2]};
    for (size_t n = 0; n < out.size(); ++n) out[n][t].copy_(values[n]);
  }
}
SIM_OP(DynamicGRUV2)
    .inputs(7)
    .outputs(6)
    .dtypes({kFloatTypes, kFloatTypes, kFloatTypes, kFloatTypes, kFloatTypes, kMask, kFloatTypes})
    .attrs(rnn_attrs({"activation:str", "reset_after:bool", "is_training:bool"}))
    .on_cube()
    .run(dynamic_gru_v2);

// x, w_ih, w_hh, y, init_h, h, dy, dh, update, reset, new, hidden_new -> dw_ih, dw_hh, db_ih, db_hh, dx, dh_prev
void dynamic_gru_v2_grad(OpContext& c) {
  const auto in = [&](size_t k) { return widen(c.in(k)); };
  const Tensor x = in(0), w_ih = in(1), w_hh = in(2), h0 = state(c.in(4)), h = in(5), dy = in(6), dh_all = in(7);
  const Tensor update = in(8), reset = in(9), fresh = in(10), hidden = in(11);
  const int64_t steps = x.size(0);
  Tensor dh = at::zeros_like(h0);
  const Tensor dinput = at::empty({steps, x.size(1), 3 * h0.size(1)}, x.options()), dhidden = at::empty_like(dinput);
  const Tensor before = at::empty_like(h);
  for (int64_t t = steps - 1; t >= 0; --t) {
    const Tensor h_before = t == 0 ? h0 : h[t - 1];
    before[t].copy_(h_before);
    dh = dh + dy[t] + dh_all[t];
    const Tensor dupdate = dh * (h_before - fresh[t]) * update[t] * (1 - update[t]);
    const Tensor dfresh = dh * (1 - update[t]) * (1 - fresh[t] * fresh[t]);
    const Tensor dreset = dfresh * hidden[t] * reset[t] * (1 - reset[t]);
    dinput[t].copy_(at::cat({dreset, dupdate, dfresh}, 1));
    dhidden[t].copy_(at::cat({dreset, dupdate, dfresh * reset[t]}, 1));
    dh = dh * update[t] + at::mm(dhidden[t], w_hh.t());
  }
  const Tensor flat_input = dinput.reshape({-1, dinput.size(2)}), flat_hidden = dhidden.reshape({-1, dhidden.size(2)});
  c.out(0).copy_(at::mm(x.reshape({-1, x.size(2)}).t(), flat_input));
  c.out(1).copy_(at::mm(before.reshape({-1, before.size(2)}).t(), flat_hidden));
  c.out(2).copy_(flat_input.sum(0));
  c.out(3).copy_(flat_hidden.sum(0));
  c.out(4).copy_(at::matmul(dinput, w_ih.t()));
  c.out(5).copy_(dh.reshape(c.out(5).sizes()));
}
SIM_OP(DynamicGRUV2Grad)
    .inputs(12)
    .outputs(6)
    .dtypes(kFloatTypes)
    .attrs(rnn_attrs({"reset_after:bool"}))
    .on_cube()
    .run(dynamic_gru_v2_grad);

}  // namespace
}  // namespace acl_sim
