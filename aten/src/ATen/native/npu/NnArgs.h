#pragma once
// Arguments of neural-network operators as their IR operators spell them; used by the table's attribute expressions
// and by the hand-written kernels.

#include <ATen/ExpandUtils.h>
#include <ATen/core/Reduction.h>
#include <ATen/core/Tensor.h>
#include <c10/util/DimVector.h>

namespace at::native::npu {

// One value stands for every spatial dimension.
inline DimVector spatial(IntArrayRef values, size_t rank) {
  return values.size() == 1 ? DimVector(rank, values[0]) : DimVector(values.begin(), values.end());
}

// No stride given means the window's size.
inline DimVector window_strides(IntArrayRef stride, IntArrayRef kernel, size_t rank) {
  return spatial(stride.empty() ? kernel : stride, rank);
}

// Spatial values behind 1 for N and for C.
inline DimVector with_batch(IntArrayRef spatial_values) {
  DimVector out = {1, 1};
  out.append(spatial_values.begin(), spatial_values.end());
  return out;
}

// The same padding before and after each dimension.
inline DimVector both_sides(IntArrayRef padding) {
  DimVector out;
  for (const int64_t p : padding) {
    out.push_back(p);
    out.push_back(p);
  }
  return out;
}

inline const char* reduction_name(int64_t reduction) {
  return reduction == Reduction::None ? "none" : (reduction == Reduction::Mean ? "mean" : "sum");
}

// The approximation of GELU, checked.
// The largest number of a floating-point type of at most 32 bits.
inline double largest(ScalarType type) {
  return type == kHalf       ? static_cast<double>(std::numeric_limits<c10::Half>::max())
         : type == kBFloat16 ? static_cast<double>(std::numeric_limits<c10::BFloat16>::max())
                             : static_cast<double>(std::numeric_limits<float>::max());
}

inline std::string gelu_kind(std::string_view approximate) {
  TORCH_CHECK(approximate == "none" || approximate == "tanh", "approximate argument must be either none or tanh.");
  return std::string(approximate);
}

// A matrix (or batch of them) whose memory is that of its transpose: the operator gets the memory and a flag.
inline bool is_turned(const Tensor& t) {
  return !t.is_contiguous() && t.dim() >= 2 && t.transpose(-2, -1).is_contiguous();
}
inline Tensor upright(const Tensor& t) { return is_turned(t) ? t.transpose(-2, -1) : t; }

// What upstream's meta functions of products leave to the CPU's kernels.
inline void check_factors(const Tensor& first, const Tensor& second) {
  TORCH_CHECK(first.scalar_type() == second.scalar_type(),
              "expected m1 and m2 to have the same dtype, but got: ", first.dtype(), " != ", second.dtype());
}
inline void check_summand(const char* name, const Tensor& summand, const Tensor& result) {
  TORCH_CHECK(at::is_expandable_to(summand.sizes(), result.sizes()), name, ": The expanded size of the tensor ",
              result.sizes(), " does not fit the input of size ", summand.sizes(),
              ": give an input that can be broadcast to the product");
}

}  // namespace at::native::npu
