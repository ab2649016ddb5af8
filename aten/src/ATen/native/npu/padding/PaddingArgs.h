#pragma once
// Padding as IR operators spell it.

#include <ATen/core/Tensor.h>
#include <c10/util/DimVector.h>

namespace at::native::npu {

// Padding of the last dimensions, given last first, as [before, after] of every dimension from the first.
inline DimVector paddings_of(const Tensor& self, IntArrayRef padding) {
  DimVector out(2 * static_cast<size_t>(self.dim()), 0);
  for (size_t i = 0; i + 1 < padding.size(); i += 2) {
    out[out.size() - 2 - i] = padding[i];
    out[out.size() - 1 - i] = padding[i + 1];
  }
  return out;
}

}  // namespace at::native::npu
