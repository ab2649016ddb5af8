// Dropout as npu operators: masks of bits, or of bytes, drawn by the device from the generator's seed and offset.

#include <ATen/native/npu/frame/command/DeviceOf.h>
#include <ATen/native/npu/frame/command/DrawPlace.h>
#include <ATen/native/npu/frame/command/Missing.h>
#include <ATen/native/npu/frame/command/OpCommand.h>
#include <ATen/native/npu/frame/inference/Dtype.h>
#include <ATen/native/npu/frame/inference/NewLike.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/bitwise_right_shift.h>
#include <ATen/ops/empty.h>
#include <NPUCustomFunctions.h>

#include <tuple>

namespace at::native::npu {
namespace {

void check(const char* name, const Tensor& x, double p) {
  check_dtype(x.scalar_type(), kDtypeFloat, name);
  TORCH_CHECK(p >= 0 && p <= 1, name, ": dropout probability has to be between 0 and 1, but got ", p);
}
void check_mask(const char* name, const Tensor& mask, int64_t least) {
  TORCH_CHECK(mask.scalar_type() == kByte && elements(mask) >= least, name, ": a uint8 mask of at least ", least,
              " elements expected, got ", mask.scalar_type(), " of shape ", mask.sizes());
}

int64_t whole_blocks(int64_t n) { return (n + 127) / 128 * 128; }

void draw(const char* ir, IntArrayRef size, double p, const Tensor& mask, std::optional<DrawPlace> from = {}) {
  if (mask.numel() == 0) return;
  const DrawPlace place = from.has_value() ? *from : next_place(mask.device());
  OpCommand cmd;
  cmd.Name(ir).Input(size).Input(Scalar(1. - p), kFloat);
  add_seed(cmd, place);
  cmd.Input(IntArrayRef(int64_t{0}));
  add_counter(cmd, place);
  cmd.Output(mask).Run();
}

Tensor draw_bits(const Tensor& like, double p) {
  const Tensor mask = new_like(like, {whole_blocks(elements(like)) / 8}, kByte);
  if (!mask.is_meta()) draw("StatelessDropOutGenMask", like.sizes(), p, mask);
  return mask;
}

Tensor apply_bits(const Tensor& x, const Tensor& mask, double p) {
  const Tensor y = new_like(x);
  if (y.is_meta() || y.numel() == 0) return y;
  OpCommand cmd;
  cmd.Name("DropOutDoMask").Input(x).Input(mask).Input(Scalar(1. - p), kFloat).Output(y).Run();
  return y;
}

}  // namespace

std::tuple<Tensor, Tensor> npu_dropout(const Tensor& self, double p) {
  DeviceOf guard(self);
  check("_npu_dropout", self, p);
  const Tensor mask = draw_bits(self, p);
  return {apply_bits(self, mask, p), mask};
}

std::tuple<Tensor, Tensor> npu_dropout_inplace(Tensor& result, double p) {
  static const auto op =
      c10::Dispatcher::singleton().findSchemaOrThrow("npu::_npu_dropout", "").typed<decltype(npu_dropout)>();
  auto [value, mask] = op.call(result, p);
  return {result.copy_(value), mask};
}

Tensor npu_dropout_backward(const Tensor& grad_output, const Tensor& mask, double p) {
  DeviceOf guard(grad_output);
  check("npu_dropout_backward", grad_output, p);
  check_mask("npu_dropout_backward", mask, (elements(grad_output) + 7) / 8);
  return apply_bits(grad_output, mask, p);
}

std::tuple<Tensor, Tensor> npu_dropout_do_mask(const Tensor& self, const Tensor& mask, double p) {
  DeviceOf guard(self);
  check("npu_dropout_do_mask", self, p);
  check_mask("npu_dropout_do_mask", mask, (elements(self) + 7) / 8);
  return {apply_bits(self, mask, p), mask.clone()};
}

Tensor npu_dropout_gen_mask(IntArrayRef size, double p, std::optional<ScalarType> /*dtype: of what is masked*/,
                            std::optional<Layout> /*layout*/, std::optional<Device> device,
                            std::optional<bool> /*pin_memory*/) {
  TORCH_CHECK(p >= 0 && p <= 1, "npu_dropout_gen_mask: dropout probability has to be between 0 and 1, but got ", p);
  const int64_t bytes = whole_blocks(c10::multiply_integers(size)) / 8;
  if (device.has_value() && device->is_meta()) return at::empty({bytes}, TensorOptions(*device).dtype(kByte));
  const Device place = resolve_device(device);
  DeviceOf guard(place);
  const Tensor mask = empty_npu({bytes}, kByte, place);
  draw("StatelessDropOutGenMask", size, p, mask);
  return mask;
}

Tensor npu_dropout_gen_mask_at(const Tensor& self, IntArrayRef size, double p, int64_t seed, int64_t offset,
                               std::optional<bool> /*parallel*/, std::optional<bool> /*sync*/) {
  DeviceOf guard(self);
  TORCH_CHECK(p >= 0 && p <= 1, "_npu_dropout_gen_mask: dropout probability has to be between 0 and 1, but got ", p);
  const Tensor mask = new_like(self, {whole_blocks(c10::multiply_integers(size)) / 8}, kByte);
  if (!mask.is_meta()) draw("StatelessDropOutGenMask", size, p, mask, DrawPlace{seed, offset});
  return mask;
}

// Without a tensor among the arguments the device alone decides: npu where none is given.
Tensor npu_dropout_gen_mask_select(IntArrayRef size, double p, std::optional<ScalarType> dtype,
                                   std::optional<Layout> layout, std::optional<Device> device,
                                   std::optional<bool> pin_memory) {
  static const auto op = c10::Dispatcher::singleton()
                             .findSchemaOrThrow("npu::npu_dropout_gen_mask", "")
                             .typed<decltype(npu_dropout_gen_mask)>();
  const Device where = device.value_or(Device(kPrivateUse1));
  const DispatchKey key = where.is_meta() ? DispatchKey::Meta : DispatchKey::PrivateUse1;
  return op.redispatch(DispatchKeySet(key), size, p, dtype, layout, where, pin_memory);
}

// The seed's content is the generator's state and is replaced.
std::tuple<Tensor, Tensor, Tensor> npu_dropoutV2(const Tensor& self, Tensor& seed, double p) {
  DeviceOf guard(self);
  check("npu_dropoutV2", self, p);
  TORCH_CHECK(seed.scalar_type() == kFloat, "npu_dropoutV2: a float32 seed expected, got ", seed.scalar_type());
  const Tensor y = new_like(self), mask = new_like(self);
  if (!self.is_meta() && self.numel() > 0) {
    OpCommand cmd;
    cmd.Name("DropoutV2").Input(self).Input(seed).Output(y).Output(mask).Output(seed).Attr("p", p).Run();
  }
  return {y, mask, seed};
}

Tensor npu_dropoutV2_backward(const Tensor& grad_output, const Tensor& mask, double p) {
  check("npu_dropoutV2_backward", grad_output, p);
  return p == 1 ? grad_output * 0 : grad_output * mask / (1. - p);
}

// mask (a byte per element), softmax(x1 + alpha * self), and that with dropout
std::tuple<Tensor, Tensor, Tensor> npu_dropout_with_add_softmax(const Tensor& self, const Tensor& x1,
                                                                const Scalar& alpha, double prob, int64_t dim) {
  DeviceOf guard(self);
  check("npu_dropout_with_add_softmax", self, prob);
  TORCH_CHECK(self.sizes() == x1.sizes(), "npu_dropout_with_add_softmax: self and x1 of one shape expected, got ",
              self.sizes(), " and ", x1.sizes());
  const int64_t axis = at::maybe_wrap_dim(dim, self.dim());
  const Tensor mask = new_like(self, {whole_blocks(elements(self))}, kByte), soft = new_like(x1), y = new_like(self);
  if (!self.is_meta() && self.numel() > 0) {
    if (lacks("StatelessDropOutGenByteMask")) {
      const Tensor bits = draw_bits(self, prob), place = at::arange(8, bits.options());
      mask.copy_(at::bitwise_right_shift(bits.unsqueeze(-1), place).bitwise_and(1).reshape({-1}));
    } else {
      draw("StatelessDropOutGenByteMask", self.sizes(), prob, mask);
    }
    OpCommand cmd;
    cmd.Name("AxpyWithSoftmaxAndDropOutDoMask").Input(x1).Input(self).Input(mask).Output(soft).Output(y);
    cmd.Attr("alpha", alpha.toDouble()).Attr("input_keep_prob", 1. - prob).Attr("axis", IntArrayRef(axis)).Run();
  }
  return {mask, soft, y};
}

std::tuple<Tensor, Tensor> npu_dropout_with_add_softmax_backward(const Tensor& grad, const Tensor& mask,
                                                                 const Tensor& softmax_out, const Scalar& alpha,
                                                                 double prob, int64_t dim) {
  DeviceOf guard(grad);
  check("npu_dropout_with_add_softmax_backward", grad, prob);
  check_mask("npu_dropout_with_add_softmax_backward", mask, elements(softmax_out));
  const int64_t axis = at::maybe_wrap_dim(dim, grad.dim());
  const Tensor by_x1 = new_like(softmax_out);
  if (by_x1.is_meta() || by_x1.numel() == 0) return {new_like(softmax_out), by_x1};
  OpCommand cmd;
  cmd.Name("DropoutWithMulsAndSoftmaxGrad").Input(grad).Input(mask).Input(softmax_out).Output(by_x1);
  cmd.Attr("alpha", 1.0).Attr("input_keep_prob", 1. - prob).Attr("axes", IntArrayRef(axis)).Run();
  return {by_x1.mul(alpha), by_x1};
}

}  // namespace at::native::npu
