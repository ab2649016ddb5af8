#pragma once
// The kernels of sparse tensors, with the dispatcher's signatures; SparseRegistration.cpp says for which operators.

#include <ATen/core/Tensor.h>

#include <array>
#include <optional>
#include <string_view>
#include <tuple>

namespace at::native::npu::sparse {

// ---- CooKernel.cpp
Tensor coalesce(const Tensor& self);
Tensor& add_out(const Tensor& self, const Tensor& other, const Scalar& alpha, Tensor& result);
Tensor& mul_out(const Tensor& self, const Tensor& other, Tensor& result);
Tensor sparse_mask(const Tensor& self, const Tensor& mask);
Tensor sparse_mask_projection(const Tensor& self, const Tensor& mask, bool accumulate_matches);
Tensor index_select(const Tensor& self, int64_t dim, const Tensor& index);
Tensor sparse_sum_backward(const Tensor& grad, const Tensor& input, IntArrayRef dim);

// ---- CooMatMulKernel.cpp
Tensor& addmm_out(const Tensor& self, const Tensor& mat1, const Tensor& mat2, const Scalar& beta, const Scalar& alpha,
                  Tensor& result);
Tensor addmm(const Tensor& self, const Tensor& mat1, const Tensor& mat2, const Scalar& beta, const Scalar& alpha);
Tensor& addmm_(Tensor& self, const Tensor& mat1, const Tensor& mat2, const Scalar& beta, const Scalar& alpha);
Tensor& bmm_out(const Tensor& self, const Tensor& mat2, Tensor& result);
Tensor bmm(const Tensor& self, const Tensor& mat2);
Tensor sparse_sparse_matmul(const Tensor& self, const Tensor& other);
Tensor& hspmm_out(const Tensor& mat1, const Tensor& mat2, Tensor& result);
Tensor hspmm(const Tensor& mat1, const Tensor& mat2);
Tensor& sspaddmm_out(const Tensor& self, const Tensor& mat1, const Tensor& mat2, const Scalar& beta,
                     const Scalar& alpha, Tensor& result);

// ---- SparseSoftmaxKernel.cpp
Tensor softmax(const Tensor& self, int64_t dim, bool half_to_float);
Tensor log_softmax(const Tensor& self, int64_t dim, bool half_to_float);
Tensor softmax_backward(const Tensor& grad, const Tensor& output, int64_t dim, const Tensor& self);
Tensor log_softmax_backward(const Tensor& grad, const Tensor& output, int64_t dim, const Tensor& self);

// ---- CompressedKernel.cpp
Tensor compressed_to_bsr(const Tensor& self, IntArrayRef blocks, std::optional<int64_t> dense_dim);
Tensor compressed_to_bsc(const Tensor& self, IntArrayRef blocks, std::optional<int64_t> dense_dim);
Tensor& compressed_add_out(const Tensor& self, const Tensor& other, const Scalar& alpha, Tensor& result);
Tensor& compressed_addmm_out(const Tensor& self, const Tensor& mat1, const Tensor& mat2, const Scalar& beta,
                             const Scalar& alpha, Tensor& result);
Tensor& compressed_addmv_out(const Tensor& self, const Tensor& mat, const Tensor& vec, const Scalar& beta,
                             const Scalar& alpha, Tensor& result);
Tensor compressed_sum(const Tensor& self, IntArrayRef dim, bool keepdim, std::optional<ScalarType> dtype);
Tensor& sampled_addmm_out(const Tensor& self, const Tensor& mat1, const Tensor& mat2, const Scalar& beta,
                          const Scalar& alpha, Tensor& result);
Tensor sampled_addmm(const Tensor& self, const Tensor& mat1, const Tensor& mat2, const Scalar& beta,
                     const Scalar& alpha);

// ---- ReducedProductKernel.cpp
std::tuple<Tensor, Tensor> mm_reduce(const Tensor& self, const Tensor& other, std::string_view reduce);
std::tuple<Tensor, Tensor> mm_reduce_backward(const Tensor& self, const Tensor& grad, const Tensor& weight,
                                              std::string_view reduce, const Tensor& arg, std::array<bool, 2> mask);

// ---- IndicesKernel.cpp
void validate(bool is_crow, const Tensor& compressed, const Tensor& plain, int64_t cdim, int64_t dim, int64_t nnz);

}  // namespace at::native::npu::sparse
