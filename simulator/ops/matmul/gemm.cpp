// See gemm.h. Row-major products are the column-major ones of the transposes, so operands swap places.

#include "ops/matmul/gemm.h"

#include <type_traits>

extern "C" void sgemm_(const char* transa, const char* transb, const int* m, const int* n, const int* k,
                       const float* alpha, const float* a, const int* lda, const float* b, const int* ldb,
                       const float* beta, float* c, const int* ldc);
extern "C" void dgemm_(const char* transa, const char* transb, const int* m, const int* n, const int* k,
                       const double* alpha, const double* a, const int* lda, const double* b, const int* ldb,
                       const double* beta, double* c, const int* ldc);

namespace acl_sim {
namespace {

template <class T>
void column_major(char transa, char transb, int64_t m, int64_t n, int64_t k, const T* a, int64_t lda, const T* b,
                  int64_t ldb, T beta, T* c, int64_t ldc) {
  const int im = static_cast<int>(m), in = static_cast<int>(n), ik = static_cast<int>(k);
  const int ia = static_cast<int>(lda), ib = static_cast<int>(ldb), ic = static_cast<int>(ldc);
  const T one = 1;
  if constexpr (std::is_same_v<T, float>) {
    sgemm_(&transa, &transb, &im, &in, &ik, &one, a, &ia, b, &ib, &beta, c, &ic);
  } else {
    dgemm_(&transa, &transb, &im, &in, &ik, &one, a, &ia, b, &ib, &beta, c, &ic);
  }
}

}  // namespace

void gemm_nt(int64_t m, int64_t n, int64_t k, const float* a, int64_t lda, const float* b, int64_t ldb, float beta,
             float* c, int64_t ldc) {
  column_major('T', 'N', n, m, k, b, ldb, a, lda, beta, c, ldc);
}
void gemm_nt(int64_t m, int64_t n, int64_t k, const double* a, int64_t lda, const double* b, int64_t ldb, double beta,
             double* c, int64_t ldc) {
  column_major('T', 'N', n, m, k, b, ldb, a, lda, beta, c, ldc);
}

void gemm_nn(int64_t m, int64_t n, int64_t k, const float* a, int64_t lda, const float* b, int64_t ldb, float beta,
             float* c, int64_t ldc) {
  column_major('N', 'N', n, m, k, b, ldb, a, lda, beta, c, ldc);
}
void gemm_nn(int64_t m, int64_t n, int64_t k, const double* a, int64_t lda, const double* b, int64_t ldb, double beta,
             double* c, int64_t ldc) {
  column_major('N', 'N', n, m, k, b, ldb, a, lda, beta, c, ldc);
}

void gemm_tn(int64_t m, int64_t n, int64_t k, const float* a, int64_t lda, const float* b, int64_t ldb, float beta,
             float* c, int64_t ldc) {
  column_major('N', 'T', n, m, k, b, ldb, a, lda, beta, c, ldc);
}
void gemm_tn(int64_t m, int64_t n, int64_t k, const double* a, int64_t lda, const double* b, int64_t ldb, double beta,
             double* c, int64_t ldc) {
  column_major('N', 'T', n, m, k, b, ldb, a, lda, beta, c, ldc);
}

void gemm(bool turn_a, bool turn_b, int64_t m, int64_t n, int64_t k, const float* a, int64_t lda, const float* b,
          int64_t ldb, float beta, float* c, int64_t ldc) {
  column_major(turn_b ? 'T' : 'N', turn_a ? 'T' : 'N', n, m, k, b, ldb, a, lda, beta, c, ldc);
}
void gemm(bool turn_a, bool turn_b, int64_t m, int64_t n, int64_t k, const double* a, int64_t lda, const double* b,
          int64_t ldb, double beta, double* c, int64_t ldc) {
  column_major(turn_b ? 'T' : 'N', turn_a ? 'T' : 'N', n, m, k, b, ldb, a, lda, beta, c, ldc);
}

}  // namespace acl_sim
