// npu's own one-hot codes, scatter and filled ranges, made of differentiable operators.

#include <ATen/ATen.h>
#include <ATen/WrapDimUtils.h>
#include <ATen/native/npu/frame/inference/NewLike.h>
#include <NPUCustomFunctions.h>

namespace at::native::npu {

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

}  // namespace at::native::npu
