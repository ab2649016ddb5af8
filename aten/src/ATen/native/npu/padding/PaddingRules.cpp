// See the header.

#include <ATen/native/npu/padding/PaddingRules.h>

#include <ATen/native/Padding.h>
#include <ATen/native/npu/frame/inference/ShapeRules.h>

#include <array>

namespace at::native::npu::meta_rules {
namespace {

DimVector padded_image(const Tensor& self, IntArrayRef padding) {
  const int64_t height = self.size(-2) + padding[2] + padding[3], width = self.size(-1) + padding[0] + padding[1];
  TORCH_CHECK(width >= 1 && height >= 1, "input (H: ", self.size(-2), ", W: ", self.size(-1),
              ") is too small. Calculated output H: ", height, " W: ", width);
  return with_last(self, {height, width});
}

}  // namespace

void reflection_pad2d::meta(const Tensor& self, IntArrayRef padding) {
  padding::check_valid_input<2>(self, padding);
  const int64_t height = self.size(-2), width = self.size(-1);
  TORCH_CHECK(padding[0] < width && padding[1] < width,
              "Argument #4: Padding size should be less than the corresponding input dimension, but got: padding (",
              padding[0], ", ", padding[1], ") at dimension ", self.dim() - 1, " of input ", self.sizes());
  TORCH_CHECK(padding[2] < height && padding[3] < height,
              "Argument #6: Padding size should be less than the corresponding input dimension, but got: padding (",
              padding[2], ", ", padding[3], ") at dimension ", self.dim() - 2, " of input ", self.sizes());
  set_output_raw_strided(0, padded_image(self, padding), {}, layout_of(self, 4));
}

void replication_pad2d::meta(const Tensor& self, IntArrayRef padding) {
  padding::check_valid_input<2>(self, padding);
  set_output_raw_strided(0, padded_image(self, padding), {}, layout_of(self, 4));
}

namespace {

void check_pad_backward(const Tensor& grad_output, const Tensor& self, IntArrayRef padding, int64_t rank) {
  TORCH_CHECK(static_cast<int64_t>(padding.size()) == 2 * rank, "padding size is expected to be ", 2 * rank);
  TORCH_CHECK(self.dim() > rank && self.dim() == grad_output.dim(), "gradient of padding: expected grad_output with ",
              self.dim(), " dimensions, but got ", grad_output.sizes());
  constexpr std::array<const char*, 3> kNames = {"width", "height", "depth"};
  for (int64_t i = 0; i < rank; ++i) {
    const auto at = static_cast<size_t>(i);
    const int64_t expected = self.size(-1 - i) + padding[2 * at] + padding[2 * at + 1];
    TORCH_CHECK(grad_output.size(-1 - i) == expected, "gradOutput ", kNames[at], " unexpected. Expected: ", expected,
                ", Got: ", grad_output.size(-1 - i));
  }
}

}  // namespace

void pad2d_backward::meta(const Tensor& grad_output, const Tensor& self, IntArrayRef padding) {
  check_pad_backward(grad_output, self, padding, 2);
  set_output_raw_strided(0, self.sizes(), {}, layout_of(self, 4));
}

void pad3d_backward::meta(const Tensor& grad_output, const Tensor& self, IntArrayRef padding) {
  check_pad_backward(grad_output, self, padding, 3);
  set_output_raw_strided(0, self.sizes(), {}, layout_of(self, 5));
}

}  // namespace at::native::npu::meta_rules
