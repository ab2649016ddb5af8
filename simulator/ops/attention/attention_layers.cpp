// Attention and transformer layers that are one ATen operator each.

#include "exec/definition/aten.h"

namespace acl_sim {
namespace {

SIM_ATEN(NativeMultiHeadAttention, "_native_multi_head_attention");
SIM_ATEN(TransformerEncoderLayer, "_transformer_encoder_layer_fwd");
SIM_ATEN(TransformBiasRescaleQkv, "_transform_bias_rescale_qkv");

}  // namespace
}  // namespace acl_sim
