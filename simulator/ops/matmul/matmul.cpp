// Matrix products on the cube unit: fp16 and bf16 operands are widened and summed in fp32, the result is narrowed once.

#include "exec/compilation/choice.h"
#include "exec/definition/aten.h"
#include "exec/running/onednn.h"
#include "ops/matmul/cube.h"

#include <ATen/CPUFunctions.h>

namespace acl_sim {
namespace {

at::Tensor turned(const at::Tensor& t, bool transpose) { return transpose ? t.transpose(-2, -1) : t; }

// y = a * b (+ bias), through out= where the result needs no narrowing.
void product(const at::Tensor& y0, const at::Tensor& a, const at::Tensor& b, const at::Tensor& bias) {
  at::Tensor y = y0;
  if (y.scalar_type() != a.scalar_type()) {
    y.copy_(bias.defined() ? at::addmm(bias, a, b) : at::matmul(a, b));
  } else if (bias.defined()) {
    at::cpu::addmm_out(y, bias, a, b);
  } else if (y.dim() == 3) {
    at::cpu::bmm_out(y, a, b);
  } else {
    at::cpu::mm_out(y, a, b);
  }
}

// Below this many multiplications libtorch has other kernels for bf16, which round on the way.
constexpr int64_t kLeastBf16 = 1 << 16;

// y = a * b (+ bias) on bf16 as it is; false where that must be widened.
bool bf16_product(const at::Tensor& y0, const at::Tensor& a, const at::Tensor& b, const at::Tensor& bias) {
  const auto is_bf16 = [](const at::Tensor& t) { return !t.defined() || t.scalar_type() == at::kBFloat16; };
  if (!is_bf16(a) || !is_bf16(b) || !is_bf16(y0) || !is_bf16(bias) || !multiplies_bf16()) return false;
  if (a.size(-2) * a.size(-1) * b.size(-1) < kLeastBf16) return false;
  product(y0, a, b, bias);
  return true;
}

// Note [Choices]: libtorch's product by BLAS, or by oneDNN.
SIM_KERNELS(MatMulV2, "blas", "onednn");
SIM_KERNELS(MatMul, "blas", "onednn");

// y = a * b (+ bias) in fp32 by oneDNN; false where that is not chosen, or cannot be.
bool product_by_onednn(const OpContext& c, const at::Tensor& y, const at::Tensor& a, const at::Tensor& b,
                       const at::Tensor& bias) {
  const bool fits = a.scalar_type() == at::kFloat && b.scalar_type() == at::kFloat && y.dim() == 2 && y.numel() > 0 &&
                    a.size(1) > 0 && (!bias.defined() || bias.scalar_type() == at::kFloat);
  if (!fits) return false;
  const auto choice = chosen_kernel(c);
  if (!(choice ? *choice == 1 : onednn_is_faster(y.size(0), y.size(1), a.size(1))) || !onednn_multiplies())
    return false;
  const bool narrow = y.scalar_type() != at::kFloat;
  const at::Tensor sums = narrow ? at::empty(y.sizes(), a.options()) : y;
  if (bias.defined()) sums.copy_(bias);
  onednn_product(sums, a, b, bias.defined() ? 1 : 0);
  if (narrow) y.copy_(sums);
  return true;
}

// inputs x1, x2, bias
void mat_mul(OpContext& c) {
  const bool t1 = c.attrs().boolean("transpose_x1", false), t2 = c.attrs().boolean("transpose_x2", false);
  if (bf16_product(c.out(0), turned(c.in(0), t1), turned(c.in(1), t2), optional_in(c, 2))) return;
  const at::Tensor a = turned(cube_operand(c, c.in(0)), t1), b = turned(cube_operand(c, c.in(1)), t2);
  const at::Tensor bias = widen(optional_in(c, 2));
  if (product_by_onednn(c, c.out(0), a, b, bias)) return;
  product(c.out(0), a, b, bias);
}

void batch_mat_mul(OpContext& c) {
  const bool t1 = c.attrs().boolean("adj_x1", false), t2 = c.attrs().boolean("adj_x2", false);
  if (bf16_product(c.out(0), turned(c.in(0), t1), turned(c.in(1), t2), at::Tensor())) return;
  const at::Tensor a = turned(cube_operand(c, c.in(0)), t1), b = turned(cube_operand(c, c.in(1)), t2);
  product(c.out(0), a, b, at::Tensor());
}

// inputs a, b, c, alpha, beta: y = alpha * a * b + beta * c, c broadcast to the product
void gemm(OpContext& c) {
  const at::Tensor a = turned(cube_operand(c, c.in(0)), c.attrs().boolean("transpose_a", false));
  const at::Tensor b = turned(cube_operand(c, c.in(1)), c.attrs().boolean("transpose_b", false));
  const at::Tensor add = widen(c.in(2));
  const at::Scalar alpha = c.in_scalar(3), beta = c.in_scalar(4);
  at::Tensor y = c.out(0);
  const at::Tensor result = y.dim() == 3 ? at::baddbmm(add, a, b, beta, alpha) : at::addmm(add, a, b, beta, alpha);
  y.copy_(result);
}

void dot(OpContext& c) {
  c.out(0).copy_(
      at::dot(cube_operand(c, c.in(0)).reshape(-1), cube_operand(c, c.in(1)).reshape(-1)).reshape(c.out(0).sizes()));
}

SIM_OP(MatMulV2)
    .inputs(2, 3)
    .dtypes(kNumericTypes)
    .attrs({"transpose_x1:bool", "transpose_x2:bool", "offset_x:int"})
    .on_cube(CubeClass::MatMul)
    .run(mat_mul);
SIM_OP(MatMul)
    .inputs(2, 3)
    .dtypes(kNumericTypes)
    .attrs({"transpose_x1:bool", "transpose_x2:bool"})
    .on_cube(CubeClass::MatMul)
    .run(mat_mul);
SIM_OP(BatchMatMul)
    .inputs(2)
    .dtypes(kNumericTypes)
    .attrs({"adj_x1:bool", "adj_x2:bool"})
    .on_cube(CubeClass::MatMul)
    .run(batch_mat_mul);
SIM_OP(GEMM)
    .inputs(5)
    .dtypes(kNumericTypes)
    .attrs({"transpose_a:bool", "transpose_b:bool"})
    .on_cube(CubeClass::MatMul)
    .run(gemm);
SIM_OP(Dot).inputs(2).dtypes(kNumericTypes).on_cube(CubeClass::MatMul).run(dot);

SIM_ATEN(QuantMatmulInt8, "_int_mm.out");
SIM_ATEN(ScaledMatmul, "_scaled_mm");
SIM_ATEN(ScaledMatmulV2, "_scaled_mm_v2");

}  // namespace
}  // namespace acl_sim
