#pragma once
// What npu_fusion_attention and its gradient are called with, checked and brought to one form, and the two ways to
// compute it.

#include <ATen/core/Tensor.h>
#include <ATen/native/npu/frame/inference/Wide.h>

#include <array>
#include <optional>
#include <string_view>
#include <tuple>
#include <vector>

namespace at::native::npu::fusion_attention {

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
  size_t index;  // among all parts

  int64_t queries() const { return query.size(2); }
  int64_t keys() const { return key.size(2); }
};

struct Range {
  int64_t start, length;
};

struct Parts {
  std::vector<Part> parts;
  std::vector<Range> queries, keys;  // of layout TND
  int64_t key_heads;
};

void check_call(const Call& c, const Tensor& q, const Tensor& k, const Tensor& v,
                const std::optional<Tensor>& padding_mask);

// A sequence of layout TND each, or all of another layout; everything that comes with them fits.
Parts split(const Call& c, const Tensor& q, const Tensor& k, const Tensor& v);

// (batch, heads, positions, width) of a tensor of any layout but TND, and back.
Tensor to_heads(const Tensor& t, std::string_view layout, int64_t heads);
Tensor from_heads(const Tensor& t, std::string_view layout);

// The mode of one part, where modes differ between the first or last one and the others.
int64_t mode_of(const Call& c, size_t index, size_t count);

// Whether the position bias holds only the last rows of one that depends on distances alone (ALiBi).
bool compressed(const Call& c, int64_t queries);

struct Attended {
  Tensor out, max, sum;  // as npu_fusion_attention gives them
};
// Refuses what is not the result of such a call.
void check_attended(const Call& c, const Tensor& q, const Tensor& dy, const Parts& all, const Attended& attended);
DimVector statistics_sizes(const Call& c, const Tensor& q, const Parts& all);

// ---- as one operator of the device, FlashAttentionKernel.cpp
// Whether it computes this call: it keeps no matrix of scores.
bool in_blocks(const Call& c, const Tensor& q, const Tensor& k, const Tensor& v, const Parts& all);

// Differentiable. `kept` are the bits of dropout, or undefined.
Attended attend_in_blocks(const Call& c, const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& kept);
std::array<Tensor, 5> gradients_in_blocks(const Call& c, const Tensor& q, const Tensor& k, const Tensor& v,
                                          const Tensor& dy, const Tensor& kept, const Attended& attended);

// ---- composed of other operators, FusionAttentionKernel.cpp
std::array<Tensor, 5> composed_gradients(const Call& c, const Tensor& q, const Tensor& k, const Tensor& v,
                                         const Tensor& dy, const Tensor& kept, const std::optional<Attended>& attended);

}  // namespace at::native::npu::fusion_attention
