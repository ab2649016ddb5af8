// npu_fusion_attention and its gradient, made of upstream's operators: out = dropout(softmax(mask(scale * (pse + q
// k')))) v. Scores are computed in fp32. A sequence of layout TND is attended to by itself; other layouts are one
// batch.

#include <ATen/ATen.h>
#include <ATen/native/npu/frame/command/DrawPlace.h>
#include <ATen/native/npu/frame/inference/NewLike.h>
#include <ATen/native/npu/frame/inference/Wide.h>
#include <ATen/native/npu/frame/registration/CustomAutograd.h>

#include <limits>
#include <string>

namespace at::native::npu {
namespace {

// The sparse modes of `atten_mask`; the compressed ones say what is hidden by themselves, whatever the mask holds.
enum Mode : int64_t { kGiven, kAll, kCausalTop, kCausal, kBand, kPrefixGiven, kPrefix, kBandLast, kBandFirst };

constexpr int64_t kStatisticsWidth = 8;  // each maximum and sum is stored that often
constexpr int64_t kAlibiRows = 1024;     // rows of a compressed position bias

// What forward and gradient are both called with.
struct Call {
  const char* name;
  int64_t heads;
  std::string_view layout;
  const std::optional<Tensor>&pse, &mask, &sink;
  double scale, keep;
  int64_t before, after;  // pre_tockens, next_tockens
  OptionalIntArrayRef prefix, query_ends, key_ends;
  int64_t mode;
  std::string_view statistics;  // softmax_layout

  bool by_sequence() const { return layout == "TND"; }
};

// A batch of heads: (batch, heads, positions, width) each.
struct Part {
  Tensor query, key, value;
  Tensor bias, hidden;  // undefined where there is none
};

struct Range {
  int64_t start, length;
};

void check_call(const Call& c, const Tensor& q, const Tensor& k, const Tensor& v,
                const std::optional<Tensor>& padding_mask) {
  constexpr std::string_view kLayouts[] = {"BSH", "SBH", "BSND", "BNSD", "TND"};
  TORCH_CHECK(std::find(std::begin(kLayouts), std::end(kLayouts), c.layout) != std::end(kLayouts), c.name,
              ": input_layout is BSH, SBH, BSND, BNSD or TND, got '", c.layout, "'");
  const int64_t rank = c.layout.size() == 4 ? 4 : 3;
  for (const auto& [what, t] : {std::pair("query", &q), std::pair("key", &k), std::pair("value", &v)}) {
    TORCH_CHECK(t->dim() == rank, c.name, ": ", what, " of layout ", c.layout, " must have ", rank,
                " dimensions, but is ", t->sizes());
    check_floating(c.name, *t);
    TORCH_CHECK(t->scalar_type() == q.scalar_type(), c.name,
                ": query, key and value must have one dtype, but query is ", q.scalar_type(), " and ", what, " is ",
                t->scalar_type());
  }
  TORCH_CHECK(c.heads > 0, c.name, ": head_num must be positive, got ", c.heads);
  TORCH_CHECK(c.keep > 0 && c.keep <= 1, c.name, ": keep_prob must be in (0, 1], got ", c.keep);
  TORCH_CHECK(c.mode >= kGiven && c.mode <= kBandFirst, c.name, ": sparse_mode is 0 to 8, got ", c.mode);
  TORCH_CHECK(!given(padding_mask), c.name, ": padding_mask is not supported; use atten_mask");
  TORCH_CHECK(c.by_sequence() || (c.mode != kBandLast && c.mode != kBandFirst), c.name, ": sparse_mode ", c.mode,
              " is for layout TND");
  TORCH_CHECK(!c.by_sequence() || c.mode != kPrefixGiven, c.name, ": sparse_mode 5 is not for layout TND");
  TORCH_CHECK(!given(c.sink) || (c.sink->dim() == 1 && c.sink->size(0) == c.heads), c.name,
              ": sink must have one element for each of the ", c.heads, " heads, but is ", c.sink->sizes());
}

// (batch, heads, positions, width) of a tensor of any layout but TND.
Tensor to_heads(const Tensor& t, std::string_view layout, int64_t heads) {
  if (layout == "BNSD") return t;
  if (layout == "BSND") return t.transpose(1, 2);
  const Tensor split = t.unflatten(2, {heads, t.size(2) / heads});
  return layout == "BSH" ? split.transpose(1, 2) : split.permute({1, 2, 0, 3});
}

Tensor from_heads(const Tensor& t, std::string_view layout) {
  if (layout == "BNSD") return t;
  if (layout == "BSND") return t.transpose(1, 2).contiguous();
  return layout == "BSH" ? t.transpose(1, 2).flatten(2) : t.permute({2, 0, 1, 3}).flatten(2);
}

// The heads of key and value: fewer than those of the query where several of its heads share one.
int64_t key_heads(const Call& c, const Tensor& q, const Tensor& k, const Tensor& v) {
  const auto heads_of = [&](const Tensor& t) -> int64_t {
    return c.layout == "BNSD" || c.by_sequence() ? t.size(1) : t.size(2);
  };
  int64_t found = 0;
  if (c.layout == "BSH" || c.layout == "SBH") {
    TORCH_CHECK(q.size(2) % c.heads == 0, c.name, ": the ", q.size(2),
                " elements of the last dimension of query are "
                "not a multiple of head_num ",
                c.heads);
    const int64_t width = q.size(2) / c.heads;
    TORCH_CHECK(width > 0 && k.size(2) % width == 0, c.name, ": key is ", k.sizes(), ", but a head has ", width,
                " elements");
    found = k.size(2) / width;
    TORCH_CHECK(found > 0 && v.size(2) % found == 0, c.name, ": value is ", v.sizes(), ", but key has ", found,
                " heads");
  } else {
    TORCH_CHECK(heads_of(q) == c.heads, c.name, ": query of layout ", c.layout, " is ", q.sizes(),
                ", which has not head_num = ", c.heads, " heads");
    TORCH_CHECK(q.size(-1) == k.size(-1), c.name, ": query and key must have heads of one width, but are ", q.sizes(),
                " and ", k.sizes());
    found = heads_of(k);
  }
  TORCH_CHECK(found > 0 && c.heads % found == 0, c.name, ": the query's ", c.heads,
              " heads must be a multiple of the key's ", found);
  return found;
}

// Ends of sequences; zeros at the end of the list stand for sequences that are left out.
std::vector<Range> ranges_of(const Call& c, const char* what, OptionalIntArrayRef ends, int64_t total) {
  TORCH_CHECK(ends.has_value() && !ends->empty(), c.name, ": layout TND needs ", what);
  std::vector<Range> ranges;
  int64_t start = 0;
  bool over = false;
  for (const int64_t end : *ends) {
    over = over || (end == 0 && start > 0);
    TORCH_CHECK(over ? end == 0 : end >= start && end <= total, c.name, ": ", what, " must rise to at most the ", total,
                " positions there are (zeros may follow), but is ", *ends);
    ranges.push_back({start, over ? 0 : end - start});
    if (!over) start = end;
  }
  return ranges;
}

// How far a key's position lies behind the last one that a causal mask shows to its query: above 0 is hidden.
Tensor distances(const Tensor& like, int64_t queries, int64_t keys, int64_t shift) {
  const auto options = like.options().dtype(kLong);
  return at::arange(keys, options).unsqueeze(0) - at::arange(queries, options).unsqueeze(1) - shift;
}

// The mask of one part: which pairs of positions do not take part.
Tensor hidden_of(const Call& c, const Tensor& q, int64_t queries, int64_t keys, size_t index, size_t count) {
  if (!given(c.mask)) return {};
  int64_t mode = c.mode;
  if (mode == kBandLast) mode = index + 1 == count ? kBand : kCausal;
  if (mode == kBandFirst) mode = index == 0 ? kBand : kCausalTop;
  switch (mode) {
    case kCausalTop:
      return distances(q, queries, keys, 0).gt(0);
    case kCausal:
      return distances(q, queries, keys, keys - queries).gt(0);
    case kBand: {
      const Tensor distance = distances(q, queries, keys, keys - queries);
      return distance.gt(c.after).logical_or(distance.lt(-c.before));
    }
    case kPrefix: {
      const int64_t batch = c.by_sequence() ? static_cast<int64_t>(count) : q.size(0);
      TORCH_CHECK(c.prefix.has_value() && static_cast<int64_t>(c.prefix->size()) == batch, c.name,
                  ": sparse_mode 6 needs one element of prefix for each of the ", batch, " sequences");
      const Tensor causal = distances(q, queries, keys, keys - queries).gt(0);
      const Tensor position = at::arange(keys, q.options().dtype(kLong));
      if (c.by_sequence()) return causal.logical_and(position.ge((*c.prefix)[index]));
      std::vector<Tensor> each;
      for (const int64_t length : *c.prefix) each.push_back(causal.logical_and(position.ge(length)));
      return at::stack(each, 0).unsqueeze(1);
    }
    default:
      break;
  }
  const Tensor& mask = *c.mask;
  TORCH_CHECK(mask.scalar_type() == kBool || mask.scalar_type() == kByte, c.name,
              ": atten_mask must be bool or uint8, but is ", mask.scalar_type());
  if (c.by_sequence()) {
    TORCH_CHECK(mask.dim() == 2 && mask.size(0) >= queries && mask.size(1) >= keys, c.name,
                ": atten_mask of layout TND must be a matrix of at least the longest sequences, but is ", mask.sizes(),
                " for one of ", queries, " and ", keys, " positions");
    return mask.narrow(0, 0, queries).narrow(1, 0, keys).to(kBool);
  }
  TORCH_CHECK((mask.dim() == 2 || mask.dim() == 4) && mask.size(-2) == queries && mask.size(-1) == keys &&
                  at::is_expandable_to(mask.sizes(), {q.size(0), q.size(1), queries, keys}),
              c.name, ": atten_mask of sparse_mode ", c.mode, " must be (queries, keys) or (batch or 1, heads or 1, ",
              "queries, keys), but is ", mask.sizes(), " for scores of ",
              IntArrayRef({q.size(0), q.size(1), queries, keys}));
  return mask.to(kBool);
}

// Whether the position bias holds only the last rows of one that depends on distances alone (ALiBi).
bool compressed(const Call& c, int64_t queries) {
  return c.by_sequence() || (c.pse->size(-2) == kAlibiRows && queries > kAlibiRows);
}

// For each pair of positions the column of the last row that has the same distance.
Tensor alibi_columns(const Tensor& pse, int64_t queries, int64_t keys) {
  const int64_t last = pse.size(-1) - 1;
  return (distances(pse, queries, keys, 0) + last).clamp(0, last).flatten();
}

Tensor bias_of(const Call& c, const Tensor& q, int64_t queries, int64_t keys, size_t index) {
  if (!given(c.pse)) return {};
  const Tensor& pse = *c.pse;
  TORCH_CHECK(pse.dim() == 4, c.name, ": pse must have four dimensions, but is ", pse.sizes());
  if (!compressed(c, queries)) {
    TORCH_CHECK(at::is_expandable_to(pse.sizes(), {q.size(0), q.size(1), queries, keys}), c.name,
                ": pse must broadcast to the scores, ", IntArrayRef({q.size(0), q.size(1), queries, keys}), ", but is ",
                pse.sizes());
    return pse;
  }
  TORCH_CHECK(pse.size(-2) == kAlibiRows && queries == keys && keys <= pse.size(-1), c.name,
              ": a pse of layout TND holds the last ", kAlibiRows,
              " rows of a bias by distance, for queries and keys of one length, but it is ", pse.sizes(),
              " for sequences of ", queries, " and ", keys, " positions");
  const Tensor row = pse.select(-2, kAlibiRows - 1).index_select(-1, alibi_columns(pse, queries, keys));
  const Tensor bias = row.unflatten(-1, {queries, keys});
  if (!c.by_sequence() || bias.size(0) == 1) return bias;
  return bias.narrow(0, static_cast<int64_t>(index), 1);
}

struct Parts {
  std::vector<Part> parts;
  std::vector<Range> queries, keys;  // of layout TND
  int64_t key_heads;
};

Parts split(const Call& c, const Tensor& q, const Tensor& k, const Tensor& v) {
  Parts all;
  all.key_heads = key_heads(c, q, k, v);
  if (!c.by_sequence()) {
    Part p{to_heads(q, c.layout, c.heads),
           to_heads(k, c.layout, all.key_heads),
           to_heads(v, c.layout, all.key_heads),
           {},
           {}};
    TORCH_CHECK(p.key.sizes().slice(0, 3) == p.value.sizes().slice(0, 3) && p.query.size(0) == p.key.size(0), c.name,
                ": query, key and value do not fit together, they are ", q.sizes(), ", ", k.sizes(), " and ", v.sizes(),
                " of layout ", c.layout);
    const int64_t queries = p.query.size(2), keys = p.key.size(2);
    p.bias = bias_of(c, p.query, queries, keys, 0);
    p.hidden = hidden_of(c, p.query, queries, keys, 0, 1);
    all.parts.push_back(std::move(p));
    return all;
  }
  TORCH_CHECK(k.sizes().slice(0, 2) == v.sizes().slice(0, 2), c.name, ": key and value do not fit together, they are ",
              k.sizes(), " and ", v.sizes());
  all.queries = ranges_of(c, "actual_seq_qlen", c.query_ends, q.size(0));
  all.keys = ranges_of(c, "actual_seq_kvlen", c.key_ends, k.size(0));
  TORCH_CHECK(all.queries.size() == all.keys.size(), c.name, ": actual_seq_qlen has ", all.queries.size(),
              " sequences, actual_seq_kvlen has ", all.keys.size());
  const auto sequence = [](const Tensor& t, Range r) {
    return t.narrow(0, r.start, r.length).transpose(0, 1).unsqueeze(0);
  };
  for (size_t i = 0; i < all.queries.size(); ++i) {
    const Range queries = all.queries[i], keys = all.keys[i];
    Part p{sequence(q, queries), sequence(k, keys), sequence(v, keys), {}, {}};
    p.bias = bias_of(c, p.query, queries.length, keys.length, i);
    p.hidden = hidden_of(c, p.query, queries.length, keys.length, i, all.queries.size());
    all.parts.push_back(std::move(p));
  }
  return all;
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

// Rows in which everything is hidden have weights, maximum and sum 0.
Weights softmax_of(const Call& c, const Part& p) {
  const ScalarType wide = wide_type(p.query);
  const Tensor key = repeat_heads(p.key.to(wide), c.heads);
  Tensor scores = at::matmul(p.query.to(wide), key.transpose(-2, -1));
  if (p.bias.defined()) scores = scores + p.bias.to(wide);
  scores = scores * c.scale;
  Tensor empty_rows;
  if (p.hidden.defined()) {
    scores = scores.masked_fill(p.hidden, -std::numeric_limits<double>::infinity());
    if (!given(c.sink)) empty_rows = p.hidden.all(-1, true);
  }
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

int64_t count_of(const std::vector<Tensor>& weights) {
  int64_t count = 0;
  for (const Tensor& w : weights) count += elements(w);
  return count;
}

struct Dropout {
  double p;
  Tensor bits;  // undefined: nothing is dropped

  // One mask for all parts, in their order.
  std::vector<Tensor> operator()(std::vector<Tensor> weights) const {
    if (!bits.defined() || count_of(weights) == 0) return weights;
    const auto& mask = NPU_CUSTOM_OP(npu_dropout_do_mask, "npu_dropout_do_mask", "");
    if (weights.size() == 1) return {std::get<0>(mask.call(weights[0].contiguous(), bits, p))};
    std::vector<Tensor> flat;
    std::vector<int64_t> sizes;
    for (const Tensor& w : weights) {
      flat.push_back(w.flatten());
      sizes.push_back(elements(w));
    }
    const std::vector<Tensor> dropped = std::get<0>(mask.call(at::cat(flat, 0), bits, p)).split_with_sizes(sizes, 0);
    for (size_t i = 0; i < weights.size(); ++i) weights[i] = dropped[i].view(weights[i].sizes());
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

}  // namespace

std::tuple<Tensor, Tensor, Tensor, Tensor, int64_t, int64_t, int64_t> npu_fusion_attention(
    const Tensor& query, const Tensor& key, const Tensor& value, int64_t head_num, std::string_view input_layout,
    const std::optional<Tensor>& pse, const std::optional<Tensor>& padding_mask,
    const std::optional<Tensor>& atten_mask, double scale, double keep_prob, int64_t pre_tockens, int64_t next_tockens,
    int64_t /*inner_precise*/, OptionalIntArrayRef prefix, OptionalIntArrayRef actual_seq_qlen,
    OptionalIntArrayRef actual_seq_kvlen, int64_t sparse_mode, bool /*gen_mask_parallel*/, bool /*sync*/,
    std::string_view softmax_layout, const std::optional<Tensor>& sink, const std::optional<Tensor>& dropout_mask,
    int64_t seed, int64_t offset) {
  const Call c{"npu_fusion_attention",
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
  check_call(c, query, key, value, padding_mask);
  const Parts all = split(c, query, key, value);
  std::vector<Tensor> weights, max, sum;
  for (const Part& p : all.parts) {
    Weights w = softmax_of(c, p);
    weights.push_back(std::move(w.weights));
    max.push_back(std::move(w.max));
    sum.push_back(std::move(w.sum));
  }
  const int64_t count = count_of(weights);
  if (keep_prob < 1) {
    if (given(dropout_mask)) {
      weights = Dropout{1 - keep_prob, *dropout_mask}(std::move(weights));
    } else if (query.key_set().has(DispatchKey::Python) && seed == 0 && offset == 0) {
      // While a program is traced a seed would be a constant of the graph, and every run would drop the same.
      for (Tensor& w : weights) w = at::dropout(w, 1 - keep_prob, /*train=*/true);
    } else {
      // 0 and 0 stand for a new draw; a generator with the seed 0 gives them once, as its first place.
      if (seed == 0 && offset == 0 && !query.is_meta()) {
        constexpr auto kWhat = "npu_fusion_attention draws its own dropout (pass dropout_mask instead)";
        DrawPlace place = next_numbers(query.device(), kWhat);
        if (place.seed == 0 && place.offset == 0) place = next_numbers(query.device(), kWhat);
        seed = place.seed;
        offset = place.offset;
      }
      weights = Dropout{1 - keep_prob, mask_bits(query, count, 1 - keep_prob, seed, offset)}(std::move(weights));
    }
  }
  std::vector<Tensor> outputs;
  for (size_t i = 0; i < all.parts.size(); ++i) {
    const Tensor v = repeat_heads(all.parts[i].value.to(wide_type(query)), head_num);
    outputs.push_back(at::matmul(weights[i], v).to(query.scalar_type()));
  }
  const int64_t total = c.by_sequence() ? query.size(0) : 0;
  Tensor out = c.by_sequence() ? joined(outputs, all.queries, total) : from_heads(outputs[0], input_layout);
  return {std::move(out),
          stored_statistics(c, max, total),
          stored_statistics(c, sum, total),
          at::empty({0}, query.options()),
          seed,
          offset,
          count};
}

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> npu_fusion_attention_grad(
    const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& dy, int64_t head_num,
    std::string_view input_layout, const std::optional<Tensor>& pse, const std::optional<Tensor>& padding_mask,
    const std::optional<Tensor>& atten_mask, const std::optional<Tensor>& /*softmax_max*/,
    const std::optional<Tensor>& /*softmax_sum*/, const std::optional<Tensor>& /*softmax_in*/,
    const std::optional<Tensor>& /*attention_in*/, double scale_value, double keep_prob, int64_t pre_tockens,
    int64_t next_tockens, int64_t /*inner_precise*/, int64_t seed, int64_t offset, int64_t /*numels*/,
    OptionalIntArrayRef prefix, OptionalIntArrayRef actual_seq_qlen, OptionalIntArrayRef actual_seq_kvlen,
    int64_t sparse_mode, bool /*gen_mask_parallel*/, bool /*sync*/, std::string_view softmax_layout,
    const std::optional<Tensor>& sink) {
  const Call c{"npu_fusion_attention_grad",
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
  check_call(c, query, key, value, padding_mask);
  const Parts all = split(c, query, key, value);
  const ScalarType wide = wide_type(query);
  std::vector<Weights> softmax;
  std::vector<Tensor> weights, douts, dweights;
  for (size_t i = 0; i < all.parts.size(); ++i) {
    const Part& p = all.parts[i];
    softmax.push_back(softmax_of(c, p));
    weights.push_back(softmax[i].weights);
    if (c.by_sequence()) {
      const Range r = all.queries[i];
      douts.push_back(dy.narrow(0, r.start, r.length).transpose(0, 1).unsqueeze(0).to(wide));
    } else {
      douts.push_back(to_heads(dy, input_layout, head_num).to(wide));
    }
    dweights.push_back(at::matmul(douts[i], repeat_heads(p.value.to(wide), head_num).transpose(-2, -1)));
  }
  Dropout dropout{1 - keep_prob, {}};
  if (keep_prob < 1) dropout.bits = mask_bits(query, count_of(weights), 1 - keep_prob, seed, offset);
  const std::vector<Tensor> dropped = dropout(weights);
  dweights = dropout(std::move(dweights));
  std::vector<Tensor> dq, dk, dv;
  Tensor dpse, dsink;
  for (size_t i = 0; i < all.parts.size(); ++i) {
    const Part& p = all.parts[i];
    const Tensor sums = (dweights[i] * weights[i]).sum(-1, true);
    const Tensor dscores = weights[i] * (dweights[i] - sums) * scale_value;
    dq.push_back(at::matmul(dscores, repeat_heads(p.key.to(wide), head_num)).to(query.scalar_type()));
    dk.push_back(
        sum_heads(at::matmul(dscores.transpose(-2, -1), p.query.to(wide)), all.key_heads).to(key.scalar_type()));
    dv.push_back(sum_heads(at::matmul(dropped[i].transpose(-2, -1), douts[i]), all.key_heads).to(value.scalar_type()));
    if (given(pse)) add_bias_grad(c, dscores, i, dpse);
    if (given(sink)) {
      const Tensor part = -(softmax[i].of_sink * sums).sum({0, 2, 3});
      dsink = dsink.defined() ? dsink + part : part;
    }
  }
  const auto whole = [&](const std::vector<Tensor>& parts, const std::vector<Range>& ranges, const Tensor& like) {
    return c.by_sequence() ? joined(parts, ranges, like.size(0)) : from_heads(parts[0], input_layout);
  };
  const Tensor none = at::empty({0}, query.options());
  return {whole(dq, all.queries, query), whole(dk, all.keys, key), whole(dv, all.keys, value),
          dpse.defined() ? dpse.to(pse->scalar_type()) : none,
          dsink.defined() ? dsink.to(sink->scalar_type()) : none.clone()};
}

}  // namespace at::native::npu
