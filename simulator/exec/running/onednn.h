#pragma once
// Products of fp32 matrices by oneDNN instead of libtorch's BLAS.

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace acl_sim {

// Whether oneDNN multiplies [m, k] by [k, n] in fp32 here at all: it is compiled in, switched on, and nothing lets it
// round operands (torch.set_float32_matmul_precision and kin are about the CPU, not about the device).
bool onednn_multiplies();
// Whether it is the faster of the two. MKL has AVX-512 for Intel's CPUs alone; on others oneDNN is 2 to 11 % ahead once
// a product is large enough for what it does before it begins.
bool onednn_is_faster(int64_t m, int64_t n, int64_t k);

// y = a * b + beta * y, of two dimensions.
void onednn_product(const at::Tensor& y, const at::Tensor& a, const at::Tensor& b, float beta);

// Has oneDNN make what it keeps for the process. It is destroyed in the reverse order of its making, and workers are
// stopped by an exit handler (Note [Exit] in core/process.h): what they use has to be older than that.
void make_onednn_engine();

}  // namespace acl_sim
