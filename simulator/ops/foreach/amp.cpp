// The gradient scaler's operators: gradients times one factor, in place or into tensors of fp32, and a flag that is
// raised where any element was infinite or not a number. One pass over memory, in pieces that all cores take from all
// tensors.

#include <ATen/Parallel.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <vector>

#include "ops/half_elements.h"
#include "ops/multiversion.h"
#include "ops/nn_util.h"

namespace acl_sim {
namespace {

constexpr int64_t kPiece = 1 << 14;

// Whether all are finite.
template <class From>
SIM_INLINE bool check(const From* from, int64_t count) {
  uint32_t found = 0;
#pragma omp simd reduction(| : found)
  for (int64_t i = 0; i < count; ++i) {
    const auto bits = std::bit_cast<uint32_t>(read_element(from + i));
    found |= static_cast<uint32_t>((bits & 0x7F800000) == 0x7F800000);
  }
  return found == 0;
}

// The same, and to[i] = from[i] * factor; both may be one.
template <class From, class To>
SIM_INLINE bool scale(const From* from, To* to, int64_t count, float factor) {
  uint32_t found = 0;
#pragma omp simd reduction(| : found)
  for (int64_t i = 0; i < count; ++i) {
    const float value = read_element(from + i);
    found |= static_cast<uint32_t>((std::bit_cast<uint32_t>(value) & 0x7F800000) == 0x7F800000);
    write_element(to + i, value * factor);
  }
  return found == 0;
}

// The compiler makes its versions of functions, not of templates.
#define SIM_SCALE(From, To)                                                                  \
  SIM_MULTIVERSION bool scale_piece(const From* from, To* to, int64_t count, float factor) { \
    return scale(from, to, count, factor);                                                   \
  }
#define SIM_CHECK(From) \
  SIM_MULTIVERSION bool check_piece(const From* from, int64_t count) { return check(from, count); }
SIM_SCALE(float, float)
SIM_SCALE(c10::BFloat16, float)
SIM_SCALE(c10::Half, float)
SIM_SCALE(c10::BFloat16, c10::BFloat16)
SIM_SCALE(c10::Half, c10::Half)
SIM_CHECK(float)
SIM_CHECK(c10::BFloat16)
SIM_CHECK(c10::Half)
#undef SIM_SCALE
#undef SIM_CHECK

// From filters as the device keeps them, [rows, area, channels], to [rows, channels, area].
template <class From, class To>
bool scale_turned(const From* from, To* to, int64_t rows, int64_t channels, int64_t area, float factor) {
  uint32_t found = 0;
  for (int64_t r = 0; r < rows; ++r, from += channels * area) {
    for (int64_t c = 0; c < channels; ++c) {
      for (int64_t k = 0; k < area; ++k) {
        const float value = read_element(from + k * channels + c);
        found |= static_cast<uint32_t>((std::bit_cast<uint32_t>(value) & 0x7F800000) == 0x7F800000);
        write_element(to++, value * factor);
      }
    }
  }
  return found == 0;
}

struct Gradient {
  at::Tensor from, to;
  bool turned = false;
};

struct Piece {
  size_t gradient;
  int64_t begin, end;  // elements; of a turned one, rows
};

std::vector<Piece> pieces_of(const std::vector<Gradient>& gradients) {
  std::vector<Piece> pieces;
  for (size_t k = 0; k < gradients.size(); ++k) {
    const Gradient& g = gradients[k];
    const int64_t count = g.turned ? g.from.size(0) : g.from.numel();
    const int64_t step = g.turned ? std::max<int64_t>(1, kPiece * count / g.from.numel()) : kPiece;
    for (int64_t at = 0; at < count; at += step) pieces.push_back({k, at, std::min(at + step, count)});
  }
  return pieces;
}

template <class From, class To>
bool run_piece(const Gradient& g, const Piece& piece, float factor) {
  const From* from = g.from.const_data_ptr<From>();
  To* to = g.to.mutable_data_ptr<To>();
  const int64_t begin = piece.begin, count = piece.end - piece.begin;
  if (g.turned) {
    const int64_t channels = g.from.size(1), area = g.from.size(2) * g.from.size(3), row = channels * area;
    return scale_turned(from + begin * row, to + begin * row, count, channels, area, factor);
  }
  // With a factor of one, gradients that stay where they are need not be written again.
  const bool only_check = factor == 1 && static_cast<const void*>(from) == static_cast<const void*>(to);
  return only_check ? check_piece(from + begin, count) : scale_piece(from + begin, to + begin, count, factor);
}

// Returns false where there is no loop for these types.
bool run(const std::vector<Gradient>& gradients, const at::Tensor& found, float factor) {
  using Run = bool (*)(const Gradient&, const Piece&, float);
  const auto run_for = [](const Gradient& g) -> Run {
    const at::ScalarType from = g.from.scalar_type(), to = g.to.scalar_type();
    if (to == at::kFloat) {
      if (from == at::kFloat) return run_piece<float, float>;
      if (from == at::kBFloat16) return run_piece<c10::BFloat16, float>;
      if (from == at::kHalf) return run_piece<c10::Half, float>;
    }
    if (from == to && to == at::kBFloat16) return run_piece<c10::BFloat16, c10::BFloat16>;
    if (from == to && to == at::kHalf) return run_piece<c10::Half, c10::Half>;
    return nullptr;
  };
  // The elements of one operand list have one dtype.
  const Run run = run_for(gradients.front());
  if (run == nullptr) return false;
  const std::vector<Piece> pieces = pieces_of(gradients);
  std::atomic<bool> overflow{false};
  at::parallel_for(0, static_cast<int64_t>(pieces.size()), 4, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const Piece& piece = pieces[static_cast<size_t>(i)];
      if (!run(gradients[piece.gradient], piece, factor)) overflow.store(true, std::memory_order_relaxed);
    }
  });
  if (overflow.load()) *found.mutable_data_ptr<float>() = 1;
  return true;
}

// Output `found_inf`, in the place of the input of that name.
at::Tensor found_inf(OpContext& c, size_t input, size_t output) {
  const at::Tensor before = c.in(input), after = c.out(output);
  if (before.const_data_ptr() != after.const_data_ptr()) after.copy_(before);
  return after;
}

// Inputs: the gradients, found_inf, inv_scale; outputs: the gradients, found_inf, each in the place of its input.
void unscale(OpContext& c) {
  if (c.num_inputs() < 3 || c.num_outputs() + 1 != c.num_inputs()) {
    refuse("as many outputs as inputs without inv_scale expected");
  }
  const size_t n = c.num_outputs() - 1;
  std::vector<Gradient> gradients(n);
  bool dense = true;
  for (size_t k = 0; k < n; ++k) {
    const at::Tensor before = c.in_any(k);
    at::Tensor after = c.out_as(k, before);
    if (before.const_data_ptr() != after.const_data_ptr()) {
      after.copy_(before);
    }
    dense = dense && after.is_non_overlapping_and_dense();
    gradients[k] = {after, after};
  }
  at::Tensor found = found_inf(c, n, n);
  const at::Tensor inverse = c.in(n + 1);
  if (dense && run(gradients, found, *inverse.const_data_ptr<float>())) return;
  std::vector<at::Tensor> all;
  all.reserve(n);
  for (const Gradient& g : gradients) all.push_back(g.to);
  at::_amp_foreach_non_finite_check_and_unscale_(all, found, inverse);
}

// Inputs: the gradients, found_inf, inv_scale; outputs: tensors of their shapes, found_inf in the place of its input.
void unscale_into(OpContext& c) {
  if (c.num_inputs() < 3 || c.num_outputs() + 1 != c.num_inputs()) {
    refuse("as many outputs as inputs without inv_scale expected");
  }
  const size_t n = c.num_outputs() - 1;
  std::vector<Gradient> gradients(n);
  for (size_t k = 0; k < n; ++k) {
    const bool turned = stored_channels_last(c.in_any(k));
    const at::Tensor from = turned ? c.in_channels_last(k) : c.in(k), to = c.out(k);
    if (from.sizes() != to.sizes()) refuse("an output has another shape than its gradient");
    gradients[k] = {from, to, turned && from.size(1) != 1 && from.size(2) * from.size(3) != 1};
  }
  const at::Tensor found = found_inf(c, n, n), inverse = c.in(n + 1);
  if (!run(gradients, found, *inverse.const_data_ptr<float>())) refuse("no loop for these dtypes");
}

SIM_OP(ForeachNonFiniteCheckAndUnscale).inputs(3, kManyInputs).outputs(2, kManyInputs).dtypes(kFloatTypes).run(unscale);
SIM_OP(ForeachUnscaleInto)
    .inputs(3, kManyInputs)
    .outputs(2, kManyInputs)
    .dtypes(dtype_bit(ACL_FLOAT) | dtype_bit(ACL_FLOAT16) | dtype_bit(ACL_BF16))
    .run(unscale_into);

}  // namespace
}  // namespace acl_sim
