// npu_ifmr: the scale and offset with which 8-bit quantization loses least, as one IR operator.

#include <ATen/native/npu/frame/command/DeviceOf.h>
#include <ATen/native/npu/frame/command/OpCommand.h>
#include <ATen/native/npu/frame/inference/Dtype.h>
#include <ATen/native/npu/frame/inference/NewLike.h>
#include <NPUCustomFunctions.h>

#include <tuple>

namespace at::native::npu {

std::tuple<Tensor, Tensor> npu_ifmr(const Tensor& data, const Tensor& data_min, const Tensor& data_max,
                                    const Tensor& cumsum, double min_percentile, double max_percentile,
                                    double search_start, double search_end, double search_step, bool with_offset) {
  DeviceOf guard(data);
  check_dtype(data.scalar_type(), kDtypeFloat, "npu_ifmr");
  TORCH_CHECK(elements(data) > 0 && elements(data_min) == 1 && elements(data_max) == 1 && cumsum.dim() == 1,
              "npu_ifmr: data, its minimum and maximum of one element each, and a cumulated histogram expected, got ",
              data.sizes(), ", ", data_min.sizes(), ", ", data_max.sizes(), " and ", cumsum.sizes());
  TORCH_CHECK(search_step > 0 && search_end > search_start, "npu_ifmr: there is nothing to search from ", search_start,
              " to ", search_end, " in steps of ", search_step);
  const Tensor scale = new_like(data_min), offset = new_like(data_min);
  if (scale.is_meta()) return {scale, offset};
  OpCommand cmd;
  cmd.Name("IFMR").Input(data).Input(data_min).Input(data_max).Input(cumsum).Output(scale).Output(offset);
  cmd.Attr("min_percentile", min_percentile).Attr("max_percentile", max_percentile);
  cmd.Attr("search_range", ArrayRef<double>({search_start, search_end})).Attr("search_step", search_step);
  cmd.Attr("with_offset", with_offset).Run();
  return {scale, offset};
}

}  // namespace at::native::npu
