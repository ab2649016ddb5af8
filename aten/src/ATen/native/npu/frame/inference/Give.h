#pragma once
// out= forms of kernels whose functional form does the work.

#include <ATen/core/Tensor.h>
#include <ATen/native/Resize.h>

namespace at::native::npu {

// Puts a result into an out= tensor: resized with upstream's warning, cast if upstream would cast.
inline Tensor& give(const Tensor& result, Tensor& out) {
  TORCH_CHECK(canCast(result.scalar_type(), out.scalar_type()), "result type ", result.scalar_type(),
              " can't be cast to the desired output type ", out.scalar_type());
  TORCH_CHECK(result.device() == out.device(), "Expected out tensor to have device ", result.device(), ", but got ",
              out.device(), " instead");
  at::native::resize_output(out, result.sizes());
  return out.copy_(result);
}

}  // namespace at::native::npu
