#pragma once
// Gathering and adding slices along one dimension, for contiguous memory seen as [outer, size, inner].

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>

namespace [[gnu::visibility("hidden")]] acl_sim {

struct Slices {
  int64_t outer = 1, size = 1, inner = 1;
};

Slices slices_along(at::IntArrayRef sizes, int64_t axis);

// Which of an int64 index is not in [0, size), or -1.
int64_t first_out_of_range(const at::Tensor& index, int64_t size);

// to[outer, i, inner] = from[outer, index[i], inner] for elements of `item` bytes; the index is in range.
void gather_slices(void* to, const void* from, const at::Tensor& index, const Slices& s, size_t item);

// to[outer, index[i], inner] += from[outer, i, inner]; false, and nothing done, where upstream's is as good.
bool add_slices(const at::Tensor& to, const at::Tensor& from, const at::Tensor& index, int64_t axis);

}  // namespace acl_sim
