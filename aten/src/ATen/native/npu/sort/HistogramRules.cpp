// Results and arguments of histograms, which upstream has no meta kernels for.

#include <ATen/native/npu/frame/registration/AtenOp.h>

namespace at::native::npu {
namespace {

// One histogram counts in the dtype of its input; edges are one more than bins.
void check_histogram(const AtenArguments& a) {
  const Tensor& self = a.tensor("self");
  const c10::IValue& weight = a["weight"];
  if (!weight.isTensor() || !weight.toTensor().defined()) return;
  TORCH_CHECK(weight.toTensor().sizes() == self.sizes() || weight.toTensor().numel() == self.numel(),
              "torch.histogram(): if weight tensor is provided it should have the same shape as the input tensor, but ",
              "found ", weight.toTensor().sizes(), " and ", self.sizes());
  TORCH_CHECK(weight.toTensor().scalar_type() == self.scalar_type(),
              "torch.histogram(): if weight tensor is provided, input tensor and weight tensor should have the same "
              "dtype, but found ",
              self.scalar_type(), " and ", weight.toTensor().scalar_type());
}

void check_histogramdd(const AtenArguments& a) {
  const c10::IValue& weight = a["weight"];
  if (!weight.isTensor() || !weight.toTensor().defined()) return;
  TORCH_CHECK(weight.toTensor().scalar_type() == a.tensor("self").scalar_type(),
              "torch.histogramdd: if weight tensor is provided, input tensor and weight tensor should have the same ",
              "dtype, but got input(", a.tensor("self").scalar_type(), "), and weight(",
              weight.toTensor().scalar_type(), ")");
}

DimVector bins_of(const AtenArguments& a) {
  const auto bins = a["bins"].toIntVector();
  TORCH_CHECK(static_cast<int64_t>(bins.size()) == a.tensor("self").size(-1),
              "histogramdd: The size of bins must be equal to the innermost dimension of the input.");
  TORCH_CHECK(a.tensor("self").dim() >= 2, "torch.histogramdd: input tensor should have at least 2 dimensions");
  for (const int64_t n : bins) TORCH_CHECK(n > 0, "torch.histogramdd(): bins must be > 0, but found ", n);
  return DimVector(bins.begin(), bins.end());
}

}  // namespace

OutputSpecs histogram_outputs(const AtenArguments& a) {
  check_histogram(a);
  const int64_t bins = a["bins"].toInt();
  TORCH_CHECK(bins > 0, "torch.histogram(): bins must be > 0, but found ", bins);
  const ScalarType dtype = a.tensor("self").scalar_type();
  return {output_of(dtype, bins), output_of(dtype, bins + 1)};
}

OutputSpecs histogram_of_bins_outputs(const AtenArguments& a) {
  check_histogram(a);
  const Tensor& bins = a.tensor("bins");
  const ScalarType dtype = a.tensor("self").scalar_type();
  TORCH_CHECK(bins.dim() == 1 && bins.numel() > 1,
              "torch.histogram(): bins must be > 0: bins tensor should have one dimension and at least two edges, but ",
              "found ", bins.sizes());
  TORCH_CHECK(bins.scalar_type() == dtype,
              "torch.histogram(): input tensor and bins tensors should have the same dtype, but found ", dtype, " and ",
              bins.scalar_type());
  return {output_of(dtype, bins.numel() - 1), output_of(dtype, bins.numel())};
}

OutputSpecs histogramdd_edges_outputs(const AtenArguments& a) {
  OutputSpecs specs;
  for (const int64_t n : bins_of(a)) specs.push_back(output_of(a.tensor("self").scalar_type(), n + 1));
  return specs;
}

OutputSpecs histogramdd_outputs(const AtenArguments& a) {
  check_histogramdd(a);
  return {output_of(a.tensor("self").scalar_type(), bins_of(a))};
}

OutputSpecs histogramdd_of_bins_outputs(const AtenArguments& a) {
  const Tensor& self = a.tensor("self");
  check_histogramdd(a);
  const auto all = a["bins"].toTensorVector();
  TORCH_CHECK(self.dim() >= 2, "torch.histogramdd: input tensor should have at least 2 dimensions");
  TORCH_CHECK(static_cast<int64_t>(all.size()) == self.size(-1), "torch.histogramdd: expected ", self.size(-1),
              " sequences of bin edges for a ", self.size(-1), "-dimensional histogram but got ", all.size());
  DimVector sizes;
  for (const Tensor& bins : all) {
    TORCH_CHECK(bins.scalar_type() == self.scalar_type(), "torch.histogramdd: input tensor and bins tensors should ",
                "have the same dtype, but got input with dtype ", self.scalar_type(), " and bins with dtype ",
                bins.scalar_type());
    TORCH_CHECK(bins.dim() == 1, "torch.histogramdd: bins tensor should have one dimension, but got ", bins.dim(),
                " dimensions");
    TORCH_CHECK(bins.numel() > 1, "torch.histogramdd: bins must be > 0, but got ", bins.numel() - 1);
    sizes.push_back(bins.numel() - 1);
  }
  return {output_of(a.tensor("self").scalar_type(), sizes)};
}

}  // namespace at::native::npu
