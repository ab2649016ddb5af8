// Two operands of which one is a number, or is repeated over the other: Note [Small operators]. Those of one size have
// loops in ops/tiny.h. Each function here is exactly rounded, so that it does not matter which way an element takes.

#include "exec/compilation/compile.h"
#include "ops/multiversion.h"

#include <cstdint>
#include <cstring>

namespace acl_sim {
namespace {

// The loops of one function for one type: over two rows, over a row and a number, and the other way round. A result may
// lie where an operand of its size does.
template <class T>
struct Loops {
  void (*both)(T* r, const T* a, const T* b, int64_t n);
  void (*right)(T* r, const T* a, T b, int64_t n);
  void (*left)(T* r, T a, const T* b, int64_t n);
};

#define SIM_LOOPS_OF(NAME, T, A_OP_B)                                          \
  SIM_MULTIVERSION void NAME##_both(T* r, const T* a, const T* b, int64_t n) { \
    _Pragma("GCC ivdep") for (int64_t i = 0; i < n; ++i) {                     \
      const T x = a[i], y = b[i];                                              \
      r[i] = A_OP_B;                                                           \
    }                                                                          \
  }                                                                            \
  SIM_MULTIVERSION void NAME##_right(T* r, const T* a, T y, int64_t n) {       \
    _Pragma("GCC ivdep") for (int64_t i = 0; i < n; ++i) {                     \
      const T x = a[i];                                                        \
      r[i] = A_OP_B;                                                           \
    }                                                                          \
  }                                                                            \
  SIM_MULTIVERSION void NAME##_left(T* r, T x, const T* b, int64_t n) {        \
    _Pragma("GCC ivdep") for (int64_t i = 0; i < n; ++i) {                     \
      const T y = b[i];                                                        \
      r[i] = A_OP_B;                                                           \
    }                                                                          \
  }                                                                            \
  constexpr Loops<T> NAME##_loops = {NAME##_both, NAME##_right, NAME##_left};

SIM_LOOPS_OF(add_float, float, x + y)
SIM_LOOPS_OF(add_double, double, x + y)
SIM_LOOPS_OF(sub_float, float, x - y)
SIM_LOOPS_OF(sub_double, double, x - y)
SIM_LOOPS_OF(mul_float, float, x* y)
SIM_LOOPS_OF(mul_double, double, x* y)
SIM_LOOPS_OF(div_float, float, x / y)
SIM_LOOPS_OF(div_double, double, x / y)
#undef SIM_LOOPS_OF

// How the smaller operand lies over the result: [outer, period, inner], of which it has the period.
struct Repetition {
  int64_t outer = 1, period = 1, inner = 1;
  bool known = false;
};

Repetition repetition(const Operand& small, const Operand& result) {
  Repetition r;
  const auto& own = small.dims;
  const auto& all = result.dims;
  if (own.size() > all.size()) return r;
  size_t d = 0;
  const auto has = [&](size_t dim) {
    const size_t missing = all.size() - own.size();
    return dim >= missing && own[dim - missing] == all[dim];
  };
  while (d < all.size() && !(has(d) && all[d] != 1)) r.outer *= all[d++];
  while (d < all.size() && has(d)) r.period *= all[d++];
  while (d < all.size() && !(has(d) && all[d] != 1)) r.inner *= all[d++];
  r.known = d == all.size() && r.period == small.elements;
  return r;
}

template <class T, const Loops<T>& kLoops>
bool run(const CompiledOp& op, void* const* operands) {
  const T* a = static_cast<const T*>(operands[0]);
  const T* b = static_cast<const T*>(operands[1]);
  T* y = static_cast<T*>(operands[2]);
  const Operand& result = op.outputs[0];
  const int64_t n = result.elements;
  const bool whole_a = op.inputs[0].elements == n, whole_b = op.inputs[1].elements == n;
  if (whole_a && whole_b) {
    kLoops.both(y, a, b, n);
    return true;
  }
  if (!whole_a && !whole_b) {  // two numbers
    T value;
    kLoops.both(&value, a, b, 1);
    for (int64_t i = 0; i < n; ++i) y[i] = value;
    return true;
  }
  const Repetition r = repetition(op.inputs[whole_a ? 1 : 0], result);
  for (int64_t o = 0; o < r.outer; ++o) {
    const int64_t begin = o * r.period * r.inner;
    if (r.inner == 1 && r.period > 1) {
      kLoops.both(y + begin, whole_a ? a + begin : a, whole_a ? b : b + begin, r.period);
      continue;
    }
    for (int64_t p = 0; p < r.period; ++p) {
      const int64_t at = begin + p * r.inner;
      if (whole_a) {
        kLoops.right(y + at, a + at, b[p], r.inner);
      } else {
        kLoops.left(y + at, a[p], b + at, r.inner);
      }
    }
  }
  return true;
}

template <const Loops<float>& kFloat, const Loops<double>& kDouble>
SmallFn choose(const CompiledOp& op) {
  const Operand &a = op.inputs[0], &b = op.inputs[1], &y = op.outputs[0];
  if (a.absent || b.absent || a.dtype != y.dtype || b.dtype != y.dtype) return nullptr;
  if (a.elements == 0 || b.elements == 0) return nullptr;
  const bool whole_a = a.elements == y.elements, whole_b = b.elements == y.elements;
  const bool fits = (whole_a && whole_b) || (whole_a && repetition(b, y).known) ||
                    (whole_b && repetition(a, y).known) || (a.elements == 1 && b.elements == 1);
  if (!fits) return nullptr;
  return y.dtype == ACL_FLOAT ? run<float, kFloat> : y.dtype == ACL_DOUBLE ? run<double, kDouble> : nullptr;
}

SmallFn choose_add(const CompiledOp& op) { return choose<add_float_loops, add_double_loops>(op); }
SmallFn choose_sub(const CompiledOp& op) { return choose<sub_float_loops, sub_double_loops>(op); }
SmallFn choose_mul(const CompiledOp& op) { return choose<mul_float_loops, mul_double_loops>(op); }
SmallFn choose_div(const CompiledOp& op) { return choose<div_float_loops, div_double_loops>(op); }
SIM_SMALL(Add, choose_add);
SIM_SMALL(Sub, choose_sub);
SIM_SMALL(Mul, choose_mul);
SIM_SMALL(RealDiv, choose_div);

SIM_MULTIVERSION void square(const float* x, int64_t n, float* y) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) y[i] = x[i] * x[i];
}
SIM_MULTIVERSION void square(const double* x, int64_t n, double* y) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) y[i] = x[i] * x[i];
}

// Exponents that libtorch treats apart and that round once.
template <class T>
bool power(const CompiledOp& op, void* const* operands) {
  const T* x = static_cast<const T*>(operands[0]);
  const T exponent = *static_cast<const T*>(operands[1]);
  T* y = static_cast<T*>(operands[2]);
  const int64_t n = op.outputs[0].elements;
  if (exponent == 2) {
    square(x, n, y);
  } else if (exponent == 1) {
    if (x != y) std::memmove(y, x, static_cast<size_t>(n) * sizeof(T));
  } else {
    return false;
  }
  return true;
}

SmallFn choose_power(const CompiledOp& op) {
  const Operand &x = op.inputs[0], &exponent = op.inputs[1], &y = op.outputs[0];
  const bool fits = !x.absent && !exponent.absent && exponent.host && exponent.dims.empty() && x.dtype == y.dtype &&
                    exponent.dtype == y.dtype && x.elements == y.elements;
  if (!fits) return nullptr;
  return y.dtype == ACL_FLOAT ? power<float> : y.dtype == ACL_DOUBLE ? power<double> : nullptr;
}
SIM_SMALL(Pow, choose_power);

}  // namespace
}  // namespace acl_sim
