// What the CPU checks of segments and upstream's meta kernel does not.

#include <ATen/native/npu/frame/registration/AtenOp.h>

namespace at::native::npu {

void check_segments(const AtenArguments& a) {
  const std::string reduce = a["reduce"].toStringRef();
  TORCH_CHECK(reduce == "sum" || reduce == "prod" || reduce == "mean" || reduce == "max" || reduce == "min" ||
                  reduce == "amax" || reduce == "amin",
              "reduce argument must be either sum, prod, mean, amax or amin, got ", reduce);
  for (const char* name : {"lengths", "offsets"}) {
    if (!a[name].isTensor() || !a.tensor(name).defined()) continue;
    const Tensor& t = a.tensor(name);
    TORCH_CHECK(t.scalar_type() == kLong || t.scalar_type() == kInt, "segment_reduce(): ", name,
                " have to be of dtype Long or Int, but are of ", t.scalar_type());
    TORCH_CHECK(a.tensor("data").dim() >= t.dim(), "segment_reduce(): Expected data.dim() >= ", name,
                ".dim() to be true, but data has shape ", a.tensor("data").sizes(), " and ", name, " ", t.sizes());
    // The CPU looks for the least of them.
    TORCH_CHECK(t.numel() > 0 || std::string_view(name) == "offsets" || a["unsafe"].toBool(),
                "min(): Expected reduction dim to be specified for input.numel() == 0. Specify the reduction dim with ",
                "the 'dim' argument.");
  }
  if (!a["lengths"].isTensor() || !a.tensor("lengths").defined() || a["unsafe"].toBool()) return;
  // At the call, as upstream on every device: the host waits for them.
  const Tensor& lengths = a.tensor("lengths");
  TORCH_CHECK(lengths.min().item<int64_t>() >= 0, "lengths contains negative value!");
  TORCH_CHECK(lengths.sum(-1).eq(a.tensor("data").size(lengths.dim() - 1)).all().item<bool>(),
              "segment_reduce(): Expected all rows of lengths along axis to sum to data.size(lengths.dim()-1) when "
              "!unsafe.");
}

}  // namespace at::native::npu
