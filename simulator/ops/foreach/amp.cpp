// The gradient scaler's operator: multiplies a list of gradients by one factor in place and raises a flag where any
// element was infinite or not a number.

#include <ATen/Parallel.h>

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "ops/multiversion.h"
#include "ops/nn_util.h"

namespace acl_sim {
namespace {

constexpr int64_t kBlock = 4096;
constexpr int64_t kGrain = 1 << 16;
constexpr uint32_t kExponent = 0x7F800000;

SIM_MULTIVERSION bool all_finite(const uint32_t* values, int64_t count) {
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    const int64_t end = std::min(count, begin + kBlock);
    uint32_t found = 0;
#pragma omp simd reduction(| : found)
    for (int64_t i = begin; i < end; ++i) found |= static_cast<uint32_t>((values[i] & kExponent) == kExponent);
    if (found) return false;
  }
  return true;
}

// With a scale of one nothing changes: gradients are read, and not written again.
void only_check(const std::vector<at::Tensor>& grads, const at::Tensor& found) {
  std::atomic<bool> overflow{false};
  for (const at::Tensor& grad : grads) {
    const auto* values = reinterpret_cast<const uint32_t*>(grad.const_data_ptr<float>());
    at::parallel_for(0, grad.numel(), kGrain, [&](int64_t begin, int64_t end) {
      if (!all_finite(values + begin, end - begin)) overflow.store(true, std::memory_order_relaxed);
    });
  }
  if (overflow.load()) *found.mutable_data_ptr<float>() = 1;
}

// Inputs: the gradients, found_inf, inv_scale; outputs: the gradients, found_inf, each in the place of its input.
void unscale(OpContext& c) {
  if (c.num_inputs() < 3 || c.num_outputs() + 1 != c.num_inputs()) {
    refuse("as many outputs as inputs without inv_scale expected");
  }
  const size_t n = c.num_outputs() - 1;
  std::vector<at::Tensor> grads;
  grads.reserve(n);
  for (size_t k = 0; k <= n; ++k) {
    const at::Tensor before = c.in_any(k);
    at::Tensor after = c.out_as(k, before);
    if (before.const_data_ptr() != after.const_data_ptr()) {
      after.copy_(before);
    }
    grads.push_back(after);
  }
  at::Tensor found = grads.back();
  grads.pop_back();
  const at::Tensor inverse = c.in(n + 1);
  const bool dense = std::all_of(grads.begin(), grads.end(), [](const at::Tensor& grad) {
    return grad.scalar_type() == at::kFloat && grad.is_non_overlapping_and_dense();
  });
  if (dense && *inverse.const_data_ptr<float>() == 1) return only_check(grads, found);
  at::_amp_foreach_non_finite_check_and_unscale_(grads, found, inverse);
}

SIM_OP(ForeachNonFiniteCheckAndUnscale).inputs(3, kManyInputs).outputs(2, kManyInputs).dtypes(kFloatTypes).run(unscale);

}  // namespace
}  // namespace acl_sim
