// The IR operator LogCosh for the simulated device; a card gets its own from CANN's custom operator tools.
// log(cosh(x)) = |x| + log1p(exp(-2|x|)) - log(2), which never overflows.

#include <simulator/custom_op.h>

#include <cmath>

namespace {

template <class T>
void compute(const T* x, T* y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    const double a = std::abs(static_cast<double>(x[i]));
    y[i] = static_cast<T>(a + std::log1p(std::exp(-2 * a)) - std::log(2.0));
  }
}

void log_cosh(acl_sim::OpContext& c) {
  const at::Tensor x = c.in(0), y = c.out(0);
  switch (x.scalar_type()) {
    case at::kFloat:
      return compute(x.const_data_ptr<float>(), y.mutable_data_ptr<float>(), x.numel());
    case at::kDouble:
      return compute(x.const_data_ptr<double>(), y.mutable_data_ptr<double>(), x.numel());
    default:
      return compute(x.const_data_ptr<at::Half>(), y.mutable_data_ptr<at::Half>(), x.numel());
  }
}

}  // namespace

SIM_CUSTOM_OPS(ops) {
  using acl_sim::dtype_bit;
  ops.add("LogCosh")
      .inputs(1)
      .dtypes(dtype_bit(ACL_FLOAT16) | dtype_bit(ACL_FLOAT) | dtype_bit(ACL_DOUBLE))
      .run(log_cosh);
}
