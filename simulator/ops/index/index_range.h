#pragma once
// Ranges of integer operands with which CPU kernels address memory unchecked. Such an operand may hold anything: what
// an operator that failed should have written is left as it was, and work queued behind it runs.

#include <ATen/ATen.h>

namespace acl_sim {

// Fails the operator unless all of `values`, integers, are from `least` to `most`.
inline void check_range(const at::Tensor& values, int64_t least, int64_t most, const char* name) {
  if (!values.defined() || values.numel() == 0) return;
  // In the order of memory: another one would be a copy.
  const bool flat = !values.is_contiguous() && values.is_non_overlapping_and_dense();
  const auto [lowest, highest] = at::aminmax(flat ? values.as_strided({values.numel()}, {1}) : values);
  const auto low = lowest.item<int64_t>(), high = highest.item<int64_t>();
  TORCH_CHECK(low >= least && high <= most, name, " ", low < least ? low : high, " is out of range: it must be from ",
              least, " to ", most);
}

// The same for positions within the last `dims` dimensions of `in`, as pooling gives them.
inline void check_positions(const at::Tensor& positions, const at::Tensor& in, int64_t dims) {
  check_range(positions, 0, c10::multiply_integers(in.sizes().slice(in.dim() - dims)) - 1, "position");
}

// The same for offsets that begin parts of `size` elements: each from 0 to size, and none below the one before.
inline void check_offsets(const at::Tensor& offsets, int64_t size, const char* name) {
  check_range(offsets, 0, size, name);
  if (offsets.defined() && offsets.numel() > 1 && offsets.size(-1) > 1) {
    check_range(at::diff(offsets), 0, size, "the step between offsets");
  }
}

}  // namespace acl_sim
