#pragma once
// Row-major matrix products on the BLAS that libtorch_cpu exports; every operator that multiplies rows of
// channels-last data goes through these. Called inside a parallel region they run on the calling thread.

#include <cstdint>

namespace acl_sim {

// c[m, n] = a[m, k] * b[n, k]^T + beta * c
void gemm_nt(int64_t m, int64_t n, int64_t k, const float* a, int64_t lda, const float* b, int64_t ldb, float beta,
             float* c, int64_t ldc);
void gemm_nt(int64_t m, int64_t n, int64_t k, const double* a, int64_t lda, const double* b, int64_t ldb, double beta,
             double* c, int64_t ldc);
// c[m, n] = a[m, k] * b[k, n] + beta * c
void gemm_nn(int64_t m, int64_t n, int64_t k, const float* a, int64_t lda, const float* b, int64_t ldb, float beta,
             float* c, int64_t ldc);
void gemm_nn(int64_t m, int64_t n, int64_t k, const double* a, int64_t lda, const double* b, int64_t ldb, double beta,
             double* c, int64_t ldc);
// c[m, n] = a[k, m]^T * b[k, n] + beta * c
void gemm_tn(int64_t m, int64_t n, int64_t k, const float* a, int64_t lda, const float* b, int64_t ldb, float beta,
             float* c, int64_t ldc);
void gemm_tn(int64_t m, int64_t n, int64_t k, const double* a, int64_t lda, const double* b, int64_t ldb, double beta,
             double* c, int64_t ldc);
// c[m, n] = op(a) * op(b) + beta * c, where op turns an operand that lies transposed
void gemm(bool turn_a, bool turn_b, int64_t m, int64_t n, int64_t k, const float* a, int64_t lda, const float* b,
          int64_t ldb, float beta, float* c, int64_t ldc);
void gemm(bool turn_a, bool turn_b, int64_t m, int64_t n, int64_t k, const double* a, int64_t lda, const double* b,
          int64_t ldb, double beta, double* c, int64_t ldc);

}  // namespace acl_sim
