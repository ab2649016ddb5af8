#pragma once
// Arguments of windows that slide over images and volumes, as IR operators spell them.

#include <c10/util/ArrayRef.h>
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

}  // namespace at::native::npu
