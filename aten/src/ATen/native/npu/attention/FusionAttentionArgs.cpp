// See FusionAttention.h.

#include <ATen/native/npu/attention/FusionAttention.h>

#include <ATen/ATen.h>
#include <ATen/ExpandUtils.h>

#include <algorithm>

namespace at::native::npu::fusion_attention {
namespace {

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

void check_mask(const Call& c, const Part& p, size_t count) {
  if (!given(c.mask)) return;
  const int64_t queries = p.queries(), keys = p.keys(), mode = mode_of(c, p.index, count);
  if (mode == kPrefix) {
    const int64_t batch = c.by_sequence() ? static_cast<int64_t>(count) : p.query.size(0);
    TORCH_CHECK(c.prefix.has_value() && static_cast<int64_t>(c.prefix->size()) == batch, c.name,
                ": sparse_mode 6 needs one element of prefix for each of the ", batch, " sequences");
  }
  if (mode == kPrefix || mode == kCausalTop || mode == kCausal || mode == kBand) return;
  const Tensor& mask = *c.mask;
  TORCH_CHECK(mask.scalar_type() == kBool || mask.scalar_type() == kByte, c.name,
              ": atten_mask must be bool or uint8, but is ", mask.scalar_type());
  if (c.by_sequence()) {
    TORCH_CHECK(mask.dim() == 2 && mask.size(0) >= queries && mask.size(1) >= keys, c.name,
                ": atten_mask of layout TND must be a matrix of at least the longest sequences, but is ", mask.sizes(),
                " for one of ", queries, " and ", keys, " positions");
    return;
  }
  const std::array<int64_t, 4> scores{p.query.size(0), p.query.size(1), queries, keys};
  TORCH_CHECK((mask.dim() == 2 || mask.dim() == 4) && mask.size(-2) == queries && mask.size(-1) == keys &&
                  at::is_expandable_to(mask.sizes(), scores),
              c.name, ": atten_mask of sparse_mode ", c.mode, " must be (queries, keys) or (batch or 1, heads or 1, ",
              "queries, keys), but is ", mask.sizes(), " for scores of ", IntArrayRef(scores));
}

void check_bias(const Call& c, const Part& p) {
  if (!given(c.pse)) return;
  const Tensor& pse = *c.pse;
  const int64_t queries = p.queries(), keys = p.keys();
  TORCH_CHECK(pse.dim() == 4, c.name, ": pse must have four dimensions, but is ", pse.sizes());
  if (!compressed(c, queries)) {
    const std::array<int64_t, 4> scores{p.query.size(0), p.query.size(1), queries, keys};
    TORCH_CHECK(at::is_expandable_to(pse.sizes(), scores), c.name, ": pse must broadcast to the scores, ",
                IntArrayRef(scores), ", but is ", pse.sizes());
    return;
  }
  TORCH_CHECK(pse.size(-2) == kAlibiRows && queries == keys && keys <= pse.size(-1), c.name,
              ": a pse of layout TND holds the last ", kAlibiRows,
              " rows of a bias by distance, for queries and keys of one length, but it is ", pse.sizes(),
              " for sequences of ", queries, " and ", keys, " positions");
}

}  // namespace

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

int64_t mode_of(const Call& c, size_t index, size_t count) {
  if (c.mode == kBandLast) return index + 1 == count ? kBand : kCausal;
  if (c.mode == kBandFirst) return index == 0 ? kBand : kCausalTop;
  return c.mode;
}

bool compressed(const Call& c, int64_t queries) {
  return c.by_sequence() || (c.pse->size(-2) == kAlibiRows && queries > kAlibiRows);
}

Parts split(const Call& c, const Tensor& q, const Tensor& k, const Tensor& v) {
  Parts all;
  all.key_heads = key_heads(c, q, k, v);
  if (!c.by_sequence()) {
    Part p{to_heads(q, c.layout, c.heads), to_heads(k, c.layout, all.key_heads), to_heads(v, c.layout, all.key_heads),
           0};
    TORCH_CHECK(p.key.sizes().slice(0, 3) == p.value.sizes().slice(0, 3) && p.query.size(0) == p.key.size(0), c.name,
                ": query, key and value do not fit together, they are ", q.sizes(), ", ", k.sizes(), " and ", v.sizes(),
                " of layout ", c.layout);
    check_bias(c, p);
    check_mask(c, p, 1);
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
    Part p{sequence(q, queries), sequence(k, keys), sequence(v, keys), i};
    check_bias(c, p);
    check_mask(c, p, all.queries.size());
    all.parts.push_back(std::move(p));
  }
  return all;
}

DimVector statistics_sizes(const Call& c, const Tensor& q, const Parts& all) {
  if (c.by_sequence()) return {q.size(0), c.heads, kStatisticsWidth};
  const Part& p = all.parts[0];
  return {p.query.size(0), c.heads, p.queries(), kStatisticsWidth};
}

void check_attended(const Call& c, const Tensor& q, const Tensor& dy, const Parts& all, const Attended& attended) {
  const DimVector sizes = statistics_sizes(c, q, all);
  for (const auto& [what, t] : {std::pair("softmax_max", &attended.max), std::pair("softmax_sum", &attended.sum)}) {
    TORCH_CHECK(t->scalar_type() == kFloat && t->sizes().equals(sizes), c.name, ": ", what,
                " must be float32 of shape ", IntArrayRef(sizes), ", but is ", t->scalar_type(), " of shape ",
                t->sizes());
  }
  TORCH_CHECK(attended.out.sizes().equals(dy.sizes()) && attended.out.scalar_type() == q.scalar_type(), c.name,
              ": attention_in must be of the shape of dy and the dtype of query, but is ", attended.out.scalar_type(),
              " of shape ", attended.out.sizes());
}

}  // namespace at::native::npu::fusion_attention
