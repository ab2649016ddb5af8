// Attention in blocks for npu_fusion_attention: FlashAttentionScore and FlashAttentionScoreGrad, which keep no matrix
// of scores. The simulated device takes every call that it has a dtype for; another is given what CANN documents.

#include <ATen/native/npu/attention/FusionAttention.h>
#include <ATen/native/npu/attention/Transformed.h>
#include <ATen/native/npu/frame/command/DeviceOf.h>
#include <ATen/native/npu/frame/command/Missing.h>
#include <ATen/native/npu/frame/command/OpCommand.h>
#include <ATen/native/npu/frame/inference/NewLike.h>
#include <ATen/native/npu/frame/registration/CustomAutograd.h>

#include <ATen/core/LegacyTypeDispatch.h>

#include <algorithm>
#include <string>

namespace at::native::npu {
namespace fusion_attention {
namespace {

// Sizes that CANN documents.
constexpr int64_t kMostHeads = 256, kWidest = 768, kMaskSize = 2048, kPrefixMaskRows = 3072;

bool small_float(ScalarType type) { return type == kHalf || type == kBFloat16 || type == kFloat; }

// What CANN documents of a mask: compressed ones are of one size, and no row hides everything, which cannot be known
// from here of one that is given.
bool documented_mask(const Call& c, const Parts& all) {
  if (!given(c.mask)) return true;
  const Tensor& mask = *c.mask;
  if (c.mode == kGiven || c.mode == kAll || c.mode == kPrefixGiven) return false;
  const int64_t rows = c.mode == kPrefix ? kPrefixMaskRows : kMaskSize;
  if (mask.dim() != 2 || mask.size(0) != rows || mask.size(1) != kMaskSize) return false;
  if (c.mode == kPrefix) return !c.by_sequence();
  // A band must show something to each query.
  if (c.before < 0 || c.after < 0) return false;
  return std::all_of(all.parts.begin(), all.parts.end(), [&](const Part& p) {
    return p.queries() == p.keys() || (c.mode == kCausal && p.queries() < p.keys());
  });
}

bool documented(const Call& c, const Tensor& q, const Tensor& v, const Parts& all) {
  const Part& first = all.parts[0];
  const int64_t width = first.query.size(3), value_width = first.value.size(3);
  return c.heads <= kMostHeads && width <= kWidest && value_width == width && !given(c.pse) && !given(c.sink) &&
         v.scalar_type() == q.scalar_type() && documented_mask(c, all) && c.statistics.empty() &&
         std::all_of(all.parts.begin(), all.parts.end(), [](const Part& p) { return p.queries() > 0 && p.keys() > 0; });
}

// A list of the host, absent where there is none.
void add_list(OpCommand& cmd, OptionalIntArrayRef list) {
  if (list.has_value()) {
    cmd.Input(*list);
  } else {
    cmd.Input();
  }
}

void add_attributes(OpCommand& cmd, const Call& c, const char* statistics_attr) {
  cmd.Attr("scale_value", c.scale).Attr("keep_prob", c.keep).Attr("pre_tockens", c.before);
  cmd.Attr("next_tockens", c.after).Attr("head_num", c.heads).Attr("input_layout", std::string(c.layout));
  // 2: rows in which everything is hidden are told apart.
  cmd.Attr("inner_precise", given(c.mask) ? 2 : 0).Attr("sparse_mode", given(c.mask) ? c.mode : 0);
  cmd.Attr("pse_type", 1);
  if (c.by_sequence() && c.statistics == "TND") cmd.Attr(statistics_attr, "same_as_input");
}

// Absent operands up to the sink, if there is one.
void add_sink(OpCommand& cmd, const Call& c, int absent) {
  if (!given(c.sink)) return;
  for (int i = 0; i < absent; ++i) cmd.Input();
  cmd.Input(c.sink->to(kFloat));
}

// The result's shape: that of the query with the width of the value.
DimVector result_sizes(const Call& c, const Tensor& q, const Part& p) {
  DimVector sizes(q.sizes());
  sizes.back() = c.layout == "BSH" || c.layout == "SBH" ? c.heads * p.value.size(3) : p.value.size(3);
  return sizes;
}

Attended attend(const Call& c, const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& kept) {
  const DeviceOf guard(q);
  const Parts all = split(c, q, k, v);
  const Part& first = all.parts[0];
  const Tensor out = new_like(q, result_sizes(c, q, first));
  const Tensor max = new_like(q, statistics_sizes(c, q, all), kFloat), sum = new_like(max);
  OpCommand cmd;
  cmd.Name("FlashAttentionScore").Input(q).Input(k).Input(v).InputOptional(c.pse).Input(kept).Input();
  cmd.InputOptional(c.mask);
  add_list(cmd, c.mode == kPrefix ? c.prefix : OptionalIntArrayRef());
  add_list(cmd, c.by_sequence() ? c.query_ends : OptionalIntArrayRef());
  add_list(cmd, c.by_sequence() ? c.key_ends : OptionalIntArrayRef());
  add_sink(cmd, c, 7);
  cmd.Output(max).Output(sum).Output().Output(out);
  add_attributes(cmd, c, "softmax_out_layout");
  cmd.Run();
  return {out, max, sum};
}

struct Attention : Function<Attention> {
  static variable_list forward(AutogradContext* ctx, const Tensor& q, const Tensor& k, const Tensor& v,
                               const std::optional<Tensor>& pse, const std::optional<Tensor>& sink, const Call& c,
                               const std::optional<Tensor>& kept_bits) {
    const at::AutoDispatchBelowADInplaceOrView below;
    const Tensor kept = value_of(kept_bits);
    const Attended a = attend(c, q, k, v, kept);
    ctx->save_for_backward({q, k, v, value_of(pse), value_of(sink), value_of(c.mask), kept, a.out, a.max, a.sum});
    auto& d = ctx->saved_data;
    const auto list = [](OptionalIntArrayRef l) { return l.has_value() ? c10::IValue(l->vec()) : c10::IValue(); };
    d["heads"] = c.heads;
    d["layout"] = std::string(c.layout);
    d["scale"] = c.scale;
    d["keep"] = c.keep;
    d["before"] = c.before;
    d["after"] = c.after;
    d["prefix"] = list(c.prefix);
    d["query_ends"] = list(c.query_ends);
    d["key_ends"] = list(c.key_ends);
    d["mode"] = c.mode;
    d["statistics"] = std::string(c.statistics);
    ctx->mark_non_differentiable({a.max, a.sum});
    return {a.out, a.max, a.sum};
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const auto s = ctx->get_saved_variables();
    auto& d = ctx->saved_data;
    const std::optional<Tensor> pse = npu::given(s[3]), sink = npu::given(s[4]), mask = npu::given(s[5]);
    std::vector<int64_t> lists[3];
    const auto list = [&](const char* name, std::vector<int64_t>& numbers) {
      if (d[name].isNone()) return OptionalIntArrayRef();
      numbers = d[name].toIntVector();
      return OptionalIntArrayRef(numbers);
    };
    const std::string layout = d["layout"].toStringRef(), statistics = d["statistics"].toStringRef();
    const Call c{"npu_fusion_attention_grad",
                 d["heads"].toInt(),
                 layout,
                 pse,
                 mask,
                 sink,
                 d["scale"].toDouble(),
                 d["keep"].toDouble(),
                 d["before"].toInt(),
                 d["after"].toInt(),
                 list("prefix", lists[0]),
                 list("query_ends", lists[1]),
                 list("key_ends", lists[2]),
                 d["mode"].toInt(),
                 statistics};
    const NoAutocast guard;
    // A gradient that is to be differentiated is made of operators that can be.
    const auto g = at::GradMode::is_enabled()
                       ? composed_gradients(c, s[0], s[1], s[2], grads[0], s[6], std::nullopt)
                       : gradients_in_blocks(c, s[0], s[1], s[2], grads[0], s[6], {s[7], s[8], s[9]});
    return {g[0], g[1], g[2], pse ? g[3] : Tensor(), sink ? g[4] : Tensor(), {}, {}};
  }
};

}  // namespace

bool in_blocks(const Call& c, const Tensor& q, const Tensor& k, const Tensor& v, const Parts& all) {
  if (!q.is_privateuseone() || !small_float(q.scalar_type()) || lacks("FlashAttentionScore")) return false;
  if (q.sym_numel() == 0 || k.sym_numel() == 0 || v.sym_numel() == 0) return false;
  for (const Tensor* t : {&q, &k, &v}) {
    if (transformed(*t)) return false;
  }
  if (given(c.pse) && (transformed(*c.pse) || !small_float(c.pse->scalar_type()))) return false;
  if (given(c.sink) && transformed(*c.sink)) return false;
  if (given(c.mask) && c.mask->scalar_type() != kBool && c.mask->scalar_type() != kByte) return false;
  // A device that lacks operators of the simulated one is CANN's.
  return !lacks("DotProductAttention") || documented(c, q, v, all);
}

Attended attend_in_blocks(const Call& c, const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& kept) {
  const variable_list a = Attention::apply(q, k, v, c.pse, c.sink, c, npu::given(kept));
  return {a[0], a[1], a[2]};
}

std::array<Tensor, 5> gradients_in_blocks(const Call& c, const Tensor& q, const Tensor& k, const Tensor& v,
                                          const Tensor& dy, const Tensor& kept, const Attended& a) {
  const at::AutoDispatchBelowADInplaceOrView below;
  const DeviceOf guard(q);
  const Tensor dq = new_like(q), dk = new_like(k), dv = new_like(v);
  const Tensor none = new_like(q, {0});
  const Tensor dpse = given(c.pse) ? new_like(*c.pse) : none;
  const Tensor dsink = given(c.sink) ? new_like(*c.sink, c.sink->sizes(), kFloat) : none;
  OpCommand cmd;
  cmd.Name("FlashAttentionScoreGrad").Input(q).Input(k).Input(v).Input(dy.to(q.scalar_type())).InputOptional(c.pse);
  cmd.Input(kept).Input().InputOptional(c.mask).Input(a.max).Input(a.sum).Input().Input(a.out);
  add_list(cmd, c.mode == kPrefix ? c.prefix : OptionalIntArrayRef());
  add_list(cmd, c.by_sequence() ? c.query_ends : OptionalIntArrayRef());
  add_list(cmd, c.by_sequence() ? c.key_ends : OptionalIntArrayRef());
  add_sink(cmd, c, 9);
  cmd.Output(dq).Output(dk).Output(dv);
  given(c.pse) ? cmd.Output(dpse) : cmd.Output();
  cmd.Output().Output();
  given(c.sink) ? cmd.Output(dsink) : cmd.Output();
  add_attributes(cmd, c, "softmax_in_layout");
  cmd.Run();
  return {dq, dk, dv, dpse, given(c.sink) ? dsink.to(c.sink->scalar_type()) : none};
}

}  // namespace fusion_attention
}  // namespace at::native::npu
