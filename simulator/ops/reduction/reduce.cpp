// Reductions and scans. Axes come as a host list with every reduced dimension spelled out; an empty list reduces none.

#include "exec/definition/aten.h"
#include "ops/common.h"

#include <ATen/CPUFunctions.h>

namespace acl_sim {
namespace {

using at::Tensor;

const DtypeSet kRealAndBool = kRealTypes | dtype_bit(ACL_BOOL);
const DtypeSet kAxes = dtype_bit(ACL_INT32) | dtype_bit(ACL_INT64);
const DtypeSet kFloatAndComplex =
    kFloatTypes | dtype_bit(ACL_COMPLEX64) | dtype_bit(ACL_COMPLEX128) | dtype_bit(ACL_COMPLEX32);

bool keep_dims(OpContext& c) { return c.attrs().boolean("keep_dims", false); }

// Runs reduce(out, x, axes), or copies where there is nothing to reduce over.
template <class F>
void over_axes(OpContext& c, F&& reduce) {
  const Tensor x = c.in_any(0);
  const std::vector<int64_t> axes = c.in_values(1);
  Tensor y = c.out(0);
  if (axes.empty() && x.dim() > 0) {
    y.copy_(x);
    return;
  }
  reduce(y, x, axes);
}

void reduce_sum(OpContext& c) {
  over_axes(c, [&](Tensor& y, const Tensor& x, at::IntArrayRef axes) {
    at::cpu::sum_out(y, x, axes, keep_dims(c), y.scalar_type());
  });
}
SIM_OP(ReduceSum).inputs(2).dtypes({kComputeTypes, kAxes}).attrs({"keep_dims:bool"}).run(reduce_sum);

void reduce_mean(OpContext& c) {
  over_axes(c, [&](Tensor& y, const Tensor& x, at::IntArrayRef axes) {
    at::cpu::mean_out(y, x, axes, keep_dims(c), y.scalar_type());
  });
}
SIM_OP(ReduceMean).inputs(2).dtypes({kFloatAndComplex, kIntTypes}).attrs({"keep_dims:bool"}).run(reduce_mean);

void reduce_max(OpContext& c) {
  over_axes(c, [&](Tensor& y, const Tensor& x, at::IntArrayRef axes) { at::cpu::amax_out(y, x, axes, keep_dims(c)); });
}
SIM_OP(ReduceMax).inputs(2).dtypes({kRealAndBool, kAxes}).attrs({"keep_dims:bool"}).run(reduce_max);

void reduce_min(OpContext& c) {
  over_axes(c, [&](Tensor& y, const Tensor& x, at::IntArrayRef axes) { at::cpu::amin_out(y, x, axes, keep_dims(c)); });
}
SIM_OP(ReduceMin).inputs(2).dtypes({kRealAndBool, kAxes}).attrs({"keep_dims:bool"}).run(reduce_min);

void reduce_prod(OpContext& c) {
  const Tensor x = c.in(0);
  const std::vector<int64_t> axes = c.in_values(1);
  Tensor y = c.out(0);
  if (axes.size() == 1 && x.dim() > 0) {
    at::cpu::prod_out(y, x, axes[0], keep_dims(c), y.scalar_type());
  } else if (axes.size() == static_cast<size_t>(x.dim())) {
    y.copy_(at::prod(x, y.scalar_type()).reshape(y.sizes()));
  } else {
    throw OpError(ACL_ERROR_INVALID_PARAM, "ReduceProd takes one axis or all of them");
  }
}
SIM_OP(ReduceProd).inputs(2).dtypes({kComputeTypes, kAxes}).attrs({"keep_dims:bool"}).run(reduce_prod);

void reduce_all(OpContext& c) {
  const Tensor x = c.in_any(0);
  const std::vector<int64_t> axes = c.in_values(1);
  Tensor y = c.out(0);
  if (axes.empty()) {
    y.copy_(x.ne(0));
  } else if (axes.size() == static_cast<size_t>(x.dim())) {
    y.copy_(at::all(x).reshape(y.sizes()));
  } else {
    at::cpu::all_out(y, x, axes, keep_dims(c));
  }
}
SIM_OP(ReduceAll).inputs(2).dtypes({kComputeTypes, kAxes}).attrs({"keep_dims:bool"}).run(reduce_all);

void reduce_any(OpContext& c) {
  const Tensor x = c.in_any(0);
  const std::vector<int64_t> axes = c.in_values(1);
  Tensor y = c.out(0);
  if (axes.empty()) {
    y.copy_(x.ne(0));
  } else if (axes.size() == static_cast<size_t>(x.dim())) {
    y.copy_(at::any(x).reshape(y.sizes()));
  } else {
    at::cpu::any_out(y, x, axes, keep_dims(c));
  }
}
SIM_OP(ReduceAny).inputs(2).dtypes({kComputeTypes, kAxes}).attrs({"keep_dims:bool"}).run(reduce_any);

bool keepdim(OpContext& c) { return c.attrs().boolean("keepdim", false); }

void lp_norm(OpContext& c) {
  Tensor y = c.out(0);
  const std::vector<int64_t> axes = c.attrs().integers("axes");
  at::cpu::linalg_vector_norm_out(y, c.in_any(0), number(c, "p", 1, 2), at::IntArrayRef(axes), keepdim(c));
}
SIM_OP(LpNormV2).inputs(1).dtypes(kComputeTypes).attrs({"p:float", "axes:ints", "keepdim:bool"}).run(lp_norm);
SIM_OP(LpNormV2Wide).inputs(2).dtypes(kComputeTypes).attrs({"axes:ints", "keepdim:bool"}).run(lp_norm);

// x -> variance or deviation, mean; correction is the number subtracted from the count.
template <bool kRoot>
void spread(OpContext& c) {
  const Tensor x = c.in_any(0);
  const std::vector<int64_t> dims = c.attrs().integers("dim");
  const at::Scalar correction = c.attrs().integer("correction", 1);
  if (c.attrs().boolean("is_mean_out", true)) {
    const auto [s, m] =
        kRoot ? at::std_mean(x, dims, correction, keepdim(c)) : at::var_mean(x, dims, correction, keepdim(c));
    c.set_out(0, s);
    c.set_out(1, m);
    return;
  }
  Tensor y = c.out(0);
  if (kRoot) {
    at::cpu::std_out(y, x, dims, correction, keepdim(c));
  } else {
    at::cpu::var_out(y, x, dims, correction, keepdim(c));
  }
}
const std::vector<std::string> kSpreadAttrs = {"dim:ints", "correction:int", "keepdim:bool", "is_mean_out:bool"};
SIM_OP(ReduceVar).inputs(1).outputs(2).dtypes(kFloatAndComplex).attrs(kSpreadAttrs).run(spread<false>);
SIM_OP(ReduceStdV2).inputs(1).outputs(2).dtypes(kFloatAndComplex).attrs(kSpreadAttrs).run(spread<true>);

// x, axis; the result may have the axis as a 1
void arg_extreme(OpContext& c, bool largest) {
  const Tensor x = c.in(0);
  const int64_t dim = c.in_values(1).at(0);
  std::vector<int64_t> left = x.sizes().vec();
  if (!left.empty()) left.erase(left.begin() + at::maybe_wrap_dim(dim, x.dim()));
  Tensor y = c.out(0).view(left);
  if (largest) {
    at::cpu::argmax_out(y, x, dim, false);
  } else {
    at::cpu::argmin_out(y, x, dim, false);
  }
}
SIM_OP(ArgMaxV2).inputs(2).dtypes({kRealAndBool, kAxes}).attrs({"dtype:dtype"}).run([](OpContext& c) {
  arg_extreme(c, true);
});
SIM_OP(ArgMin).inputs(2).dtypes({kRealAndBool, kAxes}).attrs({"dtype:dtype"}).run([](OpContext& c) {
  arg_extreme(c, false);
});

const std::vector<std::string> kWithValueAttrs = {"dimension:int", "keep_dims:bool", "indice_dtype:dtype"};

// x -> indices, values
void max_with_index(OpContext& c) {
  Tensor indices = c.out(0), values = c.out(1);
  at::cpu::max_out(values, indices, c.in(0), c.attrs().integer("dimension", 0), keep_dims(c));
}
SIM_OP(ArgMaxWithValue)
    .inputs(1)
    .outputs(2)
    .dtypes(kRealAndBool)
    .attrs(kWithValueAttrs)
    .require({"dimension"})
    .run(max_with_index);

void min_with_index(OpContext& c) {
  Tensor indices = c.out(0), values = c.out(1);
  at::cpu::min_out(values, indices, c.in(0), c.attrs().integer("dimension", 0), keep_dims(c));
}
SIM_OP(ArgMinWithValue)
    .inputs(1)
    .outputs(2)
    .dtypes(kRealAndBool)
    .attrs(kWithValueAttrs)
    .require({"dimension"})
    .run(min_with_index);

void cumsum(OpContext& c) {
  Tensor y = c.out(0);
  at::cpu::cumsum_out(y, c.in(0), c.in_values(1).at(0), y.scalar_type());
}
SIM_OP(Cumsum).inputs(2).dtypes({kComputeTypes, kAxes}).run(cumsum);

void cumprod(OpContext& c) {
  Tensor y = c.out(0);
  at::cpu::cumprod_out(y, c.in(0), c.in_values(1).at(0), y.scalar_type());
}
SIM_OP(Cumprod).inputs(2).dtypes({kComputeTypes, kAxes}).run(cumprod);

void cummax(OpContext& c) {
  Tensor values = c.out(0), indices = c.out(1);
  at::cummax_out(values, indices, c.in(0), c.attrs().integer("dim", 0));
}
SIM_OP(Cummax).inputs(1).outputs(2).dtypes(kRealAndBool).attrs({"dim:int"}).require({"dim"}).run(cummax);

void cummin(OpContext& c) {
  Tensor values = c.out(0), indices = c.out(1);
  at::cummin_out(values, indices, c.in(0), c.attrs().integer("axis", 0));
}
SIM_OP(Cummin).inputs(1).outputs(2).dtypes(kRealAndBool).attrs({"axis:int"}).require({"axis"}).run(cummin);

// x, axis
void log_cumsum_exp(OpContext& c) {
  Tensor y = c.out(0);
  at::logcumsumexp_out(y, c.in(0), c.in_values(1).at(0));
}
SIM_OP(LogCumsumExp).inputs(2).dtypes({kFloatAndComplex, kIntTypes}).run(log_cumsum_exp);

void renorm(OpContext& c) {
  Tensor y = c.out(0);
  at::cpu::renorm_out(y, c.in(0), number(c, "p", 1, 2), c.attrs().integer("dim", 0), number(c, "maxnorm", 2, 0));
}
SIM_OP(Renorm)
    .inputs(1)
    .dtypes(kFloatAndComplex)
    .attrs({"p:float", "dim:int", "maxnorm:float"})
    .require({"p", "dim", "maxnorm"})
    .run(renorm);
SIM_OP(RenormWide).inputs(3).dtypes(kFloatAndComplex).attrs({"dim:int"}).require({"dim"}).run(renorm);

void cross(OpContext& c) {
  Tensor y = c.out(0);
  at::cpu::linalg_cross_out(y, c.in(0), c.in(1), c.attrs().integer("dim", -1));
}
SIM_OP(Cross).inputs(2).dtypes(kComputeTypes).attrs({"dim:int"}).run(cross);

// a, b -> one bool: same elements
void tensor_equal(OpContext& c) {
  const Tensor a = c.in(0), b = c.in(1);
  c.out(0).fill_(a.equal(b));
}
SIM_OP(TensorEqual).inputs(2).dtypes(kAllTypes).run(tensor_equal);

SIM_ATEN(HashTensor, "hash_tensor.out");

}  // namespace
}  // namespace acl_sim
