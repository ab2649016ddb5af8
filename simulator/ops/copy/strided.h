#pragma once
// Copies between views whose innermost dimension is walked in small steps, such as every second column. ATen moves such
// elements one by one; here the common steps have loops of their own, which the compiler turns into shuffles.

#include <ATen/core/Tensor.h>

namespace acl_sim {

// Copies `from` into `to`, views of one shape and dtype over memory that does not overlap; false, and nothing is done,
// if they are not of this kind: ATen's copy has better ways for whole blocks and for transposed ones.
bool copy_in_steps(const at::Tensor& to, const at::Tensor& from);

// Copies `from` into `to`, which is contiguous; false, and nothing is done, unless `from` is a batch of transposed
// matrices or a single one.
bool copy_turned(const at::Tensor& to, const at::Tensor& from);

}  // namespace acl_sim
