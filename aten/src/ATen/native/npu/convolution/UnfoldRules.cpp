// See the header.

#include <ATen/native/npu/convolution/UnfoldRules.h>

#include <ATen/native/im2col_shape_check.h>

namespace at::native::npu::meta_rules {
namespace {

void check_two(const char* argument, IntArrayRef values) {
  TORCH_CHECK(values.size() == 2, "It is expected ", argument, " equals to 2, but got size ", values.size());
}

}  // namespace

void im2col::meta(const Tensor& self, IntArrayRef kernel_size, IntArrayRef dilation, IntArrayRef padding,
                  IntArrayRef stride) {
  check_two("kernel_size", kernel_size);
  check_two("dilation", dilation);
  check_two("padding", padding);
  check_two("stride", stride);
  TORCH_CHECK(self.dim() == 3 || self.dim() == 4,
              "Expected 3D or 4D (batch mode) tensor with possibly 0 batch size and other non-zero dimensions for "
              "input, but got: ",
              self.sizes());
  im2col_shape_check(self, Tensor(), kernel_size[0], kernel_size[1], dilation[0], dilation[1], padding[0], padding[1],
                     stride[0], stride[1]);
  int64_t length = 1;
  for (size_t i = 0; i < 2; ++i) {
    const int64_t size = self.size(static_cast<int64_t>(i) - 2);
    length *= (size + 2 * padding[i] - dilation[i] * (kernel_size[i] - 1) - 1) / stride[i] + 1;
  }
  DimVector sizes;
  if (self.dim() == 4) {
    sizes.push_back(self.size(0));
  }
  sizes.push_back(self.size(-3) * kernel_size[0] * kernel_size[1]);
  sizes.push_back(length);
  set_output_raw_strided(0, sizes, {}, self.options());
}

void col2im::meta(const Tensor& self, IntArrayRef output_size, IntArrayRef kernel_size, IntArrayRef dilation,
                  IntArrayRef padding, IntArrayRef stride) {
  check_two("output_size", output_size);
  check_two("kernel_size", kernel_size);
  check_two("dilation", dilation);
  check_two("padding", padding);
  check_two("stride", stride);
  col2im_shape_check(self, Tensor(), output_size[0], output_size[1], kernel_size[0], kernel_size[1], dilation[0],
                     dilation[1], padding[0], padding[1], stride[0], stride[1]);
  DimVector sizes;
  if (self.dim() == 3) {
    sizes.push_back(self.size(0));
  }
  sizes.push_back(self.size(-2) / (kernel_size[0] * kernel_size[1]));
  sizes.append(output_size.begin(), output_size.end());
  set_output_raw_strided(0, sizes, {}, self.options());
}

}  // namespace at::native::npu::meta_rules
