// See the header.

#include <ATen/native/npu/frame/layout/Strides.h>

#include <ATen/native/npu/frame/inference/Allocate.h>

#include <algorithm>
#include <numeric>

namespace at::native::npu {

Tensor in_memory_order(const Tensor& dense) {
  return dense.is_contiguous() ? dense : alias(dense, {dense.numel()}, {1}, dense.storage_offset());
}

bool is_contiguous_as(IntArrayRef sizes, IntArrayRef strides) {
  int64_t expected = 1;
  for (size_t i = sizes.size(); i-- > 0;) {
    if (sizes[i] == 1) continue;
    if (sizes[i] == 0) return true;
    if (strides[i] != expected) return false;
    expected *= sizes[i];
  }
  return true;
}

DimVector memory_order(IntArrayRef sizes, IntArrayRef strides) {
  DimVector order(sizes.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return strides[a] > strides[b]; });
  return order;
}

bool is_dense(IntArrayRef sizes, IntArrayRef strides) {
  const DimVector order = memory_order(sizes, strides);
  DimVector dims, steps;
  for (const int64_t d : order) {
    if (sizes[d] == 1) continue;
    dims.push_back(sizes[d]);
    steps.push_back(strides[d]);
  }
  return is_contiguous_as(dims, steps);
}

int64_t extent(IntArrayRef sizes, IntArrayRef strides) {
  int64_t last = 0;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] == 0) return 0;
    last += (sizes[i] - 1) * strides[i];
  }
  return last + 1;
}

Tensor without_repeats(const Tensor& self) {
  Tensor place = self;
  for (int64_t d = self.dim() - 1; d >= 0; --d) {
    if (self.stride(d) == 0 && self.size(d) > 1) place = place.select(d, 0);
  }
  return place;
}

}  // namespace at::native::npu
