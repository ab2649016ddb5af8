// npu_stride_add: sums blocks of 16 channels.

#include <ATen/ATen.h>
#include <NPUCustomFunctions.h>

namespace at::native::npu {
namespace {

constexpr int64_t kChannelBlock = 16;  // channels in one block of NC1HWC0

}  // namespace

// Offsets and length count blocks of 16 channels; channels that are not there are zeros.
Tensor npu_stride_add(const Tensor& self, const Tensor& other, const Scalar& offset1, const Scalar& offset2,
                      const Scalar& c1_len) {
  TORCH_CHECK(self.dim() >= 2 && self.dim() == other.dim(), "npu_stride_add: two tensors (N, C, ...) expected, got ",
              self.sizes(), " and ", other.sizes());
  const int64_t length = c1_len.toLong() * kChannelBlock;
  const auto part = [&](const Tensor& t, int64_t offset) {
    TORCH_CHECK(offset >= 0 && length > 0, "npu_stride_add: offsets are at least 0 and c1_len at least 1, got ", offset,
                " and ", c1_len);
    const int64_t first = std::min(offset * kChannelBlock, t.size(1));
    const int64_t last = std::min(first + length, t.size(1));
    std::vector<int64_t> padding(2 * (t.dim() - 1), 0);
    padding.back() = length - (last - first);
    return at::constant_pad_nd(t.narrow(1, first, last - first), padding, 0);
  };
  return part(self, offset1.toLong()) + part(other, offset2.toLong());
}

}  // namespace at::native::npu
