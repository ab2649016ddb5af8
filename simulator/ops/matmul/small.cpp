// Products of small matrices, straight by BLAS: Note [Small operators].

#include "exec/compilation/compile.h"
#include "ops/matmul/gemm.h"

#include <cstdint>
#include <cstring>

namespace acl_sim {
namespace {

struct Sizes {
  int64_t m, n, k;
};

Sizes sizes_of(const CompiledOp& op, bool t1) {
  const auto &a = op.inputs[0].dims, &y = op.outputs[0].dims;
  return {y[0], y[1], t1 ? a[0] : a[1]};
}

bool has_bias(const CompiledOp& op) { return op.inputs.size() > 2 && !op.inputs[2].absent; }

// y = a * b (+ bias); kTurn1 and kTurn2 say which operand lies transposed.
template <class T, bool kTurn1, bool kTurn2>
bool product(const CompiledOp& op, void* const* operands) {
  const auto [m, n, k] = sizes_of(op, kTurn1);
  const T* a = static_cast<const T*>(operands[0]);
  const T* b = static_cast<const T*>(operands[1]);
  T* y = static_cast<T*>(operands[op.inputs.size()]);
  const bool with_bias = has_bias(op);
  for (int64_t r = 0; with_bias && r < m; ++r) std::memcpy(y + r * n, operands[2], static_cast<size_t>(n) * sizeof(T));
  gemm(kTurn1, kTurn2, m, n, k, a, kTurn1 ? m : k, b, kTurn2 ? k : n, with_bias ? T{1} : T{0}, y, n);
  return true;
}

template <class T>
SmallFn choose(bool t1, bool t2) {
  if (t1) return t2 ? product<T, true, true> : product<T, true, false>;
  return t2 ? product<T, false, true> : product<T, false, false>;
}

SmallFn choose_product(const CompiledOp& op) {
  const Operand &a = op.inputs[0], &b = op.inputs[1], &y = op.outputs[0];
  if (a.absent || b.absent || a.dims.size() != 2 || b.dims.size() != 2 || y.dims.size() != 2) return nullptr;
  if (a.dtype != y.dtype || b.dtype != y.dtype || a.elements == 0 || b.elements == 0) return nullptr;
  const bool t1 = op.attrs.boolean("transpose_x1", false), t2 = op.attrs.boolean("transpose_x2", false);
  const auto [m, n, k] = sizes_of(op, t1);
  if (a.dims[t1 ? 1 : 0] != m || b.dims[t2 ? 1 : 0] != k || b.dims[t2 ? 0 : 1] != n) return nullptr;
  if (has_bias(op)) {
    const Operand& bias = op.inputs[2];
    if (bias.dtype != y.dtype || bias.elements != n || bias.dims.size() != 1) return nullptr;
  }
  return y.dtype == ACL_FLOAT ? choose<float>(t1, t2) : y.dtype == ACL_DOUBLE ? choose<double>(t1, t2) : nullptr;
}
SIM_SMALL(MatMulV2, choose_product);
SIM_SMALL(MatMul, choose_product);

}  // namespace
}  // namespace acl_sim
