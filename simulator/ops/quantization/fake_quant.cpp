// Fake quantization and its gradients.

#include "exec/definition/aten.h"

namespace acl_sim {
namespace {

SIM_ATEN(FakeQuantTensor, "fake_quantize_per_tensor_affine_cachemask");
SIM_ATEN(FakeQuantTensorQparams, "_fake_quantize_per_tensor_affine_cachemask_tensor_qparams");
SIM_ATEN(FakeQuantChannel, "fake_quantize_per_channel_affine_cachemask");
SIM_ATEN(FakeQuantLearnableTensor, "_fake_quantize_learnable_per_tensor_affine");
SIM_ATEN(FakeQuantLearnableChannel, "_fake_quantize_learnable_per_channel_affine");
SIM_ATEN(FakeQuantLearnableTensorGrad, "_fake_quantize_learnable_per_tensor_affine_backward");
SIM_ATEN(FakeQuantLearnableChannelGrad, "_fake_quantize_learnable_per_channel_affine_backward");
SIM_ATEN(FusedMovingAvgObsFakeQuant, "_fused_moving_avg_obs_fq_helper");

}  // namespace
}  // namespace acl_sim
