// Products of matrices and vectors that are not one entry of the operator table.

#include <ATen/ExpandUtils.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/native/npu/frame/command/DeviceOf.h>
#include <ATen/native/npu/frame/command/OpCommand.h>
#include <ATen/native/npu/frame/command/Rearrange.h>
#include <ATen/native/npu/frame/inference/Allocate.h>
#include <ATen/native/npu/frame/inference/Give.h>
#include <ATen/native/npu/frame/inference/Structured.h>
#include <ATen/native/npu/frame/registration/SameDevice.h>
#include <ATen/ops/_efficientzerotensor.h>
#include <ATen/ops/_scaled_mm.h>
#include <ATen/ops/_scaled_mm_v2.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/addr_native.h>
#include <NPUNativeFunctions.h>

namespace at::native::npu {

// Upstream's composites look at self only if beta is not zero, and resize it.
Tensor addr(const Tensor& self, const Tensor& vec1, const Tensor& vec2, const Scalar& beta, const Scalar& alpha) {
  SameDevice("addr").read(self).read(vec1).read(vec2);
  TORCH_CHECK(is_expandable_to(self.sizes(), {vec1.numel(), vec2.numel()}),
              "addr: expected an input that can be expanded to ", vec1.numel(), " x ", vec2.numel(),
              ", but got one of shape ", self.sizes());
  const ScalarType type = promoteTypes(self.scalar_type(), promoteTypes(vec1.scalar_type(), vec2.scalar_type()));
  for (const auto& [number, name] : {std::pair(&beta, "beta"), std::pair(&alpha, "alpha")}) {
    TORCH_CHECK(isFloatingType(type) || isComplexType(type) || number->isIntegral(/*includeBool=*/true),
                "For integral input tensors, argument ", name, " must not be a floating point number.");
  }
  return at::native::math_addr(cast(self, type), cast(vec1, type), cast(vec2, type), beta, alpha);
}

namespace {

// The dtype that a scaled product is computed in for out=, which names it where `asked` does not.
ScalarType scaled_dtype(std::optional<ScalarType> asked, const Tensor& out) {
  TORCH_CHECK_VALUE(!asked.has_value() || *asked == out.scalar_type(), "out_dtype must match output matrix type");
  return out.is_complex() ? kFloat : out.scalar_type();
}

}  // namespace

Tensor& scaled_mm_out(const Tensor& self, const Tensor& mat2, const Tensor& scale_a, const Tensor& scale_b,
                      const std::optional<Tensor>& bias, const std::optional<Tensor>& scale_result,
                      std::optional<ScalarType> out_dtype, bool use_fast_accum, Tensor& out) {
  const ScalarType dtype = scaled_dtype(out_dtype, out);
  check_overlap(out, self, mat2);
  return give(at::_scaled_mm(self, mat2, scale_a, scale_b, bias, scale_result, dtype, use_fast_accum), out);
}

Tensor& scaled_mm_v2_out(const Tensor& self, const Tensor& mat2, TensorList scale_a, IntArrayRef recipe_a,
                         IntArrayRef swizzle_a, TensorList scale_b, IntArrayRef recipe_b, IntArrayRef swizzle_b,
                         const std::optional<Tensor>& bias, std::optional<ScalarType> out_dtype,
                         IntArrayRef contraction_dim, bool use_fast_accum, Tensor& out) {
  const ScalarType dtype = scaled_dtype(out_dtype, out);
  check_overlap(out, self, mat2);
  return give(at::_scaled_mm_v2(self, mat2, scale_a, recipe_a, swizzle_a, scale_b, recipe_b, swizzle_b, bias, dtype,
                                contraction_dim, use_fast_accum),
              out);
}

Tensor& addr_out(const Tensor& self, const Tensor& vec1, const Tensor& vec2, const Scalar& beta, const Scalar& alpha,
                 Tensor& out) {
  check_overlap(out, self, vec1, vec2);
  return give(npu::addr(self, vec1, vec2, beta, alpha), out);
}

Tensor& addr_(Tensor& self, const Tensor& vec1, const Tensor& vec2, const Scalar& beta, const Scalar& alpha) {
  TORCH_CHECK(vec1.dim() == 1 && vec2.dim() == 1, "addr: Expected 1-D arguments vec1 and vec2, but got ", vec1.dim(),
              "-D and ", vec2.dim(), "-D");
  TORCH_CHECK(self.dim() == 2, "2D tensor expected, got ", self.dim(), "D tensor for input");
  TORCH_CHECK(self.size(0) == vec1.size(0) && self.size(1) == vec2.size(0), "size mismatch, input: ", self.sizes(),
              ", v1: ", vec1.sizes(), ", v2: ", vec2.sizes());
  check_overlap(self, vec1, vec2);
  return give(npu::addr(self, vec1, vec2, beta, alpha), self);
}

// A vector is a matrix of one column.
Tensor addmv(const Tensor& self, const Tensor& mat, const Tensor& vec, const Scalar& beta, const Scalar& alpha) {
  TORCH_CHECK(mat.dim() == 2 && vec.dim() == 1 && self.dim() <= 1, "vector + matrix @ vector expected, got ",
              self.dim(), ", ", mat.dim(), ", ", vec.dim());
  TORCH_CHECK(mat.size(1) == vec.size(0) && (self.dim() == 0 || self.numel() == 1 || self.size(0) == mat.size(0)),
              "size mismatch, got input (", self.numel(), "), mat (", mat.size(0), "x", mat.size(1), "), vec (",
              vec.size(0), ")");
  const Tensor column = self.dim() == 0 ? self : self.unsqueeze(1);
  return at::addmm(column.expand({mat.size(0), 1}), mat, vec.unsqueeze(1), beta, alpha).squeeze(1);
}

Tensor& addmv_(Tensor& self, const Tensor& mat, const Tensor& vec, const Scalar& beta, const Scalar& alpha) {
  return self.copy_(npu::addmv(self, mat, vec, beta, alpha));
}

Tensor& addmv_out(const Tensor& self, const Tensor& mat, const Tensor& vec, const Scalar& beta, const Scalar& alpha,
                  Tensor& out) {
  TORCH_CHECK(out.scalar_type() == self.scalar_type(), "Expected out tensor to have dtype ", self.dtype(), ", but got ",
              out.dtype(), " instead");
  check_overlap(out, self);
  const Tensor result = npu::addmv(self, mat, vec, beta, alpha);
  out.resize_(result.sizes());
  return out.copy_(result);
}

Tensor dot(const Tensor& self, const Tensor& other) {
  DeviceOf guard(self);
  TORCH_CHECK(self.dim() == 1 && other.dim() == 1, "1D tensors expected, but got ", self.dim(), "D and ", other.dim(),
              "D tensors");
  TORCH_CHECK(self.scalar_type() == other.scalar_type(), "dot : expected both vectors to have same dtype, but found ",
              self.scalar_type(), " and ", other.scalar_type());
  TORCH_CHECK(self.numel() == other.numel(), "inconsistent tensor size, expected tensor [", self.numel(), "] and src [",
              other.numel(), "] to have the same number of elements, but got ", self.numel(), " and ", other.numel(),
              " elements respectively");
  TORCH_CHECK(self.device() == other.device(), "Expected all tensors to be on the same device. Found: ", self.device(),
              ", ", other.device());
  if (C10_UNLIKELY(self._is_zerotensor() || other._is_zerotensor())) {
    return at::_efficientzerotensor(IntArrayRef(), self.options());
  }
  const Tensor y = empty_npu({}, self.scalar_type(), self.device());
  if (self.numel() == 0) {
    y.zero_();
    return y;
  }
  OpCommand cmd;
  cmd.Name("Dot").Input(self).Input(other).Output(y).Run();
  return y;
}

Tensor vdot(const Tensor& self, const Tensor& other) {
  return npu::dot(self.is_complex() && !self._is_zerotensor() ? self.conj().resolve_conj() : self, other);
}

// The sum of products over the batch is one product of matrices that lie side by side.
Tensor addbmm(const Tensor& self, const Tensor& batch1, const Tensor& batch2, const Scalar& beta, const Scalar& alpha) {
  DeviceOf guard(self);
  TORCH_CHECK(batch1.dim() == 3, "batch1 must be a 3D tensor");
  TORCH_CHECK(batch2.dim() == 3, "batch2 must be a 3D tensor");
  TORCH_CHECK(batch1.size(0) == batch2.size(0), "batch1 and batch2 must have same number of batches, got ",
              batch1.size(0), " and ", batch2.size(0));
  TORCH_CHECK(batch1.size(2) == batch2.size(1), "Incompatible matrix sizes for bmm (", batch1.size(1), "x",
              batch1.size(2), " and ", batch2.size(1), "x", batch2.size(2), ")");
  const int64_t rows = batch1.size(1), columns = batch2.size(2);
  const Tensor start = *at::expand_size(self, {rows, columns}, "addbmm");
  return at::addmm(start, batch1.transpose(0, 1).reshape({rows, -1}), batch2.reshape({-1, columns}), beta, alpha);
}

Tensor& addbmm_(Tensor& self, const Tensor& batch1, const Tensor& batch2, const Scalar& beta, const Scalar& alpha) {
  return give(npu::addbmm(self, batch1, batch2, beta, alpha), self);
}

Tensor& addbmm_out(const Tensor& self, const Tensor& batch1, const Tensor& batch2, const Scalar& beta,
                   const Scalar& alpha, Tensor& out) {
  TORCH_CHECK(out.scalar_type() == self.scalar_type(), "addbmm: expected out to have dtype ", self.scalar_type(),
              ", but got ", out.scalar_type());
  check_overlap(out, self);
  return give(npu::addbmm(self, batch1, batch2, beta, alpha), out);
}

Tensor& addmm_activation_out(const Tensor& self, const Tensor& mat1, const Tensor& mat2, const Scalar& beta,
                             const Scalar& alpha, bool use_gelu, Tensor& out) {
  const Tensor sum = at::addmm(self, mat1, mat2, beta, alpha);
  return give(use_gelu ? at::gelu(sum) : at::relu(sum), out);
}

}  // namespace at::native::npu
