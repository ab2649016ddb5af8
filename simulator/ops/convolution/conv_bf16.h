#pragma once
// Convolutions of bf16 as bf16 matrix products over channels-last memory, where these are faster than libtorch's
// convolutions: with filters of one pixel, and where images are small and channels are many; or where `wanted` says.
// Each function returns false and does nothing elsewhere, and where products would round otherwise. Sums are in fp32
// and rounded once, as Note [Cube precision] says.

#include <ATen/core/Tensor.h>

#include <optional>

#include "ops/convolution/conv_rows.h"

namespace acl_sim {

// x and y are images, w is a filter; all channels-last.
bool bf16_forward(const ConvShape& s, const at::Tensor& x, const at::Tensor& w, const at::Tensor& y,
                  std::optional<bool> wanted);
bool bf16_backward_data(const ConvShape& s, const at::Tensor& dy, const at::Tensor& w, const at::Tensor& dx,
                        std::optional<bool> wanted);
bool bf16_backward_filter(const ConvShape& s, const at::Tensor& x, const at::Tensor& dy, const at::Tensor& dw,
                          std::optional<bool> wanted);

}  // namespace acl_sim
