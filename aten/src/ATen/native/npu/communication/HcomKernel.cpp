// Operators of HCCL as operators of a graph have them: they name the group that they work in.

#include <NPUCustomFunctions.h>
#include <torch/csrc/distributed/c10d/GroupRegistry.hpp>

#include <map>

namespace at::native::npu {
namespace {

// The name under which HCCL knows the group of all ranks, and that which torch.distributed gives it.
constexpr std::string_view kWorld = "hccl_world_group";
constexpr const char* kDefaultGroup = "0";

c10d::ReduceOp reduction_of(std::string_view name) {
  static const std::map<std::string_view, c10d::ReduceOp::RedOpType> names = {{"sum", c10d::ReduceOp::SUM},
                                                                              {"prod", c10d::ReduceOp::PRODUCT},
                                                                              {"min", c10d::ReduceOp::MIN},
                                                                              {"max", c10d::ReduceOp::MAX}};
  const auto found = names.find(name);
  TORCH_CHECK_VALUE(found != names.end(), "npu_hcom_allreduce: reduction must be sum, prod, min or max, but got '",
                    name, "'");
  return found->second;
}

c10::intrusive_ptr<c10d::ProcessGroup> group_of(std::string_view name) {
  const std::string key = name == kWorld ? kDefaultGroup : std::string(name);
  try {
    return c10d::resolve_process_group(key);
  } catch (const c10::Error&) {
    TORCH_CHECK_VALUE(false, "npu_hcom_allreduce: there is no group '", name,
                      "'; call torch.distributed.init_process_group(\"hccl\") and give the group_name of a group, or ",
                      kWorld, " for all ranks");
  }
}

}  // namespace

Tensor npu_hcom_allreduce(const Tensor& self, std::string_view reduction, std::string_view group, int64_t /*fusion*/,
                          int64_t /*fusion_id*/, double alpha, double beta, Tensor& out,
                          std::optional<int64_t> /*hccl_comm*/) {
  TORCH_CHECK_VALUE(alpha == 1 && beta == 0, "npu_hcom_allreduce: only alpha = 1 and beta = 0 are supported, but got ",
                    alpha, " and ", beta);
  c10d::AllreduceOptions options;
  options.reduceOp = reduction_of(reduction);
  const auto ranks = group_of(group);
  if (!out.is_same(self)) out.resize_(self.sizes()).copy_(self);
  std::vector<Tensor> tensors{out};
  ranks->allreduce(tensors, options)->wait();
  return out;
}

}  // namespace at::native::npu
