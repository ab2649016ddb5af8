// Gradients of the npu operators for recurrent layers.

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/native/npu/frame/registration/CustomAutograd.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/zeros_like.h>

namespace at::native::npu {
namespace {

struct Lstm : Function<Lstm> {
  static variable_list forward(AutogradContext* ctx, const Tensor& input, const Tensor& weight, const Tensor& bias,
                               const Tensor& seq_mask, const Tensor& h, const Tensor& c, bool has_biases,
                               int64_t num_layers, double dropout, bool train, bool bidirectional, bool batch_first,
                               bool flag_seq) {
    const at::AutoDispatchBelowADInplaceOrView below;
    const variable_list out = as_list(NPU_CUSTOM_OP(npu_lstm, "npu_lstm", "")
                                          .call(input, weight, bias, seq_mask, h, c, has_biases, num_layers, dropout,
                                                train, bidirectional, batch_first, flag_seq, false));
    variable_list saved = {input, weight, bias, h, c, flag_seq ? seq_mask : Tensor()};
    saved.insert(saved.end(), out.begin(), out.end());
    ctx->save_for_backward(std::move(saved));
    ctx->saved_data["biases"] = has_biases;
    ctx->mark_non_differentiable({out[3], out[4], out[5], out[6], out[7]});
    ctx->set_materialize_grads(false);
    return out;
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const auto s = ctx->get_saved_variables();
    const auto [dx, dw, db, dh, dc] =
        NPU_CUSTOM_OP(npu_lstm_masked_backward, "_npu_lstm_masked_backward", "")
            .call(given(grads[0]), given(grads[1]), given(grads[2]), s[0], s[1], s[2], s[3], s[4], s[6], s[7], s[8],
                  s[9], s[10], s[11], s[12], s[13], given(s[5]));
    return {dx, dw, ctx->saved_data["biases"].toBool() ? db : Tensor(), {}, dh, dc, {}, {}, {}, {}, {}, {}, {}};
  }
};

struct LstmCell : Function<LstmCell> {
  static variable_list forward(AutogradContext* ctx, const Tensor& input, const Tensor& w_ih, const Tensor& w_hh,
                               const Tensor& h, const Tensor& c, const std::optional<Tensor>& bias) {
    const at::AutoDispatchBelowADInplaceOrView below;
    const variable_list out =
        as_list(NPU_CUSTOM_OP(npu_lstm_cell, "npu_lstm_cell", "").call(input, w_ih, w_hh, h, c, bias));
    variable_list saved = {input, w_ih, w_hh, h, c};
    saved.insert(saved.end(), out.begin(), out.end());
    ctx->save_for_backward(std::move(saved));
    ctx->saved_data["bias"] = bias.has_value() && bias->defined();
    ctx->mark_non_differentiable({out[3], out[4], out[5], out[6], out[7]});
    ctx->set_materialize_grads(false);
    return out;
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const auto s = ctx->get_saved_variables();
    const auto [dx, dw_ih, dw_hh, db, dh, dc] =
        NPU_CUSTOM_OP(npu_lstm_cell_backward, "npu_lstm_cell_backward", "")
            .call(given(grads[0]), given(grads[1]), given(grads[2]), s[0], s[1], s[2], s[3], s[4], s[5], s[6], s[7],
                  s[8], s[9], s[10], s[11], s[12]);
    return {dx, dw_ih, dw_hh, dh, dc, ctx->saved_data["bias"].toBool() ? db : Tensor()};
  }
};

struct Gru : Function<Gru> {
  static variable_list forward(AutogradContext* ctx, const Tensor& input, const Tensor& hx, const Tensor& weight_input,
                               const Tensor& weight_hidden, const Tensor& bias_input, const Tensor& bias_hidden,
                               const Tensor& seq_length, bool has_biases, int64_t num_layers, double dropout,
                               bool train, bool bidirectional, bool batch_first) {
    const at::AutoDispatchBelowADInplaceOrView below;
    const variable_list out =
        as_list(NPU_CUSTOM_OP(npu_gru, "npu_gru", "")
                    .call(input, hx, weight_input, weight_hidden, bias_input, bias_hidden, seq_length, has_biases,
                          num_layers, dropout, train, bidirectional, batch_first));
    variable_list saved = {input, hx, weight_input, weight_hidden, bias_input, bias_hidden, seq_length};
    saved.insert(saved.end(), out.begin(), out.end());
    ctx->save_for_backward(std::move(saved));
    ctx->saved_data["biases"] = has_biases;
    ctx->mark_non_differentiable({out[2], out[3], out[4], out[5]});
    ctx->set_materialize_grads(false);
    return out;
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const auto s = ctx->get_saved_variables();
    const auto [dx, dh, dw_ih, dw_hh, db_ih, db_hh] =
        NPU_CUSTOM_OP(npu_gru_backward, "npu_gru_backward", "")
            .call(given(grads[0]), given(grads[1]), s[0], s[2], s[3], s[4], s[5], s[6], s[1], s[7], s[8], s[9], s[10],
                  s[11], s[12]);
    const bool biases = ctx->saved_data["biases"].toBool();
    return {dx, dh, dw_ih, dw_hh, biases ? db_ih : Tensor(), biases ? db_hh : Tensor(), {}, {}, {}, {}, {}, {}, {}};
  }
};

}  // namespace

// Backwards in time is forwards over turned sequences; the device's gradient knows one direction.
std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor> npu_lstm_autograd(
    const Tensor& input, const Tensor& weight, const Tensor& bias, const Tensor& seqMask, const Tensor& h,
    const Tensor& c, bool has_biases, int64_t num_layers, double dropout, bool train, bool bidirectional,
    bool batch_first, bool flagSeq, bool direction) {
  if (!direction) {
    return as_tuple<8>(Lstm::apply(input, weight, bias, seqMask, h, c, has_biases, num_layers, dropout, train,
                                   bidirectional, batch_first, flagSeq));
  }
  TORCH_CHECK_NOT_IMPLEMENTED(!flagSeq || seqMask.dim() > 1 || !at::GradMode::is_enabled(),
                              "npu_lstm backwards in time over sequences of several lengths has no gradient; give "
                              "seqMask as a mask of shape (time, batch, hidden)");
  const Tensor mask = flagSeq && seqMask.dim() > 1 ? seqMask.flip(0) : seqMask;
  variable_list out = Lstm::apply(input.flip(0), weight, bias, mask, h, c, has_biases, num_layers, dropout, train,
                                  bidirectional, batch_first, flagSeq);
  for (Tensor& t : out) t = t.flip(0);
  return as_tuple<8>(out);
}

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor> npu_lstm_cell_autograd(
    const Tensor& input, const Tensor& w_ih, const Tensor& w_hh, const Tensor& h, const Tensor& c,
    const std::optional<Tensor>& bias) {
  return as_tuple<8>(LstmCell::apply(input, w_ih, w_hh, h, c, bias));
}

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor, Tensor> npu_gru_autograd(
    const Tensor& input, const Tensor& hx, const Tensor& weight_input, const Tensor& weight_hidden,
    const Tensor& bias_input, const Tensor& bias_hidden, const Tensor& seq_length, bool has_biases, int64_t num_layers,
    double dropout, bool train, bool bidirectional, bool batch_first) {
  return as_tuple<6>(Gru::apply(input, hx, weight_input, weight_hidden, bias_input, bias_hidden, seq_length, has_biases,
                                num_layers, dropout, train, bidirectional, batch_first));
}

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor> npu_lstm_cell_biases(
    const Tensor& input, const Tensor& w_ih, const Tensor& w_hh, const Tensor& h, const Tensor& c,
    const std::optional<Tensor>& b_ih, const std::optional<Tensor>& b_hh) {
  const auto given = [](const std::optional<Tensor>& t) { return t.has_value() && t->defined(); };
  const std::optional<Tensor> bias = given(b_ih) && given(b_hh) ? *b_ih + *b_hh : given(b_ih) ? b_ih : b_hh;
  return NPU_CUSTOM_OP(npu_lstm_cell, "npu_lstm_cell", "").call(input, w_ih, w_hh, h, c, bias);
}

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor> npu_lstm_seq_mask(
    const Tensor& input, const Tensor& weight, const Tensor& bias, const Tensor& seq_mask, const Tensor& h,
    const Tensor& c, bool has_biases, int64_t num_layers, double dropout, bool train, bool bidirectional,
    bool batch_first, bool flag_seq, bool direction) {
  return NPU_CUSTOM_OP(npu_lstm, "npu_lstm", "")
      .call(input, weight, bias, seq_mask, h, c, has_biases, num_layers, dropout, train, bidirectional, batch_first,
            flag_seq, direction);
}

namespace {

// Which steps count, (time, batch, hidden), where batch_sizes tells how many sequences reach each step: the longest
// come first. Made on the device, so that nothing waits.
Tensor mask_of(const Tensor& batch_sizes, const Tensor& input, int64_t hidden) {
  TORCH_CHECK(batch_sizes.dim() == 1 && batch_sizes.size(0) == input.size(0) &&
                  at::isIntegralType(batch_sizes.scalar_type(), /*includeBool=*/false),
              "npu_lstm_data: batch_sizes holds an integer for each of ", input.size(0), " steps; got ",
              batch_sizes.scalar_type(), " of shape ", batch_sizes.sizes());
  const Tensor reach = batch_sizes.to(input.device()).unsqueeze(1);
  const Tensor counts = reach.gt(at::arange(input.size(1), reach.options()));
  return counts.unsqueeze(2).expand({input.size(0), input.size(1), hidden}).to(at::kHalf);
}

}  // namespace

// Where seq_mask has lengths, the gradient backwards in time needs them as a mask.
std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor> npu_lstm_data(
    const Tensor& input, const Tensor& batch_sizes, const Tensor& weight, const Tensor& bias, const Tensor& seq_mask,
    const Tensor& h, const Tensor& c, bool has_biases, int64_t num_layers, double dropout, bool train,
    bool bidirectional, bool batch_first, bool flag_seq, bool direction) {
  TORCH_CHECK(input.dim() == 3, "npu_lstm_data: padded input of shape (time, batch, features) expected, got ",
              input.sizes());
  const Tensor mask = flag_seq && seq_mask.dim() < 2 ? mask_of(batch_sizes, input, h.size(-1)) : seq_mask;
  return NPU_CUSTOM_OP(npu_lstm, "npu_lstm", "")
      .call(input, weight, bias, mask, h, c, has_biases, num_layers, dropout, train, bidirectional, batch_first,
            flag_seq, direction);
}

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> npu_lstm_data_backward(
    const std::optional<Tensor>& grady, const std::optional<Tensor>& gradh, const std::optional<Tensor>& gradc,
    const Tensor& input, const Tensor& batch_sizes, const Tensor& weight, const Tensor& bias, const Tensor& init_h,
    const Tensor& init_c, const Tensor& y, const Tensor& h, const Tensor& c, const Tensor& i, const Tensor& j,
    const Tensor& f, const Tensor& o, const Tensor& tanhc, bool flag_direction) {
  TORCH_CHECK(input.dim() == 3, "npu_lstm_data_backward: padded input of shape (time, batch, features) expected, got ",
              input.sizes());
  const auto turned = [&](const Tensor& t) { return flag_direction ? t.flip(0) : t; };
  const auto turned_grad = [&](const std::optional<Tensor>& t) {
    return t.has_value() && t->defined() ? std::optional<Tensor>(turned(*t)) : std::nullopt;
  };
  const auto [dx, dw, db, dh, dc] =
      NPU_CUSTOM_OP(npu_lstm_masked_backward, "_npu_lstm_masked_backward", "")
          .call(turned_grad(grady), turned_grad(gradh), turned_grad(gradc), turned(input), weight, bias, init_h, init_c,
                turned(y), turned(h), turned(c), turned(i), turned(j), turned(f), turned(o), turned(tanhc),
                turned(mask_of(batch_sizes, input, y.size(2))));
  return {turned(dx), dw, db, dh, dc};
}

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor> npu_lstm_cell_backward_biases(
    const std::optional<Tensor>& grady, const std::optional<Tensor>& gradh, const std::optional<Tensor>& gradc,
    const Tensor& input, const Tensor& w_ih, const Tensor& w_hh, const Tensor& h, const Tensor& c,
    const Tensor& y_output, const Tensor& h_output, const Tensor& c_output, const Tensor& i, const Tensor& j,
    const Tensor& f, const Tensor& o, const Tensor& tanhc) {
  const auto [dx, dw_ih, dw_hh, db, dh, dc] =
      NPU_CUSTOM_OP(npu_lstm_cell_backward, "npu_lstm_cell_backward", "")
          .call(grady, gradh, gradc, input, w_ih, w_hh, h, c, y_output, h_output, c_output, i, j, f, o, tanhc);
  // Memory of their own: autograd may add to either in place.
  return {dx, dw_ih, dw_hh, db, db.clone(), dh, dc};
}

}  // namespace at::native::npu
