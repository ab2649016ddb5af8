// Results of attention operators that upstream has no meta kernel for.

#include <ATen/native/npu/frame/registration/AtenOp.h>

namespace at::native::npu {

OutputSpecs rescale_qkv_outputs(const AtenArguments& a) {
  const Tensor& qkv = a.tensor("qkv");
  const int64_t heads = a["num_heads"].toInt(), width = a.tensor("qkv_bias").size(0) / 3;
  TORCH_CHECK(qkv.dim() == 3 && heads > 0 && width % heads == 0, "_transform_bias_rescale_qkv: expected qkv of three ",
              "dimensions and a width that num_heads divides, but found ", qkv.sizes(), " and ", heads, " heads");
  return OutputSpecs(3, output_of(qkv.scalar_type(), {qkv.size(0), heads, qkv.size(1), width / heads}));
}

}  // namespace at::native::npu
