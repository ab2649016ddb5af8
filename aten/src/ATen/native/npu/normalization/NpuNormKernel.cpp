// npu's own spellings of normalisation, made of differentiable operators.

#include <ATen/ATen.h>
#include <NPUCustomFunctions.h>

namespace at::native::npu {

Tensor npu_layer_norm_eval(const Tensor& input, IntArrayRef normalized_shape, const std::optional<Tensor>& weight,
                           const std::optional<Tensor>& bias, double eps) {
  return at::layer_norm(input, normalized_shape, weight, bias, eps);
}

// Standardises each sample by its first seq_len steps: mean, and standard deviation (n - 1) plus 1e-5, of each feature
// or of all.
Tensor npu_normalize_batch(const Tensor& self, const Tensor& seq_len, int64_t normalize_type) {
  TORCH_CHECK(self.dim() == 3 && seq_len.dim() == 1 && seq_len.size(0) == self.size(0),
              "npu_normalize_batch: self of shape (n, c, d) and seq_len of shape (n) expected, got ", self.sizes(),
              " and ", seq_len.sizes());
  TORCH_CHECK(normalize_type == 0 || normalize_type == 1,
              "npu_normalize_batch: normalize_type is 0 (per feature) or 1 (all features), got ", normalize_type);
  const std::vector<int64_t> dims = normalize_type == 0 ? std::vector<int64_t>{2} : std::vector<int64_t>{1, 2};
  const Tensor length = seq_len.view({-1, 1, 1});
  const Tensor counted = at::arange(self.size(2), seq_len.options()).view({1, 1, -1}) < length;
  const Tensor count = length.to(self.scalar_type()) * (normalize_type == 0 ? 1 : self.size(1));
  const Tensor mean = at::where(counted, self, 0).sum(dims, true) / count;
  const Tensor centred = self - mean;
  const Tensor variance = at::where(counted, centred * centred, 0).sum(dims, true) / (count - 1);
  return centred / (variance.sqrt() + 1e-5);
}

}  // namespace at::native::npu
