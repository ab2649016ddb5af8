// npu_fusion_attention and its gradient: out = dropout(softmax(mask(scale * (pse + q k')))) v. One operator of the
// device, which keeps no scores, where that can be (FlashAttentionKernel.cpp); else made of upstream's operators.
// Scores are computed in fp32. A sequence of layout TND is attended to by itself; other layouts are one batch.

#include <ATen/ATen.h>
#include <ATen/TracerMode.h>
#include <ATen/native/npu/attention/FusionAttention.h>
#include <ATen/native/npu/frame/command/DrawPlace.h>
#include <ATen/native/npu/frame/inference/NewLike.h>
#include <ATen/native/npu/frame/registration/CustomAutograd.h>

#include <limits>
#include <string>

namespace at::native::npu {
namespace fusion_attention {
namespace {

// How far a key's position lies behind the last one that a causal mask shows to its query: above 0 is hidden.
Tensor distances(const Tensor& like, int64_t queries, int64_t keys, int64_t shift) {
  const auto options = like.options().dtype(kLong);
  return at::arange(keys, options).unsqueeze(0) - at::arange(queries, options).unsqueeze(1) - shift;
}

// The mask of one part: which pairs of positions do not take part.
Tensor hidden_of(const Call& c, const Part& p, size_t count) {
  if (!given(c.mask)) return {};
  const Tensor& q = p.query;
  const int64_t queries = p.queries(), keys = p.keys();
  switch (mode_of(c, p.index, count)) {
    case kCausalTop:
      return distances(q, queries, keys, 0).gt(0);
    case kCausal:
      return distances(q, queries, keys, keys - queries).gt(0);
    case kBand: {
      const Tensor distance = distances(q, queries, keys, keys - queries);
      return distance.gt(c.after).logical_or(distance.lt(-c.before));
    }
    case kPrefix: {
      const Tensor causal = distances(q, queries, keys, keys - queries).gt(0);
      const Tensor position = at::arange(keys, q.options().dtype(kLong));
      if (c.by_sequence()) return causal.logical_and(position.ge((*c.prefix)[p.index]));
      std::vector<Tensor> each;
      for (const int64_t length : *c.prefix) each.push_back(causal.logical_and(position.ge(length)));
      return at::stack(each, 0).unsqueeze(1);
    }
    default:
      break;
  }
  const Tensor& mask = *c.mask;
  return c.by_sequence() ? mask.narrow(0, 0, queries).narrow(1, 0, keys).to(kBool) : mask.to(kBool);
}

// For each pair of positions the column of the last row that has the same distance.
Tensor alibi_columns(const Tensor& pse, int64_t queries, int64_t keys) {
  const int64_t last = pse.size(-1) - 1;
  return (distances(pse, queries, keys, 0) + last).clamp(0, last).flatten();
}

Tensor bias_of(const Call& c, const Part& p) {
  if (!given(c.pse)) return {};
  const Tensor& pse = *c.pse;
  const int64_t queries = p.queries(), keys = p.keys();
  if (!compressed(c, queries)) return pse;
  const Tensor row = pse.select(-2, kAlibiRows - 1).index_select(-1, alibi_columns(pse, queries, keys));
  Tensor bias = row.unflatten(-1, {queries, keys});
  if (!c.by_sequence() || bias.size(0) == 1) return bias;
  return bias.narrow(0, static_cast<int64_t>(p.index), 1);
}

// Sequences put together again as (positions, heads, width); positions of no sequence are zero.
Tensor joined(const std::vector<Tensor>& parts, const std::vector<Range>& ranges, int64_t total) {
  std::vector<Tensor> rows;
  int64_t end = 0;
  for (size_t i = 0; i < parts.size(); ++i) {
    rows.push_back(parts[i].squeeze(0).transpose(0, 1));
    end += ranges[i].length;
  }
  if (end < total) {
    rows.push_back(at::zeros({total - end, rows[0].size(1), rows[0].size(2)}, rows[0].options()));
  }
  return at::cat(rows, 0);
}

Tensor repeat_heads(const Tensor& t, int64_t heads) {
  if (t.size(1) == heads) return t;
  const Tensor repeated = t.unsqueeze(2).expand({-1, -1, heads / t.size(1), -1, -1});
  return repeated.reshape({t.size(0), heads, t.size(2), t.size(3)});
}
// The gradient of repeat_heads.
Tensor sum_heads(const Tensor& t, int64_t heads) {
  return t.size(1) == heads ? t : t.unflatten(1, {heads, t.size(1) / heads}).sum(2);
}

struct Weights {
  Tensor weights, of_sink;  // of_sink: (batch, heads, queries, 1), undefined without a sink
  Tensor max, sum;          // of each row
};

struct Scores {
  Tensor scores, hidden;  // hidden: undefined where nothing is
};

Scores scores_of(const Call& c, const Part& p, size_t count) {
  const Tensor position_bias = bias_of(c, p), hidden = hidden_of(c, p, count);
  const ScalarType wide = wide_type(p.query);
  const Tensor key = repeat_heads(p.key.to(wide), c.heads);
  Tensor scores = at::matmul(p.query.to(wide), key.transpose(-2, -1));
  if (position_bias.defined()) scores = scores + position_bias.to(wide);
  scores = scores * c.scale;
  if (hidden.defined()) scores = scores.masked_fill(hidden, -std::numeric_limits<double>::infinity());
  return {scores, hidden};
}

// Rows in which everything is hidden have weights, maximum and sum 0.
Weights softmax_of(const Call& c, const Part& p, size_t count) {
  auto [scores, hidden] = scores_of(c, p, count);
  const ScalarType wide = scores.scalar_type();
  Tensor empty_rows;
  if (hidden.defined() && !given(c.sink)) empty_rows = hidden.all(-1, true);
  const int64_t keys = scores.size(-1);
  if (given(c.sink)) {
    const Tensor column = c.sink->to(wide).view({1, -1, 1, 1}).expand({scores.size(0), -1, scores.size(2), 1});
    scores = at::cat({scores, column}, -1);
  }
  Weights w;
  const Tensor all = at::softmax(scores, -1);
  {
    const at::NoGradGuard no_grad;
    if (scores.size(-1) == 0) {
      w.max = at::zeros({scores.size(0), scores.size(1), scores.size(2), 1}, scores.options());
      w.sum = w.max;
    } else {
      // The greatest weight is that of the maximum: exp(0) / sum.
      w.max = scores.amax(-1, true);
      w.sum = all.amax(-1, true).reciprocal();
      if (empty_rows.defined()) {
        w.max = w.max.masked_fill(empty_rows, 0);
        w.sum = w.sum.masked_fill(empty_rows, 0);
      }
    }
  }
  w.weights = empty_rows.defined() ? all.masked_fill(empty_rows, 0) : all;
  if (given(c.sink)) {
    w.of_sink = all.narrow(-1, keys, 1);
    w.weights = all.narrow(-1, 0, keys);
  }
  return w;
}

// Of one part, (batch, heads, queries, 1), from statistics as they are stored.
Tensor statistics_of(const Call& c, const Parts& all, size_t index, const Tensor& stored) {
  Tensor single = stored.narrow(-1, 0, 1);
  if (!c.by_sequence()) return single;
  const auto [start, length] = all.queries[index];
  if (c.statistics == "TND") return single.narrow(0, start, length).transpose(0, 1).unsqueeze(0);
  return single.reshape({-1}).narrow(0, start * c.heads, length * c.heads).view({1, c.heads, length, 1});
}

// Weights as the statistics of the forward's call have them, which may have seen more keys.
Weights weights_of(const Call& c, const Parts& all, size_t index, const Attended& attended) {
  const Tensor scores = scores_of(c, all.parts[index], all.parts.size()).scores;
  Weights w;
  w.max = statistics_of(c, all, index, attended.max).to(scores.scalar_type());
  w.sum = statistics_of(c, all, index, attended.sum).to(scores.scalar_type());
  const Tensor nothing = w.sum.eq(0), share = w.sum.masked_fill(nothing, 1).reciprocal();
  w.weights = (scores - w.max).exp().mul(share).masked_fill(nothing, 0);
  if (given(c.sink)) w.of_sink = (c.sink->to(scores.scalar_type()).view({1, -1, 1, 1}) - w.max).exp().mul(share);
  return w;
}

int64_t count_of(const std::vector<Tensor>& weights) {
  int64_t count = 0;
  for (const Tensor& w : weights) count += elements(w);
  return count;
}

struct Dropout {
  double p;
  Tensor bits;  // undefined: nothing is dropped

  // One mask for all parts, in their order. The factors are constants, so gradients of any order are right.
  std::vector<Tensor> operator()(std::vector<Tensor> weights) const {
    const int64_t count = count_of(weights);
    if (!bits.defined() || count == 0) return weights;
    const auto& mask = NPU_CUSTOM_OP(npu_dropout_do_mask, "npu_dropout_do_mask", "");
    const Tensor factors = std::get<0>(mask.call(at::ones({count}, weights[0].options()), bits, p));
    int64_t first = 0;
    for (Tensor& w : weights) {
      const int64_t own = elements(w);
      w = w * factors.narrow(0, first, own).view(w.sizes());
      first += own;
    }
    return weights;
  }
};

Tensor mask_bits(const Tensor& like, int64_t count, double p, int64_t seed, int64_t offset) {
  return NPU_CUSTOM_OP(npu_dropout_gen_mask_at, "_npu_dropout_gen_mask", "Tensor")
      .call(like, count, p, seed, offset, true, false);
}

// Statistics as the device stores them: each number eight times; with layout TND by sequence, then head, then position
// unless softmax_layout asks for positions first.
Tensor stored_statistics(const Call& c, const std::vector<Tensor>& each, int64_t total) {
  const auto wide = [](const Tensor& t) {
    const Tensor single = t.detach().to(kFloat);
    return single.expand({single.size(0), single.size(1), single.size(2), kStatisticsWidth});
  };
  if (!c.by_sequence()) return wide(each[0]).contiguous();
  std::vector<Tensor> rows;
  int64_t count = 0;
  for (const Tensor& t : each) {
    const Tensor heads = wide(t).squeeze(0);
    rows.push_back((c.statistics == "TND" ? heads.transpose(0, 1) : heads).reshape({-1, kStatisticsWidth}));
    count += heads.size(0) * heads.size(1);
  }
  if (count < total * c.heads) {
    rows.push_back(at::zeros({total * c.heads - count, kStatisticsWidth}, rows[0].options()));
  }
  return at::cat(rows, 0).view({total, c.heads, kStatisticsWidth});
}

// The gradient of the position bias from that of the scores of one part.
void add_bias_grad(const Call& c, const Tensor& dscores, size_t index, Tensor& dpse) {
  const Tensor& pse = *c.pse;
  const int64_t queries = dscores.size(2), keys = dscores.size(3);
  if (!compressed(c, queries)) {
    dpse = dscores.sum_to_size(pse.sizes());
    return;
  }
  if (!dpse.defined()) dpse = at::zeros(pse.sizes(), dscores.options());
  Tensor of_sequence = dpse.select(-2, kAlibiRows - 1);
  if (c.by_sequence() && of_sequence.size(0) > 1) of_sequence = of_sequence.narrow(0, static_cast<int64_t>(index), 1);
  const Tensor flat = dscores.flatten(-2).sum_to_size({of_sequence.size(0), of_sequence.size(1), queries * keys});
  of_sequence.copy_(of_sequence.index_add(-1, alibi_columns(pse, queries, keys), flat));
}

// How many scores there are.
int64_t count_of(const Parts& all) {
  int64_t count = 0;
  for (const Part& p : all.parts) count += p.query.size(0) * p.query.size(1) * p.queries() * p.keys();
  return count;
}

// Whether a program is being traced. What it is made of is then what the graph shows, to compilers and exporters.
bool is_traced(const Tensor& t) {
  return t.key_set().has(DispatchKey::Python) || c10::impl::tls_is_dispatch_key_included(DispatchKey::Python) ||
         at::tracer::impl::is_dispatch_enabled();  // by torch.jit.trace
}

Attended composed(const Call& c, const Tensor& q, const Parts& all, const Dropout& dropout, bool drawn_by_aten) {
  std::vector<Tensor> weights, max, sum, outputs;
  for (const Part& p : all.parts) {
    Weights w = softmax_of(c, p, all.parts.size());
    weights.push_back(std::move(w.weights));
    max.push_back(std::move(w.max));
    sum.push_back(std::move(w.sum));
  }
  if (drawn_by_aten) {
    for (Tensor& w : weights) w = at::dropout(w, dropout.p, /*train=*/true);
  } else {
    weights = dropout(std::move(weights));
  }
  for (size_t i = 0; i < all.parts.size(); ++i) {
    const Tensor v = repeat_heads(all.parts[i].value.to(wide_type(q)), c.heads);
    outputs.push_back(at::matmul(weights[i], v).to(q.scalar_type()));
  }
  const int64_t total = c.by_sequence() ? q.size(0) : 0;
  return {c.by_sequence() ? joined(outputs, all.queries, total) : from_heads(outputs[0], c.layout),
          stored_statistics(c, max, total), stored_statistics(c, sum, total)};
}

}  // namespace

std::array<Tensor, 5> composed_gradients(const Call& c, const Tensor& query, const Tensor& key, const Tensor& value,
                                         const Tensor& dy, const Tensor& kept,
                                         const std::optional<Attended>& attended) {
  const Parts all = split(c, query, key, value);
  const ScalarType wide = wide_type(query);
  const auto of_part = [&](const Tensor& t, size_t i) {
    if (!c.by_sequence()) return to_heads(t, c.layout, c.heads).to(wide);
    const Range r = all.queries[i];
    return t.narrow(0, r.start, r.length).transpose(0, 1).unsqueeze(0).to(wide);
  };
  std::vector<Weights> softmax;
  std::vector<Tensor> weights, douts, dweights;
  for (size_t i = 0; i < all.parts.size(); ++i) {
    const Part& p = all.parts[i];
    softmax.push_back(attended ? weights_of(c, all, i, *attended) : softmax_of(c, p, all.parts.size()));
    weights.push_back(softmax[i].weights);
    douts.push_back(of_part(dy, i));
    dweights.push_back(at::matmul(douts[i], repeat_heads(p.value.to(wide), c.heads).transpose(-2, -1)));
  }
  const Dropout dropout{1 - c.keep, kept};
  const std::vector<Tensor> dropped = dropout(weights);
  dweights = dropout(std::move(dweights));
  std::vector<Tensor> dq, dk, dv;
  Tensor dpse, dsink;
  for (size_t i = 0; i < all.parts.size(); ++i) {
    const Part& p = all.parts[i];
    const Tensor sums = (attended ? douts[i] * of_part(attended->out, i) : dweights[i] * weights[i]).sum(-1, true);
    const Tensor dscores = weights[i] * (dweights[i] - sums) * c.scale;
    dq.push_back(at::matmul(dscores, repeat_heads(p.key.to(wide), c.heads)).to(query.scalar_type()));
    dk.push_back(
        sum_heads(at::matmul(dscores.transpose(-2, -1), p.query.to(wide)), all.key_heads).to(key.scalar_type()));
    dv.push_back(sum_heads(at::matmul(dropped[i].transpose(-2, -1), douts[i]), all.key_heads).to(value.scalar_type()));
    if (given(c.pse)) add_bias_grad(c, dscores, i, dpse);
    if (given(c.sink)) {
      const Tensor part = -(softmax[i].of_sink * sums).sum({0, 2, 3});
      dsink = dsink.defined() ? dsink + part : part;
    }
  }
  const auto whole = [&](const std::vector<Tensor>& parts, const std::vector<Range>& ranges, const Tensor& like) {
    return c.by_sequence() ? joined(parts, ranges, like.size(0)) : from_heads(parts[0], c.layout);
  };
  const Tensor none = at::empty({0}, query.options());
  return {whole(dq, all.queries, query), whole(dk, all.keys, key), whole(dv, all.keys, value),
          dpse.defined() ? dpse.to(c.pse->scalar_type()) : none,
          dsink.defined() ? dsink.to(c.sink->scalar_type()) : none.clone()};
}

}  // namespace fusion_attention

std::tuple<Tensor, Tensor, Tensor, Tensor, int64_t, int64_t, int64_t> npu_fusion_attention(
    const Tensor& query, const Tensor& key, const Tensor& value, int64_t head_num, std::string_view input_layout,
    const std::optional<Tensor>& pse, const std::optional<Tensor>& padding_mask,
    const std::optional<Tensor>& atten_mask, double scale, double keep_prob, int64_t pre_tockens, int64_t next_tockens,
    int64_t /*inner_precise*/, OptionalIntArrayRef prefix, OptionalIntArrayRef actual_seq_qlen,
    OptionalIntArrayRef actual_seq_kvlen, int64_t sparse_mode, bool /*gen_mask_parallel*/, bool /*sync*/,
    std::string_view softmax_layout, const std::optional<Tensor>& sink, const std::optional<Tensor>& dropout_mask,
    int64_t seed, int64_t offset) {
  namespace fa = fusion_attention;
  const fa::Call c{"npu_fusion_attention",
                   head_num,
                   input_layout,
                   pse,
                   atten_mask,
                   sink,
                   scale,
                   keep_prob,
                   pre_tockens,
                   next_tockens,
                   prefix,
                   actual_seq_qlen,
                   actual_seq_kvlen,
                   sparse_mode,
                   softmax_layout};
  const NoAutocast guard;
  fa::check_call(c, query, key, value, padding_mask);
  const fa::Parts all = fa::split(c, query, key, value);
  const int64_t count = fa::count_of(all);
  fa::Dropout dropout{1 - keep_prob, {}};
  bool drawn_by_aten = false;
  if (keep_prob < 1) {
    if (given(dropout_mask)) {
      dropout.bits = *dropout_mask;
    } else if (query.key_set().has(DispatchKey::Python) && seed == 0 && offset == 0) {
      // While a program is traced a seed would be a constant of the graph, and every run would drop the same.
      drawn_by_aten = true;
    } else {
      // 0 and 0 stand for a new draw; a generator with the seed 0 gives them once, as its first place.
      if (seed == 0 && offset == 0 && !query.is_meta()) {
        constexpr auto kWhat = "npu_fusion_attention draws its own dropout (pass dropout_mask instead)";
        DrawPlace place = next_numbers(query.device(), kWhat);
        if (place.seed == 0 && place.offset == 0) place = next_numbers(query.device(), kWhat);
        seed = place.seed;
        offset = place.offset;
      }
      dropout.bits = fa::mask_bits(query, count, 1 - keep_prob, seed, offset);
    }
  }
  const bool at_once = !fa::is_traced(query) && fa::in_blocks(c, query, key, value, all);
  fa::Attended a = at_once ? fa::attend_in_blocks(c, query, key, value, dropout.bits)
                           : fa::composed(c, query, all, dropout, drawn_by_aten);
  return {std::move(a.out), std::move(a.max), std::move(a.sum), at::empty({0}, query.options()), seed, offset, count};
}

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> npu_fusion_attention_grad(
    const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& dy, int64_t head_num,
    std::string_view input_layout, const std::optional<Tensor>& pse, const std::optional<Tensor>& padding_mask,
    const std::optional<Tensor>& atten_mask, const std::optional<Tensor>& softmax_max,
    const std::optional<Tensor>& softmax_sum, const std::optional<Tensor>& /*softmax_in*/,
    const std::optional<Tensor>& attention_in, double scale_value, double keep_prob, int64_t pre_tockens,
    int64_t next_tockens, int64_t /*inner_precise*/, int64_t seed, int64_t offset, int64_t /*numels*/,
    OptionalIntArrayRef prefix, OptionalIntArrayRef actual_seq_qlen, OptionalIntArrayRef actual_seq_kvlen,
    int64_t sparse_mode, bool /*gen_mask_parallel*/, bool /*sync*/, std::string_view softmax_layout,
    const std::optional<Tensor>& sink) {
  namespace fa = fusion_attention;
  const fa::Call c{"npu_fusion_attention_grad",
                   head_num,
                   input_layout,
                   pse,
                   atten_mask,
                   sink,
                   scale_value,
                   keep_prob,
                   pre_tockens,
                   next_tockens,
                   prefix,
                   actual_seq_qlen,
                   actual_seq_kvlen,
                   sparse_mode,
                   softmax_layout};
  const NoAutocast guard;
  fa::check_call(c, query, key, value, padding_mask);
  const fa::Parts all = fa::split(c, query, key, value);
  Tensor kept;
  if (keep_prob < 1) kept = fa::mask_bits(query, fa::count_of(all), 1 - keep_prob, seed, offset);
  const bool differentiated =
      at::GradMode::is_enabled() &&
      (query.requires_grad() || key.requires_grad() || value.requires_grad() || dy.requires_grad() ||
       (given(pse) && pse->requires_grad()) || (given(sink) && sink->requires_grad()));
  std::optional<fa::Attended> attended;
  if (given(softmax_max) && given(softmax_sum) && given(attention_in)) {
    attended = fa::Attended{*attention_in, *softmax_max, *softmax_sum};
    fa::check_attended(c, query, dy, all, *attended);
  }
  if (differentiated || fa::is_traced(query) || !fa::in_blocks(c, query, key, value, all)) {
    auto g = fa::composed_gradients(c, query, key, value, dy, kept, attended);
    return {g[0], g[1], g[2], g[3], g[4]};
  }
  if (!attended) attended = fa::attend_in_blocks(c, query, key, value, kept);
  auto g = fa::gradients_in_blocks(c, query, key, value, dy, kept, *attended);
  return {g[0], g[1], g[2], g[3], g[4]};
}

}  // namespace at::native::npu
