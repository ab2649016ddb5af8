#include "exec/watching/saturation.h"

#include "exec/watching/float_status.h"

#include <string_view>
#include <unordered_set>

namespace acl_sim {
namespace {

bool only_moves(const OpDef& def) {
  static const std::unordered_set<std::string_view> types = {
      "Abs",        "AsStrided",     "BroadcastTo",      "ConcatD",
      "Fill",       "ForeachCopy",   "GatherElements",   "GatherV2",
      "Identity",   "Index",         "IndexCopy",        "IndexFill",
      "MaskedFill", "MaskedScatter", "MaskedSelect",     "Neg",
      "Pack",       "PadV3",         "RepeatInterleave", "ReverseV2",
      "Roll",       "ScatterUpdate", "Select",           "SelectV2",
      "Take",       "Tile",          "TransData",        "Transpose",
      "Tril",       "Triu",          "ViewCopy",
  };
  return types.contains(def.type);
}

// Infinities have the exponent's bits set and the fraction zero; the number below is the largest.
template <class Bits, Bits kExponent>
void saturate(void* data, int64_t count) {
  constexpr Bits kSign = static_cast<Bits>(Bits{1} << (sizeof(Bits) * 8 - 1));
  constexpr Bits kLargest = static_cast<Bits>(kExponent - 1);
  auto* values = static_cast<Bits*>(data);
  for (int64_t i = 0; i < count; ++i) {
    const Bits magnitude = static_cast<Bits>(values[i] & ~kSign);
    const Bits finite = static_cast<Bits>((values[i] & kSign) | kLargest);
    values[i] = magnitude < kExponent ? values[i] : magnitude == kExponent ? finite : Bits{0};
  }
}

}  // namespace

void saturate_results(const CompiledOp& op, OpLaunch& launch) {
  if (op.def->on_ai_cpu || only_moves(*op.def)) return;
  for (size_t i = 0; i < op.outputs.size(); ++i) {
    const auto& output = op.outputs[i];
    if (!is_watched(output)) continue;
    void* data = launch.operand(op.inputs.size() + i);
    if (output.dtype == ACL_FLOAT) {
      saturate<uint32_t, 0x7F800000>(data, output.elements);
    } else if (output.dtype == ACL_FLOAT16) {
      saturate<uint16_t, 0x7C00>(data, output.elements);
    } else {
      saturate<uint16_t, 0x7F80>(data, output.elements);
    }
  }
}

}  // namespace acl_sim
