// npu operators that move and select elements. Each is made of differentiable operators, so gradients and shapes of
// fake tensors follow; results are contiguous and never views, as their schemas say.

#include <ATen/ATen.h>
#include <ATen/native/npu/frame/inference/Give.h>
#include <ATen/native/npu/frame/inference/NewLike.h>
#include <NPUCustomFunctions.h>

namespace at::native::npu {
namespace {

Tensor fresh(const Tensor& view) { return view.clone(MemoryFormat::Contiguous); }

// What a begin/end/stride triple selects along one dimension.
struct Range {
  int64_t first, step, count;
};

Range resolve(int64_t size, int64_t begin, int64_t end, int64_t stride, bool from_start, bool to_end) {
  const int64_t low = stride > 0 ? 0 : -1, high = stride > 0 ? size : size - 1;
  const auto place = [&](int64_t i) { return std::clamp(i < 0 ? i + size : i, low, high); };
  const int64_t first = from_start ? (stride > 0 ? low : high) : place(begin);
  const int64_t last = to_end ? (stride > 0 ? high : low) : place(end);
  const int64_t span = stride > 0 ? last - first : first - last, step = std::abs(stride);
  return {first, stride, span > 0 ? (span + step - 1) / step : 0};
}

Tensor select_range(const Tensor& t, int64_t dim, const Range& r) {
  if (r.count == 0) return t.narrow(dim, 0, 0);
  if (r.step > 0) return t.slice(dim, r.first, r.first + (r.count - 1) * r.step + 1, r.step);
  const int64_t lowest = r.first + (r.count - 1) * r.step;
  return t.slice(dim, lowest, r.first + 1, -r.step).flip(dim);
}

Tensor strided_slice(const Tensor& self, IntArrayRef begin, IntArrayRef end, IntArrayRef strides, int64_t begin_mask,
                     int64_t end_mask, int64_t ellipsis_mask, int64_t new_axis_mask, int64_t shrink_axis_mask) {
  TORCH_CHECK(begin.size() == end.size() && begin.size() == strides.size(),
              "npu_indexing: begin, end and strides have ", begin.size(), ", ", end.size(), " and ", strides.size(),
              " elements, expected as many of each");
  const auto bit = [](int64_t mask, size_t i) { return (mask >> i & 1) != 0; };
  int64_t taken = 0, ellipses = 0;
  for (size_t i = 0; i < begin.size(); ++i) {
    ellipses += bit(ellipsis_mask, i);
    taken += !bit(ellipsis_mask, i) && !bit(new_axis_mask, i);
  }
  TORCH_CHECK(ellipses <= 1, "npu_indexing: ellipsis_mask ", ellipsis_mask, " has more than one bit set");
  TORCH_CHECK(taken <= self.dim(), "npu_indexing: ", taken, " indices for a tensor of shape ", self.sizes());
  Tensor result = self;
  int64_t dim = 0;
  for (size_t i = 0; i < begin.size(); ++i) {
    if (bit(ellipsis_mask, i)) {
      dim += self.dim() - taken;
    } else if (bit(new_axis_mask, i)) {
      result = result.unsqueeze(dim++);
    } else if (bit(shrink_axis_mask, i)) {
      result = result.select(dim, begin[i]);
    } else {
      TORCH_CHECK(strides[i] != 0, "npu_indexing: stride ", i, " is 0");
      result = select_range(
          result, dim, resolve(result.size(dim), begin[i], end[i], strides[i], bit(begin_mask, i), bit(end_mask, i)));
      ++dim;
    }
  }
  return result;
}

Tensor slice_of(const Tensor& self, IntArrayRef offsets, IntArrayRef size) {
  TORCH_CHECK(static_cast<int64_t>(offsets.size()) == self.dim() && offsets.size() == size.size(),
              "npu_slice: a tensor of shape ", self.sizes(), " needs ", self.dim(), " offsets and sizes, got ", offsets,
              " and ", size);
  Tensor result = self;
  for (int64_t d = 0; d < self.dim(); ++d) {
    // -1 means all that is left.
    result = result.narrow(d, offsets[d], size[d] == -1 ? self.size(d) - offsets[d] : size[d]);
  }
  return result;
}

}  // namespace

Tensor npu_broadcast(const Tensor& self, IntArrayRef size) { return fresh(self.expand(size)); }
Tensor& npu_broadcast_out(const Tensor& self, IntArrayRef size, Tensor& out) { return give(self.expand(size), out); }
Tensor npu_transpose(const Tensor& self, IntArrayRef perm, bool /*require_contiguous: it always is*/) {
  return fresh(self.permute(perm));
}
Tensor& npu_transpose_out(const Tensor& self, IntArrayRef perm, bool /*require_contiguous*/, Tensor& out) {
  return give(self.permute(perm), out);
}
Tensor npu_reshape(const Tensor& self, IntArrayRef shape, bool /*can_refresh*/) { return fresh(self.reshape(shape)); }

Tensor& npu_reshape_out(const Tensor& self, IntArrayRef shape, bool /*can_refresh*/, Tensor& out) {
  return give(self.reshape(shape), out);
}

Tensor npu_slice(const Tensor& self, IntArrayRef offsets, IntArrayRef size) {
  return fresh(slice_of(self, offsets, size));
}

Tensor& npu_slice_out(const Tensor& self, IntArrayRef offsets, IntArrayRef size, Tensor& out) {
  return give(slice_of(self, offsets, size), out);
}

Tensor npu_indexing(const Tensor& self, IntArrayRef begin, IntArrayRef end, IntArrayRef strides, int64_t begin_mask,
                    int64_t end_mask, int64_t ellipsis_mask, int64_t new_axis_mask, int64_t shrink_axis_mask) {
  return fresh(
      strided_slice(self, begin, end, strides, begin_mask, end_mask, ellipsis_mask, new_axis_mask, shrink_axis_mask));
}

Tensor& npu_indexing_out(const Tensor& self, IntArrayRef begin, IntArrayRef end, IntArrayRef strides,
                         int64_t begin_mask, int64_t end_mask, int64_t ellipsis_mask, int64_t new_axis_mask,
                         int64_t shrink_axis_mask, Tensor& out) {
  return give(
      strided_slice(self, begin, end, strides, begin_mask, end_mask, ellipsis_mask, new_axis_mask, shrink_axis_mask),
      out);
}

// Pairs (before, after) from the first dimension on, the other way round than constant_pad_nd's.
Tensor npu_pad(const Tensor& input, IntArrayRef paddings) {
  TORCH_CHECK(static_cast<int64_t>(paddings.size()) == 2 * input.dim(), "npu_pad: a tensor of shape ", input.sizes(),
              " needs ", 2 * input.dim(), " paddings, got ", paddings);
  std::vector<int64_t> from_last;
  for (size_t i = paddings.size(); i >= 2; i -= 2) {
    from_last.push_back(paddings[i - 2]);
    from_last.push_back(paddings[i - 1]);
  }
  return at::constant_pad_nd(input, from_last, 0);
}

Tensor npu_confusion_transpose(const Tensor& self, IntArrayRef perm, IntArrayRef shape, bool transpose_first) {
  return fresh(transpose_first ? self.permute(perm).reshape(shape) : self.reshape(shape).permute(perm));
}

Tensor npu_confusion_transpose_backward(const Tensor& grad, IntArrayRef perm, IntArrayRef shape, bool transpose_first) {
  std::vector<int64_t> inverse(perm.size()), permuted(perm.size());
  for (size_t i = 0; i < perm.size(); ++i) {
    const int64_t from = at::maybe_wrap_dim(perm[i], static_cast<int64_t>(perm.size()));
    inverse[from] = static_cast<int64_t>(i);
    if (transpose_first) permuted[i] = shape[from];
  }
  return fresh(transpose_first ? grad.reshape(permuted).permute(inverse) : grad.permute(inverse).reshape(shape));
}

Tensor npu_stride_copy(const Tensor& self, IntArrayRef shape, IntArrayRef stride, const Scalar& storage_offset) {
  return fresh(self.as_strided(shape, stride, storage_offset.toLong()));
}

Tensor& npu_stride_copy_out(const Tensor& self, IntArrayRef shape, IntArrayRef stride, const Scalar& storage_offset,
                            Tensor& out) {
  return give(self.as_strided(shape, stride, storage_offset.toLong()), out);
}

}  // namespace at::native::npu
