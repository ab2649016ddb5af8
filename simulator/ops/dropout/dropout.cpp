// Dropout with masks that are kept as bits, and draws of random indices. A mask holds one bit per element, the lowest
// bit first, in whole blocks of 128; masks of the V3 generator hold one byte per element.

#include <ATen/Parallel.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "ops/nn_util.h"
#include "ops/random/philox.h"

namespace acl_sim {
namespace {

using at::Tensor;

// Which elements are kept? Four of them share a block of random words, so they are drawn by fours.
struct Draw {
  uint64_t seed, offset;
  float keep;
  // Calls visit(i, is element i kept) for the elements [begin, end); begin is a multiple of four.
  template <class Visit>
  void each(int64_t begin, int64_t end, const Visit& visit) const {
    for (int64_t i = begin; i < end; i += 4) {
      const std::array<uint32_t, 4> words = philox_block(seed, offset, static_cast<uint64_t>(i / 4));
      for (int64_t k = 0; k < std::min<int64_t>(4, end - i); ++k) visit(i + k, unit_float(words[k]) < keep);
    }
  }
};

Draw draw_of(OpContext& c) {
  const auto seed = static_cast<uint64_t>(c.in_values(2).at(0));
  return {seed, static_cast<uint64_t>(c.in_values(4).back()), c.in_scalar(1).toFloat()};
}

// shape, keep probability, seed, seed1, offset -> mask
void gen_mask(OpContext& c) {
  const Draw draw = draw_of(c);
  const Tensor mask = c.out(0);
  auto* bytes = mask.mutable_data_ptr<uint8_t>();
  at::parallel_for(0, mask.numel(), 1 << 12, [&](int64_t begin, int64_t end) {
    std::fill(bytes + begin, bytes + end, uint8_t{0});
    draw.each(8 * begin, 8 * end,
              [&](int64_t i, bool kept) { bytes[i >> 3] |= static_cast<uint8_t>(kept << (i & 7)); });
  });
}
const std::vector<DtypeSet> kGenTypes = {kIntTypes, kFloatTypes, kIntTypes, kIntTypes, kIntTypes};
SIM_OP(StatelessDropOutGenMask).inputs(5).dtypes(kGenTypes).run(gen_mask);

// The same with a byte per element.
void gen_byte_mask(OpContext& c) {
  const Draw draw = draw_of(c);
  const Tensor mask = c.out(0);
  auto* bytes = mask.mutable_data_ptr<uint8_t>();
  const int64_t fours = (mask.numel() + 3) / 4;
  at::parallel_for(0, fours, 1 << 10, [&](int64_t begin, int64_t end) {
    draw.each(4 * begin, std::min(4 * end, mask.numel()), [&](int64_t i, bool kept) { bytes[i] = kept ? 1 : 0; });
  });
}
SIM_OP(StatelessDropOutGenByteMask).inputs(5).dtypes(kGenTypes).run(gen_byte_mask);

// The mask as 0 and 1 in the shape of `like`.
Tensor spread(const Tensor& mask, const Tensor& like) {
  const int64_t n = like.numel();
  if (8 * mask.numel() < n) refuse("a dropout mask of " + std::to_string(mask.numel()) + " bytes is too short");
  Tensor out = at::empty(like.sizes(), at::kFloat);
  const auto* bytes = mask.const_data_ptr<uint8_t>();
  auto* p = out.data_ptr<float>();
  at::parallel_for(0, n, 1 << 14, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) p[i] = static_cast<float>(bytes[i >> 3] >> (i & 7) & 1);
  });
  return out;
}

// x, mask, keep probability -> x / keep where kept, else 0
void do_mask(OpContext& c) {
  const Tensor x = c.in(0);
  const double keep = c.in_scalar(2).toDouble();
  const Tensor kept = spread(c.in(1), x);
  c.out(0).copy_(keep == 0 ? at::zeros_like(x) : at::where(kept > 0, widen(x) / keep, 0));
}
SIM_OP(DropOutDoMask).inputs(3).dtypes({kFloatTypes, dtype_bit(ACL_UINT8), kFloatTypes}).run(do_mask);

// x, seed -> y, mask (0 and 1 in x's dtype), seed. The seed's content is the state of the generator.
void dropout_v2(OpContext& c) {
  const Tensor x = c.in(0), state = c.in(1);
  const double drop = c.attrs().real("p", 0.5);
  uint64_t key = 0xCBF29CE484222325ULL;
  const auto* bytes = static_cast<const uint8_t*>(state.const_data_ptr());
  for (size_t i = 0; i < state.nbytes(); ++i) key = (key ^ bytes[i]) * 0x100000001B3ULL;
  const Draw draw{key, 1, static_cast<float>(1 - drop)};
  const Tensor kept = at::empty(x.sizes(), at::kFloat);
  auto* p = kept.mutable_data_ptr<float>();
  draw.each(0, x.numel(), [&](int64_t i, bool kept) { p[i] = kept ? 1.0F : 0.0F; });
  const Tensor next = at::empty(state.sizes(), at::kFloat);
  for (int64_t i = 0; i < next.numel(); ++i) {
    next.mutable_data_ptr<float>()[i] = unit_float(philox_block(key, 2, static_cast<uint64_t>(i / 4))[i % 4]);
  }
  c.out(0).copy_(drop == 1 ? at::zeros_like(x) : at::where(kept > 0, widen(x) / (1 - drop), 0));
  c.out(1).copy_(kept);
  c.out(2).copy_(next);
}
SIM_OP(DropoutV2).inputs(2).outputs(3).dtypes(kFloatTypes).attrs({"p:float"}).require({"p"}).run(dropout_v2);

// x1, x, byte mask -> softmax(x1 + alpha * x), and that with dropout
void softmax_dropout(OpContext& c) {
  const Tensor x1 = widen(c.in(0)), x = widen(c.in(1));
  const int64_t axis = c.attrs().integers("axis", {-1}).at(0);
  const double keep = c.attrs().real("input_keep_prob", 1);
  const Tensor kept = c.in(2).narrow(0, 0, x.numel()).view(x.sizes());
  const Tensor soft = at::softmax(x1 + x * c.attrs().real("alpha", 1), axis);
  c.out(0).copy_(soft);
  c.out(1).copy_(keep == 0 ? at::zeros_like(soft) : soft * kept / keep);
}
SIM_OP(AxpyWithSoftmaxAndDropOutDoMask)
    .inputs(3)
    .outputs(2)
    .dtypes({kFloatTypes, kFloatTypes, dtype_bit(ACL_UINT8)})
    .attrs({"alpha:float", "input_keep_prob:float", "axis:ints"})
    .require({"alpha", "input_keep_prob"})
    .run(softmax_dropout);

// grad, byte mask, softmax -> alpha times the gradient of the softmax's input
void softmax_dropout_grad(OpContext& c) {
  const Tensor grad = widen(c.in(0)), soft = widen(c.in(2));
  const int64_t axis = c.attrs().integers("axes", {-1}).at(0);
  const double keep = c.attrs().real("input_keep_prob", 1);
  const Tensor kept = c.in(1).narrow(0, 0, soft.numel()).view(soft.sizes());
  const Tensor through = keep == 0 ? at::zeros_like(grad) : grad * kept / keep;
  c.out(0).copy_((through - (through * soft).sum(axis, true)) * soft * c.attrs().real("alpha", 1));
}
SIM_OP(DropoutWithMulsAndSoftmaxGrad)
    .inputs(3)
    .dtypes({kFloatTypes, dtype_bit(ACL_UINT8), kFloatTypes})
    .attrs({"alpha:float", "input_keep_prob:float", "axes:ints"})
    .require({"alpha", "input_keep_prob"})
    .run(softmax_dropout_grad);

// x -> indices of `count` of its non-zero elements in random order, and which rows are indices
void random_choice(OpContext& c) {
  const Tensor found = at::nonzero(c.in(0));
  const auto seed = static_cast<uint64_t>(c.attrs().integer("seed", 0));
  const auto seed2 = static_cast<uint64_t>(c.attrs().integer("seed2", 0));
  const int64_t n = found.size(0), count = c.out(0).size(0);
  std::vector<int64_t> order(n);
  std::iota(order.begin(), order.end(), 0);
  for (int64_t i = 0; i < std::min(n, count); ++i) {
    const std::array<uint32_t, 4> w = philox_block(seed, seed2, static_cast<uint64_t>(i));
    const uint64_t word = uint64_t{w[0]} << 32 | w[1];
    std::swap(order[i], order[i + static_cast<int64_t>(word % static_cast<uint64_t>(n - i))]);
  }
  order.resize(std::min(n, count));
  const auto chosen = static_cast<int64_t>(order.size());
  Tensor index = c.out(0), valid = c.out(1);
  index.zero_();
  valid.zero_();
  index.narrow(0, 0, chosen).copy_(found.index_select(0, at::tensor(order, at::kLong)));
  valid.narrow(0, 0, chosen).fill_(true);
}
SIM_OP(RandomChoiceWithMask)
    .inputs(1)
    .outputs(2)
    .dtypes(kAllTypes)
    .attrs({"count:int", "seed:int", "seed2:int"})
    .run(random_choice);

}  // namespace
}  // namespace acl_sim
