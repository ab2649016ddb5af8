// Windows of signal processing for which upstream's composite asks the device for a kernel by a DispatchStub; the
// others it composes of operators.

#include <ATen/TensorIterator.h>
#include <ATen/native/Math.h>
#include <ATen/native/UnaryOps.h>
#include <ATen/native/npu/frame/command/DeviceOf.h>

namespace at::native {
namespace npu {
namespace {

// From 0, 1, 2, ..., the iterator's input, the Kaiser window of so many points, its output.
void kaiser_window(TensorIteratorBase& iter, int64_t window_length, double beta) {
  const Tensor &window = iter.tensor(0), &points = iter.tensor(1);
  DeviceOf guard(window);
  const double middle = static_cast<double>(window_length - 1) / 2.0;
  const Tensor place = points.to(points.scalar_type() == kDouble ? kDouble : kFloat).sub(middle).div(middle);
  const Tensor under = (1 - place.square()).clamp_min(0).sqrt().mul(beta);
  window.copy_(under.i0().div(calc_i0(beta)));
}

}  // namespace
}  // namespace npu

REGISTER_PRIVATEUSE1_DISPATCH(kaiser_window_stub, &npu::kaiser_window)

}  // namespace at::native
