// Gather, scatter, and indexing by tensors. Targets that are written in part are input 0 and output 0 at once.

#include "exec/definition/aten.h"
#include "ops/common.h"
#include "ops/index/slices.h"

#include <ATen/CPUFunctions.h>

namespace acl_sim {
namespace {

using at::Tensor;

const DtypeSet kIndexTypes = dtype_bit(ACL_INT32) | dtype_bit(ACL_INT64);
const DtypeSet kBool = dtype_bit(ACL_BOOL);

Tensor index_in(OpContext& c, size_t i) {
  const Tensor index = c.in(i);
  return index.scalar_type() == at::kLong ? index : index.to(at::kLong);
}

// x, index
void gather_elements(OpContext& c) {
  Tensor y = c.out(0);
  at::cpu::gather_out(y, c.in(0), c.attrs().integer("dim", 0), index_in(c, 1));
}
SIM_OP(GatherElements).inputs(2).dtypes({kAllTypes, kIntTypes}).attrs({"dim:int"}).run(gather_elements);

// x, indices, axis
void gather_v2(OpContext& c) {
  const Tensor x = c.in(0);
  Tensor y = c.out(0);
  const int64_t axis = at::maybe_wrap_dim(c.in_values(2).at(0), x.dim());
  const Tensor index = index_in(c, 1);
  const Slices slices = slices_along(x.sizes(), axis);
  if (const int64_t wrong = first_out_of_range(index, slices.size); wrong >= 0) {
    throw OpError(ACL_ERROR_RT_AICORE_EXCEPTION, "index " + std::to_string(index.const_data_ptr<int64_t>()[wrong]) +
                                                     " is out of bounds for dimension " + std::to_string(axis) +
                                                     " with size " + std::to_string(slices.size));
  }
  gather_slices(y.mutable_data_ptr(), x.const_data_ptr(), index, slices, x.itemsize());
}
SIM_OP(GatherV2).inputs(3).dtypes({kAllTypes, kIndexTypes, kIndexTypes}).run(gather_v2);

// var, indices, updates (or one value); reduction: none, add, multiply, or reduce_ with sum, mean, amax, amin, prod
void scatter_elements(OpContext& c) {
  const int64_t axis = c.attrs().integer("axis", 0);
  std::string reduction = c.attrs().text("reduction", "none");
  if (reduction == "mul") reduction = "multiply";
  const Tensor index = index_in(c, 1);
  const Tensor updates = c.in(2);
  const Tensor target = in_place(c);
  if (updates.dim() == 0 && (index.dim() > 0 || updates.scalar_type() != target.scalar_type())) {
    if (reduction == "none") {
      target.scatter_(axis, index, updates.item());
    } else {
      target.scatter_(axis, index, updates.item(), reduction);
    }
  } else if (reduction == "none") {
    target.scatter_(axis, index, updates);
  } else if (reduction == "add") {
    target.scatter_add_(axis, index, updates);
  } else {
    target.scatter_(axis, index, updates, reduction);
  }
}
SIM_OP(ScatterElements)
    .inputs(3)
    .dtypes({kAllTypes, kIntTypes, kAllTypes})
    .attrs({"axis:int", "reduction:str"})
    .run(scatter_elements);

void scatter_reduce(OpContext& c) {
  const Tensor index = index_in(c, 1), updates = c.in(2);
  in_place(c).scatter_reduce_(c.attrs().integer("axis", 0), index, updates, c.attrs().text("reduction", "sum"),
                              c.attrs().boolean("include_self", true));
}
SIM_OP(ScatterReduce)
    .inputs(3)
    .dtypes({kAllTypes, kIntTypes, kAllTypes})
    .attrs({"axis:int", "reduction:str", "include_self:bool"})
    .run(scatter_reduce);

void scatter_add(OpContext& c) {
  const Tensor index = index_in(c, 1), updates = c.in(2);
  in_place(c).scatter_add_(c.attrs().integer("axis", 0), index, updates);
}
SIM_OP(ScatterAddWithAxis)
    .inputs(3)
    .dtypes({kAllTypes, kIntTypes, kAllTypes})
    .attrs({"axis:int"})
    .require({"axis"})
    .run(scatter_add);

// var, indices, updates, alpha
void index_add(OpContext& c) {
  const Tensor index = index_in(c, 1), updates = c.in(2);
  const at::Scalar alpha = c.num_inputs() > 3 && c.has_input(3) ? c.in_scalar(3) : at::Scalar(1);
  const Tensor target = in_place(c);
  const int64_t axis = at::maybe_wrap_dim(c.attrs().integer("axis", 0), target.dim());
  // An index that is out of range is upstream's to refuse.
  const bool plain_sum = alpha.equal(1) && target.dim() > 0 && first_out_of_range(index, target.size(axis)) < 0;
  if (!plain_sum || !add_slices(target, updates, index, axis)) target.index_add_(axis, index, updates, alpha);
}
SIM_OP(InplaceIndexAdd)
    .inputs(3, 4)
    .dtypes({kAllTypes, kIndexTypes, kAllTypes, kAllTypes})
    .attrs({"axis:int"})
    .require({"axis"})
    .run(index_add);

void index_copy(OpContext& c) {
  const Tensor index = index_in(c, 1), updates = c.in(2);
  in_place(c).index_copy_(c.attrs().integer("axis", 0), index, updates);
}
// CANN's own writes rows; along other dimensions there is none.
SIM_OP(ScatterUpdate).inputs(3).dtypes({kAllTypes, kIndexTypes, kAllTypes}).run(index_copy);

// Rows are the larger, or smaller, of what was there and all that goes there. CANN's operators have these dtypes only.
constexpr DtypeSet kExtremeTypes = detail::dtype_bits(ACL_FLOAT16, ACL_FLOAT, ACL_INT32, ACL_INT8, ACL_UINT8);
void scatter_max(OpContext& c) {
  const Tensor index = index_in(c, 1), updates = c.in(2);
  in_place(c).index_reduce_(0, index, updates, "amax");
}
void scatter_min(OpContext& c) {
  const Tensor index = index_in(c, 1), updates = c.in(2);
  in_place(c).index_reduce_(0, index, updates, "amin");
}
SIM_OP(ScatterMax).inputs(3).dtypes({kExtremeTypes, kIndexTypes, kExtremeTypes}).run(scatter_max);
SIM_OP(ScatterMin).inputs(3).dtypes({kExtremeTypes, kIndexTypes, kExtremeTypes}).run(scatter_min);
SIM_OP(IndexCopy).inputs(3).dtypes({kAllTypes, kIndexTypes, kAllTypes}).attrs({"axis:int"}).run(index_copy);

void index_reduce(OpContext& c) {
  const Tensor index = index_in(c, 1), updates = c.in(2);
  in_place(c).index_reduce_(c.attrs().integer("axis", 0), index, updates, c.attrs().text("reduction", "prod"),
                            c.attrs().boolean("include_self", true));
}
SIM_OP(IndexReduce)
    .inputs(3)
    .dtypes({kAllTypes, kIndexTypes, kAllTypes})
    .attrs({"axis:int", "reduction:str", "include_self:bool"})
    .run(index_reduce);

// var, indices, value
void index_fill(OpContext& c) {
  const Tensor index = index_in(c, 1);
  const at::Scalar value = c.in_scalar(2);
  in_place(c).index_fill_(c.attrs().integer("dim", 0), index, value);
}
SIM_OP(IndexFill)
    .inputs(3)
    .dtypes({kAllTypes, kIndexTypes, kAllTypes})
    .attrs({"dim:int"})
    .require({"dim"})
    .run(index_fill);

// The index tensors of Index and IndexPutV2: one for each dimension whose flag in the host list is 1.
c10::List<std::optional<Tensor>> indices_of(OpContext& c, size_t first, const std::vector<int64_t>& flags) {
  c10::List<std::optional<Tensor>> indices;
  size_t next = first;
  for (const int64_t flag : flags) {
    indices.push_back(flag != 0 ? std::optional<Tensor>(index_in(c, next++)) : std::nullopt);
  }
  return indices;
}

// x, flags, the same again, indices...
void index(OpContext& c) {
  Tensor y = c.out(0);
  at::cpu::index_out(y, c.in(0), indices_of(c, 3, c.in_values(1)));
}
SIM_OP(Index).inputs(4, kManyInputs).dtypes(kAllTypes).run(index);

// x, value, flags, the same again, indices...
void index_put(OpContext& c) {
  const auto indices = indices_of(c, 4, c.in_values(2));
  const Tensor value = c.in(1);
  in_place(c).index_put_(indices, value, c.attrs().boolean("accumulate", false));
}
SIM_OP(IndexPutV2).inputs(5, kManyInputs).dtypes(kAllTypes).attrs({"accumulate:bool"}).run(index_put);

// x -> coordinates of its non-zero elements, in rows or (transpose) in columns; the caller knows how many there are.
void non_zero(OpContext& c) {
  Tensor y = c.attrs().boolean("transpose", false) ? c.out(0).t() : c.out(0);
  at::cpu::nonzero_out(y, c.in(0));
}
SIM_OP(NonZero).inputs(1).dtypes(kAllTypes).attrs({"transpose:bool"}).run(non_zero);

void masked_select(OpContext& c) {
  Tensor y = c.out(0);
  at::cpu::masked_select_out(y, c.in(0), c.in(1));
}
SIM_OP(MaskedSelect).inputs(2).dtypes({kAllTypes, kBool}).run(masked_select);

// x, mask, updates
void masked_scatter(OpContext& c) {
  const Tensor mask = c.in(1), updates = c.in(2);
  in_place(c).masked_scatter_(mask, updates);
}
SIM_OP(MaskedScatter).inputs(3).dtypes({kAllTypes, kBool, kAllTypes}).run(masked_scatter);

// x (flat), indices
void take(OpContext& c) {
  Tensor y = c.out(0);
  at::cpu::take_out(y, c.in(0), index_in(c, 1));
}
SIM_OP(Take).inputs(2).dtypes({kAllTypes, kIndexTypes}).run(take);

// x, indices, updates
void put(OpContext& c) {
  const Tensor index = index_in(c, 1), updates = c.in(2);
  in_place(c).put_(index, updates, c.attrs().boolean("accumulate", false));
}
SIM_OP(Put).inputs(3).dtypes({kAllTypes, kIndexTypes, kAllTypes}).attrs({"accumulate:bool"}).run(put);

// sorted, values, sorter
void search_sorted(OpContext& c) {
  Tensor y = c.out(0);
  const bool narrow = y.scalar_type() == at::kInt;
  std::optional<Tensor> sorter;
  if (c.num_inputs() > 2 && c.has_input(2)) sorter = c.in(2);
  at::cpu::searchsorted_out(y, c.in(0), c.in(1), narrow, c.attrs().boolean("right", false), std::nullopt, sorter);
}
SIM_OP(SearchSorted).inputs(2, 3).dtypes(kAllTypes).attrs({"right:bool", "dtype:dtype"}).run(search_sorted);

// elements, test elements -> whether each is among them
void is_in(OpContext& c) {
  const Tensor elements = c.in(0), tests = c.in(1);
  const at::ScalarType dtype = at::result_type(elements, tests);
  Tensor y = c.out(0);
  at::cpu::isin_out(y, elements.to(dtype), tests.to(dtype), c.attrs().boolean("assume_unique", false),
                    c.attrs().boolean("invert", false));
}
SIM_OP(IsIn).inputs(2).dtypes(kAllTypes).attrs({"assume_unique:bool", "invert:bool"}).run(is_in);

// gradient of the windows, sizes of the input
void unfold_grad(OpContext& c) {
  const auto& a = c.attrs();
  c.out(0).copy_(
      at::unfold_backward(c.in(0), c.in_values(1), a.integer("dim", 0), a.integer("size", 1), a.integer("step", 1)));
}
SIM_OP(UnfoldGrad).inputs(2).dtypes(kAllTypes).attrs({"dim:int", "size:int", "step:int"}).run(unfold_grad);

// x, repeats; without an axis, of x as a vector
void repeat_interleave(OpContext& c) {
  constexpr int64_t kNone = 1000;
  const int64_t axis = c.attrs().integer("axis", kNone);
  Tensor y = c.out(0);
  const int64_t size = axis == kNone ? y.numel() : y.size(axis);
  y.copy_(at::repeat_interleave(c.in(0), c.in(1), axis == kNone ? std::nullopt : std::optional<int64_t>(axis), size));
}
SIM_OP(RepeatInterleave).inputs(2).dtypes({kAllTypes, kIndexTypes}).attrs({"axis:int"}).run(repeat_interleave);

SIM_ATEN(IsInOfScalar, "isin.Scalar_Tensor_out");

}  // namespace
}  // namespace acl_sim
