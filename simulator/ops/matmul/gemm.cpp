// See gemm.h. Row-major products are the column-major ones of the transposes, so operands swap places.

#include "ops/matmul/gemm.h"

extern "C" void sgemm_(const char* transa, const char* transb, const int* m, const int* n, const int* k,
                       const float* alpha, const float* a, const int* lda, const float* b, const int* ldb,
                       const float* beta, float* c, const int* ldc);

namespace acl_sim {
namespace {

void column_major(char transa, char transb, int64_t m, int64_t n, int64_t k, const float* a, int64_t lda,
                  const float* b, int64_t ldb, float beta, float* c, int64_t ldc) {
  const int im = static_cast<int>(m), in = static_cast<int>(n), ik = static_cast<int>(k);
  const int ia = static_cast<int>(lda), ib = static_cast<int>(ldb), ic = static_cast<int>(ldc);
  const float one = 1.0F;
  sgemm_(&transa, &transb, &im, &in, &ik, &one, a, &ia, b, &ib, &beta, c, &ic);
}

}  // namespace

void gemm_nt(int64_t m, int64_t n, int64_t k, const float* a, int64_t lda, const float* b, int64_t ldb, float beta,
             float* c, int64_t ldc) {
  column_major('T', 'N', n, m, k, b, ldb, a, lda, beta, c, ldc);
}

void gemm_nn(int64_t m, int64_t n, int64_t k, const float* a, int64_t lda, const float* b, int64_t ldb, float beta,
             float* c, int64_t ldc) {
  column_major('N', 'N', n, m, k, b, ldb, a, lda, beta, c, ldc);
}

void gemm_tn(int64_t m, int64_t n, int64_t k, const float* a, int64_t lda, const float* b, int64_t ldb, float beta,
             float* c, int64_t ldc) {
  column_major('N', 'T', n, m, k, b, ldb, a, lda, beta, c, ldc);
}

}  // namespace acl_sim
