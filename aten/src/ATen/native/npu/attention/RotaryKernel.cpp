// npu_rotary_mul and its gradient, made of upstream's operators, so that autograd, fake tensors and tracing take them.

#include <ATen/ATen.h>
#include <ATen/native/npu/frame/inference/Wide.h>
#include <NPUCustomFunctions.h>

namespace at::native::npu {
namespace {

// (x1, x2) -> (-x2, x1), where x1 and x2 are the halves of the last dimension or its even and odd elements.
Tensor quarter_turn(const Tensor& x, bool interleaved) {
  const int64_t half = x.size(-1) / 2;
  if (interleaved) {
    const Tensor pairs = x.unflatten(-1, {half, 2});
    return at::stack({-pairs.select(-1, 1), pairs.select(-1, 0)}, -1).flatten(-2);
  }
  return at::cat({-x.narrow(-1, half, half), x.narrow(-1, 0, half)}, -1);
}

bool check_rotary(const char* name, const Tensor& self, const Tensor& r1, const Tensor& r2, std::string_view mode) {
  check_floating(name, self);
  TORCH_CHECK(mode == "half" || mode == "interleave", name, ": rotary_mode is 'half' or 'interleave', got '", mode,
              "'");
  TORCH_CHECK(self.dim() == 3 || self.dim() == 4, name, ": three or four dimensions expected, but self is ",
              self.sizes());
  TORCH_CHECK(self.size(-1) % 2 == 0, name, ": the last dimension must be even, but self is ", self.sizes());
  TORCH_CHECK(r1.sizes() == r2.sizes() && r1.dim() == self.dim() && at::is_expandable_to(r1.sizes(), self.sizes()),
              name, ": r1 and r2 must be of one shape that broadcasts to that of self, but self is ", self.sizes(),
              ", r1 is ", r1.sizes(), " and r2 is ", r2.sizes());
  return mode == "interleave";
}

}  // namespace

Tensor npu_rotary_mul(const Tensor& self, const Tensor& r1, const Tensor& r2, std::string_view rotary_mode,
                      const std::optional<Tensor>& rotate) {
  const NoAutocast guard;
  const bool interleaved = check_rotary("npu_rotary_mul", self, r1, r2, rotary_mode);
  const ScalarType wide = wide_type(self);
  const Tensor x = self.to(wide);
  Tensor turned;
  if (rotate.has_value() && rotate->defined()) {
    TORCH_CHECK(
        rotate->dim() == 2 && rotate->size(0) == self.size(-1) && rotate->size(1) == self.size(-1),
        "npu_rotary_mul: rotate must be a square matrix of the size of the last dimension of self, but self is ",
        self.sizes(), " and rotate is ", rotate->sizes());
    turned = at::matmul(x, rotate->to(wide));
  } else {
    turned = quarter_turn(x, interleaved);
  }
  return (x * r1.to(wide) + turned * r2.to(wide)).to(self.scalar_type());
}

std::tuple<Tensor, Tensor, Tensor> npu_rotary_mul_backward(const Tensor& grad, const Tensor& self, const Tensor& r1,
                                                           const Tensor& r2, std::string_view rotary_mode) {
  const bool interleaved = check_rotary("npu_rotary_mul_backward", self, r1, r2, rotary_mode);
  TORCH_CHECK(grad.sizes() == self.sizes(), "npu_rotary_mul_backward: grad must have the shape of self, ", self.sizes(),
              ", but is ", grad.sizes());
  const ScalarType wide = wide_type(self);
  const Tensor dy = grad.to(wide), x = self.to(wide);
  // The quarter turn's transpose is the turn back.
  const Tensor dx = dy * r1.to(wide) - quarter_turn(dy * r2.to(wide), interleaved);
  const Tensor dr1 = (dy * x).sum_to_size(r1.sizes()),
               dr2 = (dy * quarter_turn(x, interleaved)).sum_to_size(r2.sizes());
  return {dx.to(self.scalar_type()), dr1.to(r1.scalar_type()), dr2.to(r2.scalar_type())};
}

// Pairs become halves, then as npu_rotary_mul.
Tensor npu_interleave_rope(const Tensor& x, const Tensor& cos, const Tensor& sin) {
  TORCH_CHECK(x.dim() == 4 && x.size(-1) % 2 == 0,
              "npu_interleave_rope: x of shape (batch, heads, positions, even width)", " expected, got ", x.sizes());
  const Tensor halves = x.unflatten(-1, {x.size(-1) / 2, 2}).transpose(-1, -2).flatten(-2);
  return npu_rotary_mul(halves, cos, sin, "half", std::nullopt);
}

std::tuple<Tensor, Tensor> npu_apply_rotary_pos_emb(const Tensor& query, const Tensor& key, const Tensor& cos,
                                                    const Tensor& sin, std::string_view layout,
                                                    std::string_view rotary_mode) {
  const bool flat = layout == "TND";
  TORCH_CHECK(flat || layout == "BSND" || layout == "SBND" || layout == "BNSD",
              "npu_apply_rotary_pos_emb: layout is 'BSND', 'SBND', 'BNSD' or 'TND', got '", layout, "'");
  TORCH_CHECK(query.dim() == (flat ? 3 : 4) && key.dim() == query.dim(), "npu_apply_rotary_pos_emb: tensors of ",
              layout, " have ", flat ? 3 : 4, " dimensions, but query is ", query.sizes(), " and key is ", key.sizes());
  return {npu_rotary_mul(query, cos, sin, rotary_mode, std::nullopt),
          npu_rotary_mul(key, cos, sin, rotary_mode, std::nullopt)};
}

}  // namespace at::native::npu
