// What the results of aten_ops are, where upstream has no meta kernel that would tell, and what their arguments may be,
// where upstream's meta kernel does not look.

#include <ATen/native/npu/frame/registration/AtenOp.h>
#include <ATen/native/npu/frame/inference/Checks.h>

namespace at::native::npu {
namespace {

OutputSpec spec(ScalarType dtype, IntArrayRef sizes) { return {dtype, DimVector(sizes), {}}; }

}  // namespace

OutputSpecs no_outputs(const AtenArguments& /*a*/) { return {}; }

OutputSpecs geqrf_outputs(const AtenArguments& a) {
  const Tensor& self = a.tensor("self");
  TORCH_CHECK(self.dim() >= 2, "torch.geqrf: input must have at least 2 dimensions.");
  DimVector tau(self.sizes().slice(0, self.dim() - 1));
  tau.back() = std::min(self.size(-2), self.size(-1));
  return {a.like("self"), spec(self.scalar_type(), tau)};
}

OutputSpecs linear_combination_outputs(const AtenArguments& a) {
  const Tensor &input = a.tensor("input"), &coefficients = a.tensor("coefficients");
  TORCH_CHECK(input.dim() > 0 && input.size(0) == coefficients.size(1),
              "_compute_linear_combination: expected as many ", "summands as coefficients has columns, but found ",
              input.sizes(), " and ", coefficients.sizes());
  DimVector sizes(input.sizes());
  sizes[0] = coefficients.size(0);
  return {spec(input.scalar_type(), sizes)};
}

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
  return {spec(dtype, bins), spec(dtype, bins + 1)};
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
  return {spec(dtype, bins.numel() - 1), spec(dtype, bins.numel())};
}

OutputSpecs histogramdd_edges_outputs(const AtenArguments& a) {
  OutputSpecs specs;
  for (const int64_t n : bins_of(a)) specs.push_back(spec(a.tensor("self").scalar_type(), n + 1));
  return specs;
}

OutputSpecs histogramdd_outputs(const AtenArguments& a) { return {spec(a.tensor("self").scalar_type(), bins_of(a))}; }

OutputSpecs histogramdd_of_bins_outputs(const AtenArguments& a) {
  const Tensor& self = a.tensor("self");
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
  return {spec(a.tensor("self").scalar_type(), sizes)};
}

OutputSpecs rescale_qkv_outputs(const AtenArguments& a) {
  const Tensor& qkv = a.tensor("qkv");
  const int64_t heads = a["num_heads"].toInt(), width = a.tensor("qkv_bias").size(0) / 3;
  TORCH_CHECK(qkv.dim() == 3 && heads > 0 && width % heads == 0, "_transform_bias_rescale_qkv: expected qkv of three ",
              "dimensions and a width that num_heads divides, but found ", qkv.sizes(), " and ", heads, " heads");
  return OutputSpecs(3, spec(qkv.scalar_type(), {qkv.size(0), heads, qkv.size(1), width / heads}));
}

void check_ormqr(const AtenArguments& a) {
  const Tensor &input = a.tensor("self"), &tau = a.tensor("input2"), &other = a.tensor("input3");
  if (input.dim() < 2 || tau.dim() < 1 || other.dim() < 2) return;  // upstream's meta kernel tells
  const int64_t side = a["left"].toBool() ? -2 : -1;
  TORCH_CHECK(tau.size(-1) == std::min(other.size(side), input.size(-1)),
              "torch.ormqr: tau.shape[-1] must be equal to min(other.shape[", side, "], input.shape[-1])");
}

void check_pivot(const AtenArguments& a) {
  TORCH_CHECK(a["pivot"].toBool() || a.tensor("A").numel() == 0,
              "linalg.lu_factor: LU without pivoting is not implemented on npu: leave pivot=True");
}

void check_ldl_pivots(const AtenArguments& a) {
  const ScalarType type = a.tensor("pivots").scalar_type();
  TORCH_CHECK(isIntegralType(type, /*includeBool=*/false) && !isBarebonesUnsignedType(type),
              "torch.linalg.ldl_solve: Expected pivots to be integers. Got ", type);
}

void check_embedding_bag(const AtenArguments& a) {
  if (!a["per_sample_weights"].isTensor() || !a.tensor("per_sample_weights").defined()) return;
  TORCH_CHECK(a.tensor("weight").scalar_type() == a.tensor("per_sample_weights").scalar_type(),
              "embedding_bag: Expected tensor for argument 'weight' to have the same type as tensor for argument ",
              "'per_sample_weights'; but type ", a.tensor("weight").scalar_type(), " does not equal ",
              a.tensor("per_sample_weights").scalar_type());
}

void check_cdist(const AtenArguments& a) { check_one_dtype("cdist", a.tensor("x1"), a.tensor("x2")); }

void check_segments(const AtenArguments& a) {
  const std::string reduce = a["reduce"].toStringRef();
  TORCH_CHECK(reduce == "sum" || reduce == "prod" || reduce == "mean" || reduce == "max" || reduce == "min" ||
                  reduce == "amax" || reduce == "amin",
              "reduce argument must be either sum, prod, mean, amax or amin, got ", reduce);
  for (const char* name : {"lengths", "offsets"}) {
    if (!a[name].isTensor() || !a.tensor(name).defined()) continue;
    const Tensor& t = a.tensor(name);
    TORCH_CHECK(t.scalar_type() == kLong || t.scalar_type() == kInt, "segment_reduce(): ", name,
                " have to be of dtype Long or Int, but are of ", t.scalar_type());
    TORCH_CHECK(a.tensor("data").dim() >= t.dim(), "segment_reduce(): Expected data.dim() >= ", name,
                ".dim() to be true, but data has shape ", a.tensor("data").sizes(), " and ", name, " ", t.sizes());
  }
}

OutputSpecs fake_quant_outputs(const AtenArguments& a) {
  return {a.like("self"), spec(kBool, a.tensor("self").sizes())};
}

}  // namespace at::native::npu
