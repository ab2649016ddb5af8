// Operators of HCCL as operators of a graph have them.

#include <NPUCustomFunctions.h>

namespace at::native::npu {

Tensor npu_hcom_allreduce(const Tensor& /*self*/, std::string_view /*reduction*/, std::string_view group,
                          int64_t /*fusion*/, int64_t /*fusion_id*/, double /*alpha*/, double /*beta*/, Tensor& /*out*/,
                          std::optional<int64_t> /*hccl_comm*/) {
  TORCH_CHECK_NOT_IMPLEMENTED(false, "npu_hcom_allreduce in group '", group,
                              "' needs HCCL, which this build does not have yet; torch.distributed reduces tensors "
                              "through its other back ends");
}

}  // namespace at::native::npu
