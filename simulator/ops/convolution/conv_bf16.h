#pragma once
// Convolutions of bf16 as bf16 matrix products over channels-last memory, where these are faster than libtorch's
// convolutions: with filters of one pixel, and where images are small and channels are many. Each function returns
// false and does nothing elsewhere. Sums are in fp32 and rounded once, as Note [Cube precision] says.

#include <ATen/core/Tensor.h>

#include "ops/convolution/conv_rows.h"

namespace acl_sim {

// x and y are images, w is a filter; all channels-last.
bool bf16_forward(const ConvShape& s, const at::Tensor& x, const at::Tensor& w, const at::Tensor& y);
bool bf16_backward_data(const ConvShape& s, const at::Tensor& dy, const at::Tensor& w, const at::Tensor& dx);
bool bf16_backward_filter(const ConvShape& s, const at::Tensor& x, const at::Tensor& dy, const at::Tensor& dw);

}  // namespace acl_sim
