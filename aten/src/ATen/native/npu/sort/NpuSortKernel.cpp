// npu's own sort, which gives values alone.

#include <ATen/ATen.h>
#include <ATen/native/npu/frame/inference/Give.h>
#include <NPUCustomFunctions.h>

namespace at::native::npu {

Tensor npu_sort_v2(const Tensor& self, int64_t dim, bool descending) {
  return std::get<0>(at::sort(self, dim, descending));
}

Tensor& npu_sort_v2_out(const Tensor& self, int64_t dim, bool descending, Tensor& out) {
  return give(npu_sort_v2(self, dim, descending), out);
}

}  // namespace at::native::npu
