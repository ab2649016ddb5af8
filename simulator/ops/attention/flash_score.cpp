// FlashAttentionScore and its gradient, with CANN's operands: attention in blocks of every layout and sparse mode.

#include <ATen/ATen.h>

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "ops/attention/flash.h"
#include "ops/attention/flash_tasks.h"
#include "ops/nn_util.h"

namespace acl_sim {
namespace {

using at::Tensor;

constexpr int64_t kStatisticsWidth = 8;  // each maximum and sum is stored that often
constexpr int64_t kAlibiRows = 1024;     // rows of a compressed position bias
constexpr DtypeSet kTypes = dtype_bit(ACL_FLOAT16) | dtype_bit(ACL_FLOAT) | dtype_bit(ACL_BF16);
constexpr DtypeSet kBytes = dtype_bit(ACL_BOOL) | dtype_bit(ACL_UINT8);

enum Mode : int64_t { kGiven, kAll, kCausalTop, kCausal, kBand, kPrefixGiven, kPrefix, kBandLast, kBandFirst };

struct Sequence {
  int64_t batch = 0;  // 0 where sequences lie one behind the other
  int64_t query = 0, queries = 0, key = 0, keys = 0;
  int64_t first_bit = 0;
};

// Where the operands behind the gradient are.
struct Places {
  size_t bias, bits, mask, prefix, query_ends, key_ends, sink;
};
constexpr Places kForward{3, 4, 6, 7, 8, 9, 17}, kBackward{4, 5, 7, 12, 13, 14, 24};

// The operands of one call. Tensors are (batch, heads, positions, width), or (1, heads, all positions, width) of
// sequences.
class Score {
 public:
  Score(OpContext& c, const Places& at)
      : heads(c.attrs().integer("head_num", 1)),
        layout_(c.attrs().text("input_layout", "")),
        mode_(c.attrs().integer("sparse_mode", 0)),
        before_(c.attrs().integer("pre_tockens", INT32_MAX)),
        after_(c.attrs().integer("next_tockens", INT32_MAX)),
        scale_(static_cast<float>(c.attrs().real("scale_value", 1))),
        keep_(static_cast<float>(c.attrs().real("keep_prob", 1))),
        bias_(optional_in(c, at.bias)),
        bits_(optional_in(c, at.bits)),
        mask_(optional_in(c, at.mask)) {
    const int64_t pse_type = c.attrs().integer("pse_type", 1);
    if (pse_type != 0 && pse_type != 1) refuse("pse_type " + std::to_string(pse_type) + " makes a bias by itself");
    bias_factor_ = pse_type == 1 ? scale_ : 1;
    for (size_t i = at.key_ends + 1; i < at.sink; ++i) {
      if (c.has_input(i)) refuse("operand " + std::to_string(i) + " of attention is not supported");
    }
    if (keep_ < 1 && !bits_.defined()) refuse("keep_prob below 1 needs drop_mask");
    query = widen(heads_of(c.in(0), heads));
    const Tensor k = c.in(1), v = c.in(2);
    key_heads = layout_ == "BSH" || layout_ == "SBH" ? k.size(2) / query.size(3) : heads_of(k, 0).size(1);
    key = widen(heads_of(k, key_heads));
    value = widen(heads_of(v, key_heads));
    if (c.has_input(at.prefix)) prefix_ = c.in_values(at.prefix);
    if (c.has_input(at.sink)) sink = c.in(at.sink).to(at::kFloat);
    find_sequences(c, at);
  }

  bool by_sequence() const { return layout_ == "TND"; }

  // A view of a tensor of the layout.
  Tensor heads_of(const Tensor& t, int64_t count) const {
    if (layout_ == "TND") return t.transpose(0, 1).unsqueeze(0);
    if (layout_ == "BNSD") return t;
    if (layout_ == "BSND") return t.transpose(1, 2);
    if (layout_ != "BSH" && layout_ != "SBH") refuse("input_layout is BSH, SBH, BSND, BNSD or TND, not " + layout_);
    const Tensor split = t.unflatten(2, {count, t.size(2) / count});
    return layout_ == "BSH" ? split.transpose(1, 2) : split.permute({1, 2, 0, 3});
  }

  FlashHead head(const Sequence& s, int64_t h) const {
    FlashHead head;
    head.queries = s.queries;
    head.keys = s.keys;
    head.query = flash_rows<const float>(query, s.batch, h, s.query);
    head.key = flash_rows<const float>(key, s.batch, h / (heads / key_heads), s.key);
    head.value = flash_rows<const float>(value, s.batch, h / (heads / key_heads), s.key);
    head.scale = scale_;
    if (mask_.defined()) hide(s, h, head);
    if (bias_.defined()) add_bias(s, h, head);
    if (bits_.defined() && keep_ < 1) {
      head.kept = static_cast<const uint8_t*>(bits_.const_data_ptr());
      head.first_bit = s.first_bit + h * s.queries * s.keys;
      head.keep_prob = keep_;
    }
    if (sink.defined()) head.sink = sink.const_data_ptr<float>() + h;
    return head;
  }

  // Where a sequence's numbers for a head of the bias begin in a tensor of its shape.
  int64_t bias_place(const Tensor& bias, const Sequence& s, int64_t h) const {
    const int64_t row = by_distance(s) ? kAlibiRows - 1 : 0;
    const int64_t batch = bias.size(0) == 1 ? 0 : (by_sequence() ? index_of(s) : s.batch);
    return batch * bias.stride(0) + (bias.size(1) == 1 ? 0 : h * bias.stride(1)) + row * bias.stride(2);
  }

  // Statistics stand eight times each: by batch, head and position; of sequences by sequence, head and position, unless
  // the layout of the operands is asked for.
  struct Stored {
    int64_t first, stride;
  };
  Stored statistics_at(const Sequence& s, int64_t h, bool like_inputs) const {
    if (!by_sequence()) return {((s.batch * heads + h) * s.queries) * kStatisticsWidth, kStatisticsWidth};
    if (like_inputs) return {(s.query * heads + h) * kStatisticsWidth, heads * kStatisticsWidth};
    return {(s.query * heads + h * s.queries) * kStatisticsWidth, kStatisticsWidth};
  }

  const Tensor& bias() const { return bias_; }

  int64_t heads, key_heads = 1;
  Tensor query, key, value, sink;
  std::vector<Sequence> sequences;

 private:
  void find_sequences(OpContext& c, const Places& at) {
    int64_t bits = 0;
    const auto add = [&](Sequence s) {
      s.first_bit = bits;
      bits += heads * s.queries * s.keys;
      sequences.push_back(s);
    };
    if (!by_sequence()) {
      for (int64_t b = 0; b < query.size(0); ++b) add({b, 0, query.size(2), 0, key.size(2)});
      return;
    }
    const std::vector<int64_t> query_ends = c.in_values(at.query_ends), key_ends = c.in_values(at.key_ends);
    if (query_ends.size() != key_ends.size()) refuse("as many ends of queries as of keys are needed");
    int64_t query_start = 0, key_start = 0;
    for (size_t i = 0; i < query_ends.size(); ++i) {
      // Zeros at the end stand for sequences that are left out.
      const int64_t query_end = std::max(query_ends[i], query_start), key_end = std::max(key_ends[i], key_start);
      if (query_end > query.size(2) || key_end > key.size(2)) refuse("a sequence ends behind the last position");
      add({0, query_start, query_end - query_start, key_start, key_end - key_start});
      query_start = query_end;
      key_start = key_end;
    }
  }

  int64_t index_of(const Sequence& s) const { return &s - sequences.data(); }

  void hide(const Sequence& s, int64_t h, FlashHead& head) const {
    int64_t mode = mode_;
    if (mode == kBandLast) mode = index_of(s) + 1 == static_cast<int64_t>(sequences.size()) ? kBand : kCausal;
    if (mode == kBandFirst) mode = index_of(s) == 0 ? kBand : kCausalTop;
    const int64_t last = s.keys - s.queries;  // from here on keys lie behind the last query
    switch (mode) {
      case kCausalTop:
        head.after = 0;
        return;
      case kCausal:
        head.after = 0;
        head.shift = last;
        return;
      case kBand:
        head.before = before_;
        head.after = after_;
        head.shift = last;
        return;
      case kPrefix:
        head.after = 0;
        head.shift = last;
        head.prefix = prefix_.at(static_cast<size_t>(index_of(s)));
        return;
      default:
        break;
    }
    head.mask = static_cast<const uint8_t*>(mask_.const_data_ptr());
    const int64_t rank = mask_.dim();
    const auto stride = [&](int64_t dim) { return mask_.size(dim) == 1 ? 0 : mask_.stride(dim); };
    if (rank == 4) head.mask += s.batch * stride(0) + h * stride(1);
    head.mask_row = mask_.size(rank - 2) == 1 ? 0 : mask_.stride(rank - 2);
    head.mask_column = mask_.size(rank - 1) == 1 ? 0 : 1;
  }

  bool by_distance(const Sequence& s) const {
    return by_sequence() || (bias_.size(2) == kAlibiRows && s.queries > kAlibiRows);
  }

  void add_bias(const Sequence& s, int64_t h, FlashHead& head) const {
    head.bias = static_cast<const char*>(bias_.const_data_ptr()) + bias_place(bias_, s, h) * bias_.element_size();
    head.bias_type = bias_.scalar_type();
    head.bias_factor = bias_factor_;
    head.bias_by_distance = by_distance(s);
    head.bias_last = bias_.size(3) - 1;
    head.bias_row = bias_.size(2) == 1 ? 0 : bias_.stride(2);
    head.bias_column = bias_.size(3) == 1 ? 0 : 1;
  }

  std::string layout_;
  int64_t mode_, before_, after_;
  float scale_, bias_factor_ = 1, keep_;
  Tensor bias_, bits_, mask_;
  std::vector<int64_t> prefix_;
};

bool like_inputs(OpContext& c, const char* attr) { return c.attrs().text(attr, "") == "same_as_input"; }

// query, key, value, real_shift, drop_mask, padding_mask, atten_mask, prefix, actual_seq_qlen, actual_seq_kvlen, ...,
// sink -> softmax_max, softmax_sum, softmax_out (absent), attention_out
void score(OpContext& c) {
  const Score s(c, kForward);
  const Tensor max = c.out(0), sum = c.out(1), result = c.out(3);
  const bool same = like_inputs(c, "softmax_out_layout");
  const bool single = result.scalar_type() == at::kFloat;
  const Tensor made = single ? result : at::empty(result.sizes(), at::kFloat);
  if (s.by_sequence()) {
    // Positions of no sequence.
    made.zero_();
    max.zero_();
    sum.zero_();
  }
  const Tensor out = s.heads_of(made, s.heads);
  flash_forward_all(
      s.sequences, s.heads, [&](const Sequence& sequence, int64_t h) { return s.head(sequence, h); },
      [&](const Sequence& sequence, int64_t h) { return flash_rows<float>(out, sequence.batch, h, sequence.query); },
      [&](const Sequence& sequence, int64_t h, int64_t first, int64_t count, const float* tops, const float* sums) {
        const auto [at, stride] = s.statistics_at(sequence, h, same);
        for (int64_t i = 0; i < count; ++i) {
          const int64_t to = at + (first + i) * stride;
          std::fill_n(max.mutable_data_ptr<float>() + to, kStatisticsWidth, tops[i]);
          std::fill_n(sum.mutable_data_ptr<float>() + to, kStatisticsWidth, sums[i]);
        }
      });
  if (!single) result.copy_(made);
}
SIM_OP(FlashAttentionScore)
    .inputs(3, 18)
    .outputs(4)
    .dtypes({kTypes, kTypes, kTypes, kTypes, dtype_bit(ACL_UINT8), kTypes, kBytes, dtype_bit(ACL_INT64),
             dtype_bit(ACL_INT64), dtype_bit(ACL_INT64), kAllTypes, kAllTypes, kAllTypes, kAllTypes, kAllTypes,
             kAllTypes, kAllTypes, dtype_bit(ACL_FLOAT)})
    .attrs({"scale_value:float", "keep_prob:float", "pre_tockens:int", "next_tockens:int", "head_num:int",
            "input_layout:str", "inner_precise:int", "sparse_mode:int", "pse_type:int", "softmax_out_layout:str"})
    .require({"head_num", "input_layout"})
    .on_cube()
    .run(score);

// query, key, value, dy, pse_shift, drop_mask, padding_mask, atten_mask, softmax_max, softmax_sum, softmax_in (absent),
// attention_in, prefix, actual_seq_qlen, actual_seq_kvlen, ..., sink -> dq, dk, dv, dpse, dq_rope and dk_rope (absent),
// dsink
void score_grad(OpContext& c) {
  const Score s(c, kBackward);
  const Tensor max = c.in(8), sum = c.in(9);
  const Tensor dy = widen(s.heads_of(c.in(3), s.heads)), out = widen(s.heads_of(c.in(11), s.heads));
  const bool same = like_inputs(c, "softmax_in_layout");
  std::array<Tensor, 3> gradients, made;
  for (size_t i = 0; i < 3; ++i) {
    made[i] = at::zeros(c.out(i).sizes(), at::kFloat);
    gradients[i] = s.heads_of(made[i], i == 0 ? s.heads : s.key_heads);
  }
  const Tensor dbias = s.bias().defined() ? at::zeros(s.bias().sizes(), at::kFloat) : Tensor();
  const Tensor dsink = s.sink.defined() ? at::zeros({s.heads}, at::kFloat) : Tensor();
  // Heads that share keys add to the same rows, one after the other; those that share a bias or a sink, too.
  const int64_t group = s.heads / s.key_heads;
  const bool shared = (dbias.defined() && (dbias.size(0) == 1 || dbias.size(1) == 1)) || dsink.defined();
  const int64_t tasks = static_cast<int64_t>(s.sequences.size()) * s.key_heads;
  flash_tasks(tasks, shared, [&](int64_t task) {
    const Sequence& sequence = s.sequences[static_cast<size_t>(task / s.key_heads)];
    std::vector<float> tops(static_cast<size_t>(sequence.queries)), sums(tops.size());
    for (int64_t h = task % s.key_heads * group; h < (task % s.key_heads + 1) * group; ++h) {
      const auto [at, stride] = s.statistics_at(sequence, h, same);
      for (int64_t i = 0; i < sequence.queries; ++i) {
        tops[static_cast<size_t>(i)] = max.const_data_ptr<float>()[at + i * stride];
        sums[static_cast<size_t>(i)] = sum.const_data_ptr<float>()[at + i * stride];
      }
      FlashGradient g;
      g.dout = flash_rows<const float>(dy, sequence.batch, h, sequence.query);
      g.out = flash_rows<const float>(out, sequence.batch, h, sequence.query);
      g.max = tops.data();
      g.sum = sums.data();
      g.dquery = flash_rows<float>(gradients[0], sequence.batch, h, sequence.query);
      g.dkey = flash_rows<float>(gradients[1], sequence.batch, h / group, sequence.key);
      g.dvalue = flash_rows<float>(gradients[2], sequence.batch, h / group, sequence.key);
      if (dbias.defined()) g.dbias = dbias.mutable_data_ptr<float>() + s.bias_place(dbias, sequence, h);
      if (dsink.defined()) g.dsink = dsink.mutable_data_ptr<float>() + h;
      flash_backward(s.head(sequence, h), g);
    }
  });
  for (size_t i = 0; i < 3; ++i) c.out(i).copy_(made[i]);
  if (dbias.defined()) c.out(3).copy_(dbias);
  if (dsink.defined()) c.out(6).copy_(dsink);
}
SIM_OP(FlashAttentionScoreGrad)
    .inputs(4, 25)
    .outputs(7)
    .dtypes({kTypes,
             kTypes,
             kTypes,
             kTypes,
             kTypes,
             dtype_bit(ACL_UINT8),
             kTypes,
             kBytes,
             dtype_bit(ACL_FLOAT),
             dtype_bit(ACL_FLOAT),
             kTypes,
             kTypes,
             dtype_bit(ACL_INT64),
             dtype_bit(ACL_INT64),
             dtype_bit(ACL_INT64),
             kAllTypes,
             kAllTypes,
             kAllTypes,
             kAllTypes,
             kAllTypes,
             kAllTypes,
             kAllTypes,
             kAllTypes,
             kAllTypes,
             dtype_bit(ACL_FLOAT)})
    .attrs({"scale_value:float", "keep_prob:float", "pre_tockens:int", "next_tockens:int", "head_num:int",
            "input_layout:str", "inner_precise:int", "sparse_mode:int", "pse_type:int", "softmax_in_layout:str"})
    .require({"head_num", "input_layout"})
    .on_cube()
    .run(score_grad);

}  // namespace
}  // namespace acl_sim
