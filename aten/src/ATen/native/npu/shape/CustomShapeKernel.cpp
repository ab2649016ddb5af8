// npu operators that move, select and cast elements. Each is made of differentiable operators, so gradients and shapes
// of fake tensors follow; results are contiguous and never views, as their schemas say.

#include <ATen/ATen.h>
#include <ATen/native/npu/CustomNew.h>
#include <ATen/native/npu/frame/inference/Give.h>
#include <NPUCustomFunctions.h>

namespace at::native::npu {
namespace {

constexpr int64_t kChannelBlock = 16;  // channels in one block of NC1HWC0

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

Tensor npu_transpose(const Tensor& self, IntArrayRef perm) { return fresh(self.permute(perm)); }
Tensor& npu_transpose_out(const Tensor& self, IntArrayRef perm, Tensor& out) { return give(self.permute(perm), out); }

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

// `num_classes` is the place of the new dimension: the IR operator's axis.
Tensor npu_one_hot(const Tensor& self, int64_t num_classes, int64_t depth, const Scalar& on_value,
                   const Scalar& off_value) {
  TORCH_CHECK(isIntegralType(self.scalar_type(), false), "npu_one_hot: expected integer classes, got ",
              self.scalar_type());
  TORCH_CHECK(depth >= 1, "npu_one_hot: expected a depth of at least 1, got ", depth);
  const int64_t axis = at::maybe_wrap_dim(num_classes, self.dim() + 1);
  std::vector<int64_t> along(self.dim() + 1, 1);
  along[axis] = depth;
  const Tensor classes = at::arange(depth, self.options()).view(along);
  return at::where(self.unsqueeze(axis) == classes, on_value, off_value).to(kFloat);
}

// Indices without the dimension that they index, or with it.
Tensor npu_scatter(const Tensor& self, const Tensor& indices, const Tensor& updates, int64_t dim) {
  if (elements(indices) == 0) return self.clone();
  const bool reduced = indices.dim() == self.dim() - 1;
  TORCH_CHECK(reduced || indices.dim() == self.dim(), "npu_scatter: indices of shape ", indices.sizes(),
              " have neither as many dimensions as self, of shape ", self.sizes(), ", nor one less");
  const Tensor index = (reduced ? indices.unsqueeze(dim) : indices).to(kLong);
  const Tensor source = updates.dim() == self.dim() - 1 ? updates.unsqueeze(dim) : updates;
  return at::scatter(self, dim, index, source.to(self.scalar_type()));
}

Tensor npu_dtype_cast(const Tensor& self, ScalarType dtype) { return self.to(dtype, /*non_blocking=*/false, true); }
Tensor& npu_dtype_cast_(Tensor& self, const Tensor& src) { return self.copy_(src); }

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

// self[n, start[r, n]:end[r, n]] = value[r] along `axis`, for each row n of the first dimension and each range r.
Tensor npu_masked_fill_range(const Tensor& self, const Tensor& start, const Tensor& end, const Tensor& value,
                             int64_t axis) {
  TORCH_CHECK(self.dim() >= 1 && self.dim() <= 3, "npu_masked_fill_range: self has 1 to 3 dimensions, got ",
              self.sizes());
  TORCH_CHECK(start.dim() == 2 && start.sizes() == end.sizes() && elements(value) == start.size(0),
              "npu_masked_fill_range: start and end of shape (ranges, rows) and one value per range expected, got ",
              start.sizes(), ", ", end.sizes(), " and ", value.sizes());
  const int64_t dim = at::maybe_wrap_dim(axis, self.dim()), rows = start.size(1);
  TORCH_CHECK(self.dim() == 1 ? rows == 1 : dim > 0 && rows <= self.size(0), "npu_masked_fill_range: ", rows,
              " rows of ranges along axis ", axis, " do not fit self of shape ", self.sizes());
  std::vector<int64_t> along(self.dim(), 1), per_row(self.dim(), 1);
  along[dim] = self.size(dim);
  const Tensor position = at::arange(self.size(dim), start.options()).view(along);
  Tensor result = self;
  for (int64_t r = 0; r < start.size(0); ++r) {
    Tensor first = start[r], last = end[r];
    if (self.dim() > 1) {
      per_row[0] = self.size(0);
      first = at::constant_pad_nd(first, {0, self.size(0) - rows}, 0).view(per_row);
      last = at::constant_pad_nd(last, {0, self.size(0) - rows}, 0).view(per_row);
    }
    result =
        at::where((position >= first).logical_and(position < last), value.flatten()[r].to(self.scalar_type()), result);
  }
  return start.size(0) == 0 ? self.clone() : result;
}

Tensor npu_stride_copy(const Tensor& self, IntArrayRef shape, IntArrayRef stride, const Scalar& storage_offset) {
  return fresh(self.as_strided(shape, stride, storage_offset.toLong()));
}
Tensor& npu_stride_copy_out(const Tensor& self, IntArrayRef shape, IntArrayRef stride, const Scalar& storage_offset,
                            Tensor& out) {
  return give(self.as_strided(shape, stride, storage_offset.toLong()), out);
}

// Offsets and length count blocks of 16 channels; channels that are not there are zeros.
Tensor npu_stride_add(const Tensor& self, const Tensor& other, const Scalar& offset1, const Scalar& offset2,
                      const Scalar& c1_len) {
  TORCH_CHECK(self.dim() >= 2 && self.dim() == other.dim(), "npu_stride_add: two tensors (N, C, ...) expected, got ",
              self.sizes(), " and ", other.sizes());
  const int64_t length = c1_len.toLong() * kChannelBlock;
  const auto part = [&](const Tensor& t, int64_t offset) {
    TORCH_CHECK(offset >= 0 && length > 0, "npu_stride_add: offsets are at least 0 and c1_len at least 1, got ", offset,
                " and ", c1_len);
    const int64_t first = std::min(offset * kChannelBlock, t.size(1));
    const int64_t last = std::min(first + length, t.size(1));
    std::vector<int64_t> padding(2 * (t.dim() - 1), 0);
    padding.back() = length - (last - first);
    return at::constant_pad_nd(t.narrow(1, first, last - first), padding, 0);
  };
  return part(self, offset1.toLong()) + part(other, offset2.toLong());
}

Tensor npu_sort_v2(const Tensor& self, int64_t dim, bool descending) {
  return std::get<0>(at::sort(self, dim, descending));
}
Tensor& npu_sort_v2_out(const Tensor& self, int64_t dim, bool descending, Tensor& out) {
  return give(npu_sort_v2(self, dim, descending), out);
}

std::tuple<Tensor, Tensor> npu_max(const Tensor& self, int64_t dim, bool keepdim) {
  auto [values, indices] = at::max(self, dim, keepdim);
  return {values, indices.to(kInt)};
}
std::tuple<Tensor, Tensor> npu_min(const Tensor& self, int64_t dim, bool keepdim) {
  auto [values, indices] = at::min(self, dim, keepdim);
  return {values, indices.to(kInt)};
}
std::tuple<Tensor, Tensor> npu_max_names_dim(const Tensor& /*self*/, std::string_view dim, bool /*keepdim*/) {
  TORCH_CHECK_NOT_IMPLEMENTED(false, "npu_max: torch 2.13 has no named tensors; give the index of dimension '", dim,
                              "' instead of its name");
}
std::tuple<Tensor, Tensor> npu_min_names_dim(const Tensor& /*self*/, std::string_view dim, bool /*keepdim*/) {
  TORCH_CHECK_NOT_IMPLEMENTED(false, "npu_min: torch 2.13 has no named tensors; give the index of dimension '", dim,
                              "' instead of its name");
}

Tensor npu_max_backward(const Tensor& grad, int64_t dim, const Tensor& indices, IntArrayRef sizes, bool keepdim) {
  const Tensor zeros = at::zeros(sizes, grad.options());
  if (zeros.dim() == 0) return grad.clone();
  const Tensor index = (keepdim ? indices : indices.unsqueeze(dim)).to(kLong);
  return at::scatter(zeros, dim, index, keepdim ? grad : grad.unsqueeze(dim));
}
Tensor npu_min_backward(const Tensor& grad, int64_t dim, const Tensor& indices, IntArrayRef sizes, bool keepdim) {
  return npu_max_backward(grad, dim, indices, sizes, keepdim);
}

}  // namespace at::native::npu
