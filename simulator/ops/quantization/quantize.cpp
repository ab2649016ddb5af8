// Quantize: real numbers to 8- or 32-bit codes, with one scale or one per channel. Computed by the CPU's kernels, so
// that rounding, saturation and what becomes of NaN are theirs.

#include <ATen/native/quantized/AffineQuantizer.h>
#include <ATen/quantized/Quantizer.h>

#include "ops/nn_util.h"

namespace acl_sim {
namespace {

using at::Tensor;

at::ScalarType codes_type(const std::string& name) {
  if (name == "torch.quint8") return at::kQUInt8;
  if (name == "torch.qint8") return at::kQInt8;
  if (name == "torch.qint32") return at::kQInt32;
  refuse("Quantize: dtype is torch.quint8, torch.qint8 or torch.qint32, not " + name);
}

// x, scales, zero points -> codes. One scale, or one per channel of the axis; integer zero points are added after
// rounding, real ones before.
void quantize(OpContext& c) {
  Tensor x = widen(c.in(0));
  const Tensor scales = widen(c.in(1));
  const Tensor points = c.has_input(2) ? widen(c.in(2)) : at::zeros_like(scales, at::kInt);
  const at::ScalarType dtype = codes_type(c.attrs().text("dtype", ""));
  const Tensor y = c.out(0);
  if (y.scalar_type() != at::toUnderlying(dtype)) {
    refuse("Quantize: the output is not of the type that dtype names: " + c.describe());
  }
  if (points.numel() != scales.numel()) refuse("Quantize: as many zero points as scales: " + c.describe());
  if (x.dim() == 0) x = x.reshape({1});
  const auto options = at::TensorOptions(dtype).device(at::kCPU);
  const auto borrowed = [](void*) {};
  const bool real_points = at::isFloatingType(points.scalar_type());
  if (scales.dim() == 0 && !real_points) {
    const float scale = scales.item<float>();
    const auto point = points.item<int64_t>();
    Tensor codes = at::from_blob_quantized_per_tensor_affine(y.data_ptr(), x.sizes(), borrowed, scale, point, options);
    at::native::quantize_tensor_per_tensor_affine(x, codes, scale, point);
    return;
  }
  int64_t axis = scales.numel() == 1 ? 0 : c.attrs().integer("axis", 1);
  if (axis < 0) axis += x.dim();
  if (axis < 0 || axis >= x.dim()) refuse("Quantize: axis is a dimension of x: " + c.describe());
  const int64_t count = x.size(axis);
  if (scales.numel() != count && scales.numel() != 1) {
    refuse("Quantize: one scale, or one per channel: " + c.describe());
  }
  const auto per_channel = [count](const Tensor& t, at::ScalarType type) {
    return t.reshape({-1}).to(type).expand({count}).contiguous();
  };
  const Tensor each = per_channel(scales, real_points ? at::kFloat : at::kDouble);
  const Tensor zeros = per_channel(points, real_points ? at::kFloat : at::kLong);
  Tensor codes =
      at::from_blob_quantized_per_channel_affine(y.data_ptr(), x.sizes(), borrowed, each, zeros, axis, options);
  if (real_points) {
    at::native::quantize_tensor_per_channel_float_qparams(x, codes, each, zeros, axis);
  } else {
    at::native::quantize_tensor_per_channel_affine(x, codes, each, zeros, axis);
  }
}
SIM_OP(Quantize)
    .inputs(2, 3)
    .outputs(1)
    .dtypes({dtype_bit(ACL_FLOAT16) | dtype_bit(ACL_FLOAT) | dtype_bit(ACL_BF16),
             dtype_bit(ACL_FLOAT) | dtype_bit(ACL_BF16),
             dtype_bit(ACL_INT8) | dtype_bit(ACL_UINT8) | dtype_bit(ACL_INT32) | dtype_bit(ACL_FLOAT) |
                 dtype_bit(ACL_BF16)})
    .attrs({"dtype:str", "axis:int"})
    .require({"dtype"})
    .run(quantize);

}  // namespace
}  // namespace acl_sim
