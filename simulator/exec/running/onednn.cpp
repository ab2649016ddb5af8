// See onednn.h.

#include "exec/running/onednn.h"

#include <ATen/Context.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>

#include <omp.h>

namespace at::native {
// libtorch exports it; its header is not installed.
TORCH_API void mkldnn_matmul(const Tensor& mat1, const Tensor& mat2, const Tensor& result, float beta, float alpha);
}  // namespace at::native

namespace acl_sim {
namespace {

constexpr int64_t kLeastWork = 1 << 24;  // multiplications
constexpr int64_t kLeastSide = 64;

bool blas_leaves_avx512() {
#if defined(__x86_64__)
  static const bool leaves = !__builtin_cpu_is("intel") && __builtin_cpu_supports("avx512f");
  return leaves;
#else
  return false;
#endif
}

}  // namespace

bool onednn_multiplies() {
  const auto& context = at::globalContext();
  if (!at::Context::hasMKLDNN() || !context.userEnabledMkldnn()) return false;
  const auto precision = context.float32Precision(at::Float32Backend::MKLDNN, at::Float32Op::MATMUL);
  return precision == at::Float32Precision::NONE || precision == at::Float32Precision::IEEE;
}

bool onednn_is_faster(int64_t m, int64_t n, int64_t k) {
  return blas_leaves_avx512() && std::min({m, n, k}) >= kLeastSide && m * n * k >= kLeastWork;
}

void onednn_product(const at::Tensor& y, const at::Tensor& a, const at::Tensor& b, float beta) {
  at::native::mkldnn_matmul(a, b, y, beta, 1);
}

void make_onednn_engine() {
  if (!at::Context::hasMKLDNN()) return;
  float one = 1, result = 0;
  const auto matrix = [](float& of) { return at::from_blob(&of, {1, 1}, at::kFloat); };
  const int threads = omp_get_max_threads();
  omp_set_num_threads(1);  // a process that forks before it opens a device has no other threads
  onednn_product(matrix(result), matrix(one), matrix(one), 0);
  omp_set_num_threads(threads);
}

}  // namespace acl_sim
