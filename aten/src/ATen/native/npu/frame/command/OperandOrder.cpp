// See OperandOrder.h.

#include <ATen/native/npu/frame/command/OperandOrder.h>

#include <ATen/native/npu/frame/layout/Strides.h>

#include <algorithm>
#include <string_view>
#include <unordered_set>

namespace at::native::npu {

using Names = std::unordered_set<std::string_view>;

bool broadcasts(const char* ir) {
  static const Names names{
      "Add",      "Addcdiv",  "Addcmul", "Atan2",        "AxpyV2", "BitwiseAnd", "BitwiseOr",  "BitwiseXor",  "Equal",
      "FloorDiv", "FloorMod", "Greater", "GreaterEqual", "Less",   "LessEqual",  "LogicalAnd", "LogicalOr",   "Maximum",
      "Minimum",  "Mod",      "Mul",     "NotEqual",     "Pow",    "RealDiv",    "Sub",        "TruncateDiv", "Xlogy",
  };
  return names.count(ir) != 0;
}

bool reduces(const char* ir) {
  static const Names names{
      "ReduceAll", "ReduceAny", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum",
  };
  return names.count(ir) != 0;
}

bool takes_rows(const char* ir) {
  static const Names names{"MaxPoolGradWithArgmaxV3", "MaxPoolWithArgmaxV3"};
  return names.count(ir) != 0;
}

aclDataType operand_dtype_without_acl(const char* ir, ScalarType type) {
  static const Names moves{"AsStrided", "BroadcastTo", "ConcatD",   "GatherV2", "Identity",
                           "Roll",      "Select",      "Transpose", "ViewCopy"};
  static const Names moves_float8{"GatherElements", "Index", "MaskedSelect", "Take"};
  static const Names compares{"Equal", "NotEqual"};
  const bool taken = moves.count(ir) != 0 || (isFloat8Type(type) && moves_float8.count(ir) != 0) ||
                     // Two numbers of four bits are compared as one.
                     (type == ScalarType::Float4_e2m1fn_x2 && compares.count(ir) != 0);
  if (!taken || isQIntType(type)) return acl_dtype(type);  // which says so
  return c10::elementSize(type) == 1 ? ACL_UINT8 : ACL_UINT16;
}

bool order_reduction(const Tensor& t, IntArrayRef axes, bool keep_dims, OrderedReduction& ordered) {
  if (t.numel() == 0 || !is_dense(t)) return false;
  const int64_t rank = t.dim();
  DimVector reduced(rank, 0);
  for (const int64_t axis : axes) reduced[axis < 0 ? axis + rank : axis] = 1;
  const DimVector order = memory_order(t.sizes(), t.strides());
  DimVector place(rank);
  int64_t last = -1;
  ordered.sizes.clear();
  ordered.result.clear();
  for (int64_t i = 0; i < rank; ++i) {
    const int64_t d = order[i];
    place[d] = i;
    ordered.sizes.push_back(t.size(d));
    if (reduced[d] != 0) {
      if (keep_dims) ordered.result.push_back(1);
      continue;
    }
    ordered.result.push_back(t.size(d));
    if (t.size(d) == 1) continue;
    if (d < last) return false;
    last = d;
  }
  ordered.axes.clear();
  for (const int64_t axis : axes) ordered.axes.push_back(place[axis < 0 ? axis + rank : axis]);
  return true;
}

}  // namespace at::native::npu
