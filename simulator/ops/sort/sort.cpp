// Sorting, selection and counting.

#include "exec/definition/aten.h"
#include "ops/common.h"

#include <ATen/CPUFunctions.h>

namespace acl_sim {
namespace {

using at::Tensor;

const DtypeSet kRealAndBool = kRealTypes | dtype_bit(ACL_BOOL);

// x -> values, indices
void sort(OpContext& c) {
  Tensor values = c.out(0), indices = c.out(1);
  at::cpu::sort_out(values, indices, c.in(0), c.attrs().boolean("stable", false), c.attrs().integer("axis", -1),
                    c.attrs().boolean("descending", false));
}
SIM_OP(Sort)
    .costly()
    .inputs(1)
    .outputs(2)
    .dtypes(kRealAndBool)
    .attrs({"axis:int", "descending:bool", "stable:bool", "y2_dtype:int"})
    .run(sort);

// x, k -> values, indices
void top_k(OpContext& c) {
  Tensor values = c.out(0), indices = c.out(1);
  at::cpu::topk_out(values, indices, c.in(0), c.in_values(1).at(0), c.attrs().integer("dim", -1),
                    c.attrs().boolean("largest", true), c.attrs().boolean("sorted", true));
}
SIM_OP(TopKV2)
    .costly()
    .inputs(2)
    .outputs(2)
    .dtypes(kAllTypes)
    .attrs({"dim:int", "largest:bool", "sorted:bool", "indices_dtype:int"})
    .run(top_k);

// x -> values, indices: the k-th smallest along a dimension
void kth_value(OpContext& c) {
  Tensor values = c.out(0), indices = c.out(1);
  at::cpu::kthvalue_out(values, indices, c.in(0), c.attrs().integer("k", 1), c.attrs().integer("dim", -1),
                        c.attrs().boolean("keep_dims", false));
}
SIM_OP(KthValue)
    .costly()
    .inputs(1)
    .outputs(2)
    .dtypes(kRealTypes)
    .attrs({"k:int", "dim:int", "keep_dims:bool"})
    .run(kth_value);

// x -> values, indices
void median(OpContext& c) {
  Tensor values = c.out(0), indices = c.out(1);
  const int64_t dim = c.attrs().integer("dim", -1);
  const bool keep = c.attrs().boolean("keep_dims", false);
  if (c.attrs().boolean("ignore_nan", false)) {
    at::cpu::nanmedian_out(values, indices, c.in(0), dim, keep);
  } else {
    at::cpu::median_out(values, indices, c.in(0), dim, keep);
  }
}
SIM_OP(Median)
    .costly()
    .inputs(1)
    .outputs(2)
    .dtypes(kRealTypes)
    .attrs({"dim:int", "keep_dims:bool", "ignore_nan:bool"})
    .run(median);

void median_of_all(OpContext& c) {
  const Tensor x = c.in(0);
  c.out(0).copy_(c.attrs().boolean("ignore_nan", false) ? at::nanmedian(x) : at::median(x));
}
SIM_OP(MedianAll).costly().inputs(1).dtypes(kRealTypes).attrs({"ignore_nan:bool"}).run(median_of_all);

void mode(OpContext& c) {
  Tensor values = c.out(0), indices = c.out(1);
  at::mode_out(values, indices, c.in(0), c.attrs().integer("dim", -1), c.attrs().boolean("keep_dims", false));
}
SIM_OP(Mode).costly().inputs(1).outputs(2).dtypes(kRealAndBool).attrs({"dim:int", "keep_dims:bool"}).run(mode);

// x, how many counts, weights (none: without elements) -> counts
void bin_count(OpContext& c) {
  const Tensor x = c.in(0);
  std::optional<Tensor> weights;
  if (c.in(2).numel() > 0) weights = c.in(2);
  Tensor y = c.out(0);
  y.copy_(at::bincount(x, weights, y.numel()));
}
SIM_OP(Bincount).costly().inputs(3).dtypes(kAllTypes).run(bin_count);

void histogram(OpContext& c) {
  Tensor y = c.out(0);
  at::cpu::histc_out(y, c.in(0), c.attrs().integer("bins", 100), number(c, "min", 1, 0), number(c, "max", 2, 0));
}
SIM_OP(Histogram).costly().inputs(1).dtypes(kRealTypes).attrs({"bins:int", "min:float", "max:float"}).run(histogram);
SIM_OP(HistogramWide).costly().inputs(3).dtypes(kRealTypes).attrs({"bins:int"}).run(histogram);

// x (flat) -> values, inverse, counts. The first and third outputs have room for all of x.
void unique(OpContext& c) {
  const Tensor x = c.in(0);
  const auto [values, inverse, counts] = at::_unique2(x, true, true, true);
  c.out(0).narrow(0, 0, values.numel()).copy_(values);
  c.out(1).copy_(inverse);
  c.out(2).narrow(0, 0, counts.numel()).copy_(counts);
}
SIM_OP(UniqueWithCountsAndSorting)
    .costly()
    .inputs(1)
    .outputs(3)
    .dtypes(kRealAndBool)
    .attrs({"return_inverse:bool", "return_counts:bool", "sorted:bool"})
    .run(unique);

void unique_consecutive(OpContext& c) {
  const Tensor x = c.in(0);
  const auto [values, inverse, counts] = at::unique_consecutive(x, true, true);
  c.out(0).narrow(0, 0, values.numel()).copy_(values);
  c.out(1).copy_(inverse);
  c.out(2).narrow(0, 0, counts.numel()).copy_(counts);
}
SIM_OP(UniqueConsecutive)
    .costly()
    .inputs(1)
    .outputs(3)
    .dtypes(kRealAndBool)
    .attrs({"return_idx:bool", "return_counts:bool"})
    .run(unique_consecutive);

// x -> values, where each slice went, how often each occurs, how many there are
void unique_along_axis(OpContext& c) {
  const int64_t axis = c.attrs().integer("axis", 0);
  const Tensor x = c.in(0);
  const auto [values, inverse, counts] = at::unique_dim(x.dim() == 0 ? x.reshape({1}) : x, axis, true, true, true);
  Tensor target = c.out(0);
  if (x.dim() == 0) {
    target.copy_(values.reshape({}));
  } else {
    target.narrow(axis, 0, values.size(axis)).copy_(values);
  }
  c.out(1).copy_(inverse);
  c.out(2).narrow(0, 0, counts.numel()).copy_(counts);
  c.out(3).fill_(counts.numel());
}

SIM_OP(UniqueAlongAxis).costly().inputs(1).outputs(4).dtypes(kAllTypes).attrs({"axis:int"}).run(unique_along_axis);

}  // namespace
}  // namespace acl_sim
