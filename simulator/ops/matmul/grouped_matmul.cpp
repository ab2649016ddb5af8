// Products of groups of rows, or of groups of the inner dimension, with one weight each.

#include "ops/matmul/cube.h"

namespace acl_sim {
namespace {

constexpr size_t kX = 0, kWeight = 1, kFirstAbsent = 2, kGroupList = 7;
constexpr int64_t kGroupsOfRows = 0, kGroupsOfInner = 2;

// inputs x, weight, five that quantised tensors and biases need, group_list: the end of each group
void grouped_mat_mul(OpContext& c) {
  for (size_t i = kFirstAbsent; i < kGroupList; ++i) {
    if (c.has_input(i)) refuse("GroupedMatmul: only x, weight and group_list are taken");
  }
  const int64_t type = c.attrs().integer("group_type", -1);
  if (type != kGroupsOfRows && type != kGroupsOfInner) refuse("GroupedMatmul: group_type must be 0 or 2");
  if (c.attrs().integer("group_list_type", 0) != 0) refuse("GroupedMatmul: group_list_type must be 0");
  at::Tensor x = cube_operand(c, c.in(kX)), weight = cube_operand(c, c.in(kWeight)), y = c.out(0);
  if (c.attrs().boolean("transpose_x", false)) x = x.t();
  if (c.attrs().boolean("transpose_weight", false)) weight = weight.transpose(-2, -1);
  const std::vector<int64_t> ends = c.in_values(kGroupList);
  const int64_t length = x.size(type == kGroupsOfRows ? 0 : 1);
  int64_t start = 0;
  for (size_t g = 0; g < ends.size(); ++g) {
    if (ends[g] < start || ends[g] > length) {
      refuse(format("GroupedMatmul: group_list must rise to at most %lld, but its element %zu is %lld",
                    static_cast<long long>(length), g, static_cast<long long>(ends[g])));
    }
    const int64_t index = static_cast<int64_t>(g), size = ends[g] - start;
    if (type == kGroupsOfRows) {
      if (size > 0) y.narrow(0, start, size).copy_(at::mm(x.narrow(0, start, size), weight[index]));
    } else {
      y[index].copy_(at::mm(x.narrow(1, start, size), weight.narrow(0, start, size)));
    }
    start = ends[g];
  }
  if (type == kGroupsOfRows) y.narrow(0, start, length - start).zero_();
}

SIM_OP(GroupedMatmul)
    .inputs(8)
    .dtypes({kFloatTypes, kFloatTypes, kFloatTypes, kFloatTypes, kFloatTypes, kFloatTypes, kFloatTypes,
             dtype_bit(ACL_INT64)})
    .attrs({"split_item:int", "transpose_x:bool", "transpose_weight:bool", "group_type:int", "group_list_type:int"})
    .on_cube(CubeClass::MatMul)
    .run(grouped_mat_mul);

}  // namespace
}  // namespace acl_sim
