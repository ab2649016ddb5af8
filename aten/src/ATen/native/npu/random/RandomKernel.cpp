// Random numbers and dropout. The generator hands out (seed, offset) on the host; the device's stateless operators make
// the numbers, so a draw is reproducible whatever the device was doing.

#include <ATen/ExpandUtils.h>
#include <ATen/core/Generator.h>
#include <ATen/native/npu/frame/inference/Allocate.h>
#include <ATen/native/npu/frame/command/DeviceOf.h>
#include <ATen/native/npu/frame/inference/Dtype.h>
#include <ATen/native/npu/frame/inference/Give.h>
#include <ATen/native/npu/frame/command/OpCommand.h>
#include <ATen/npu/NPUGeneratorImpl.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/view_as_real.h>
#include <ATen/ops/zeros_like.h>
#include <NPUNativeFunctions.h>

#include <cmath>
#include <limits>
#include <tuple>

namespace at::native::npu {
namespace {

struct Position {
  int64_t seed, offset;
};

// Moves the generator on; every draw has an offset of its own, and elements count from there.
Position next_draw(const std::optional<Generator>& generator, const Tensor& self) {
  // A generator alone brings a call here, whatever the tensor.
  TORCH_CHECK(self.device().is_privateuseone(), "Expected a '", self.device().type(),
              "' device type for generator but found '", DeviceType::PrivateUse1, "'");
  auto* impl = get_generator_or_default<NPUGeneratorImpl>(
      generator, at::npu::detail::getDefaultNPUGenerator(self.device().index()));
  const std::lock_guard<std::mutex> lock(impl->mutex_);
  const at::npu::PhiloxNpuState state = impl->philox_npu_state(4);
  return {static_cast<int64_t>(state.seed), static_cast<int64_t>(state.offset)};
}

// StatelessRandomUniformV2 and StatelessRandomNormalV2 share their operands.
void draw(const char* ir, const Tensor& self, const std::optional<Generator>& generator) {
  if (self.numel() == 0) {
    return;
  }
  const Position p = next_draw(generator, self);
  OpCommand cmd;
  cmd.Name(ir).Input(self.sizes()).Input(IntArrayRef(p.seed)).Input(IntArrayRef({0, p.offset}));
  cmd.Input(Scalar(1), kInt).Output(self).Attr("dtype", self.scalar_type()).Run();
}

void draw_bernoulli(const Tensor& self, double p, const std::optional<Generator>& generator) {
  if (self.numel() == 0) {
    return;
  }
  const Position at = next_draw(generator, self);
  OpCommand cmd;
  cmd.Name("StatelessBernoulli").Input(self.sizes()).Input(Scalar(p), kDouble).Input(IntArrayRef(at.seed));
  cmd.Input(IntArrayRef(at.offset)).Output(self).Attr("dtype", self.scalar_type()).Run();
}

// Integers in [from, to); from == to == 0 stands for all 64 bits.
void draw_integers(const Tensor& self, int64_t from, int64_t to, const std::optional<Generator>& generator) {
  if (self.numel() == 0) {
    return;
  }
  if (!isIntegralType(self.scalar_type(), true)) {
    const Tensor wide = empty_as(self, kLong);
    draw_integers(wide, from, to, generator);
    self.copy_(wide);
    return;
  }
  const Position at = next_draw(generator, self);
  OpCommand cmd;
  cmd.Name("StatelessRandomUniformInt").Input(self.sizes()).Input(IntArrayRef({at.seed, at.offset}));
  cmd.Input(Scalar(from), kLong).Input(Scalar(to), kLong).Output(self).Run();
}

void check_bounded(const Tensor& self) {
  TORCH_CHECK(isFloatingType(self.scalar_type()) || isIntegralType(self.scalar_type(), /*includeBool=*/true),
              "random_: check_random_bounds handles only integral, floating-point and boolean types, but self is ",
              self.scalar_type());
}

void check_float(const Tensor& self, const char* name) { check_dtype(self.scalar_type(), kDtypeFloat, name); }

// The largest integer up to which a floating type holds every integer.
int64_t mantissa_limit(ScalarType type) {
  switch (type) {
    case kHalf:
      return int64_t{1} << 11;
    case kBFloat16:
      return int64_t{1} << 8;
    case kFloat:
      return int64_t{1} << 24;
    default:
      return int64_t{1} << 53;
  }
}

// The largest value of an integer type, as far as int64 goes.
int64_t largest(ScalarType type) {
  switch (type) {
    case kBool:
      return 1;
    case kByte:
      return std::numeric_limits<uint8_t>::max();
    case kChar:
      return std::numeric_limits<int8_t>::max();
    case kShort:
      return std::numeric_limits<int16_t>::max();
    case kUInt16:
      return std::numeric_limits<uint16_t>::max();
    case kInt:
      return std::numeric_limits<int32_t>::max();
    case kUInt32:
      return std::numeric_limits<uint32_t>::max();
    default:
      return std::numeric_limits<int64_t>::max() - 1;
  }
}

}  // namespace

Tensor& uniform_(Tensor& self, double from, double to, std::optional<Generator> generator) {
  DeviceOf guard(self);
  if (self.is_complex()) {
    at::view_as_real(self).uniform_(from, to, generator);
    return self;
  }
  check_float(self, "check_uniform_bounds");
  TORCH_CHECK(from <= to, "uniform_ expects to return a [from, to) range, but found from=", from, " > to=", to);
  draw("StatelessRandomUniformV2", self, generator);
  if (from != 0 || to != 1) {
    self.mul_(to - from);
    if (from != 0) {
      // Rounding may reach `to`, which the range excludes.
      self.add_(from);
      if (from < to && self.scalar_type() == kFloat) {
        self.clamp_max_(std::nextafter(static_cast<float>(to), static_cast<float>(from)));
      }
    }
  }
  return self;
}

Tensor& normal_(Tensor& self, double mean, double std, std::optional<Generator> generator) {
  DeviceOf guard(self);
  TORCH_CHECK(std >= 0.0, "normal expects std >= 0.0, but found std ", std);
  if (self.is_complex()) {
    at::view_as_real(self).normal_(0, std / std::sqrt(2.0), generator);
    return mean == 0 ? self : self.add_(mean);
  }
  check_float(self, "normal_");
  draw("StatelessRandomNormalV2", self, generator);
  if (std != 1) {
    self.mul_(std);
  }
  return mean == 0 ? self : self.add_(mean);
}

Tensor normal_of_mean(const Tensor& mean, double std, std::optional<Generator> generator) {
  Tensor result = empty_as(mean);
  return normal_(result, 0, std, generator).add_(mean);
}

// The device looks at it, so that the host need not wait.
void check_std(const Tensor& std) {
  TORCH_CHECK(!std.is_complex(), "normal expects standard deviation to be non-complex");
  if (std.numel() > 0) at::_assert_async(std.ge(0).all(), "normal expects all elements of std >= 0.0");
}

Tensor normal_of_std(double mean, const Tensor& std, std::optional<Generator> generator) {
  check_std(std);
  Tensor result = empty_as(std);
  return normal_(result, 0, 1, generator).mul_(std).add_(mean);
}

Tensor normal_of_both(const Tensor& mean, const Tensor& std, std::optional<Generator> generator) {
  check_std(std);
  Tensor result = empty_npu(infer_size_dimvector(mean.sizes(), std.sizes()), mean.scalar_type(), mean.device());
  return normal_(result, 0, 1, generator).mul_(std).add_(mean);
}

namespace {

Tensor& give_normal(const Tensor& result, Tensor& out) {
  check_dtype(out.scalar_type(), kDtypeFloat | kDtypeComplex, "normal_kernel_npu");
  return give(result, out);
}

}  // namespace

Tensor& normal_of_mean_out(const Tensor& mean, double std, std::optional<Generator> generator, Tensor& out) {
  return give_normal(npu::normal_of_mean(mean, std, generator), out);
}

Tensor& normal_of_std_out(double mean, const Tensor& std, std::optional<Generator> generator, Tensor& out) {
  return give_normal(npu::normal_of_std(mean, std, generator), out);
}

Tensor& normal_of_both_out(const Tensor& mean, const Tensor& std, std::optional<Generator> generator, Tensor& out) {
  return give_normal(npu::normal_of_both(mean, std, generator), out);
}

Tensor& random_(Tensor& self, std::optional<Generator> generator) {
  DeviceOf guard(self);
  check_bounded(self);
  const bool real = isFloatingType(self.scalar_type());
  draw_integers(self, 0, (real ? mantissa_limit(self.scalar_type()) : largest(self.scalar_type())) + 1, generator);
  return self;
}

Tensor& random_from_(Tensor& self, int64_t from, std::optional<int64_t> to, std::optional<Generator> generator) {
  DeviceOf guard(self);
  check_bounded(self);
  if (to.has_value()) {
    TORCH_CHECK(from < *to, "random_ expects 'from' to be less than 'to', but got from=", from, " >= to=", *to);
    const int64_t top = isFloatingType(self.scalar_type()) ? *to - 1 : largest(self.scalar_type());
    TORCH_CHECK(*to - 1 <= top || self.scalar_type() == kLong, "to - 1 is out of bounds for ", self.scalar_type());
    draw_integers(self, from, *to, generator);
  } else if (from == std::numeric_limits<int64_t>::lowest()) {
    draw_integers(self, 0, 0, generator);
  } else {
    const bool real = isFloatingType(self.scalar_type());
    draw_integers(self, from, (real ? mantissa_limit(self.scalar_type()) : largest(self.scalar_type())) + 1, generator);
  }
  return self;
}

Tensor& random_to_(Tensor& self, int64_t to, std::optional<Generator> generator) {
  return random_from_(self, 0, to, generator);
}

Tensor& bernoulli_float_(Tensor& self, double p, std::optional<Generator> generator) {
  DeviceOf guard(self);
  TORCH_CHECK(0 <= p && p <= 1, "bernoulli_ expects p to be in [0, 1], but got p=", p);
  draw_bernoulli(self, p, generator);
  return self;
}

Tensor& bernoulli_tensor_(Tensor& self, const Tensor& p, std::optional<Generator> generator) {
  DeviceOf guard(self);
  TORCH_CHECK(isFloatingType(p.scalar_type()), "expected probabilities tensor to have floating type, got ",
              p.scalar_type());
  const Tensor chances = p.to(self.device());
  if (chances.numel() > 0) {
    at::_assert_async(chances.ge(0).logical_and_(chances.le(1)).all(),
                      "Expected p_in >= 0 && p_in <= 1 to be true, but got false.");
  }
  Tensor u = empty_npu(self.sizes(), p.scalar_type() == kDouble ? kDouble : kFloat, self.device());
  draw("StatelessRandomUniformV2", u, generator);
  return self.copy_(u.lt(chances));
}

// The inverse distribution functions of uniform numbers.
Tensor& exponential_(Tensor& self, double lambd, std::optional<Generator> generator) {
  DeviceOf guard(self);
  TORCH_CHECK(lambd > 0.0, "exponential_ expects lambda > 0.0, but found lambda=", lambd);
  check_float(self, "exponential_");
  draw("StatelessRandomUniformV2", self, generator);
  // log1p(-0) is 0, which the distribution's support excludes.
  return self.neg_().log1p_().mul_(-1.0 / lambd).clamp_min_(std::numeric_limits<float>::min());
}

Tensor& geometric_(Tensor& self, double p, std::optional<Generator> generator) {
  DeviceOf guard(self);
  TORCH_CHECK(0 < p && p < 1, "geometric_ expects p to be in (0, 1), but got p=", p);
  Tensor u = empty_as(self, kDouble);
  draw("StatelessRandomUniformV2", u, generator);
  return self.copy_(u.neg_().log1p_().mul_(1.0 / std::log1p(-p)).floor_().add_(1));
}

Tensor& cauchy_(Tensor& self, double median, double sigma, std::optional<Generator> generator) {
  DeviceOf guard(self);
  TORCH_CHECK(sigma > 0.0, "cauchy_ expects sigma > 0.0, but found sigma=", sigma);
  check_float(self, "cauchy_");
  constexpr double pi = 3.141592653589793;
  draw("StatelessRandomUniformV2", self, generator);
  return self.sub_(0.5).mul_(pi).tan_().mul_(sigma).add_(median);
}

Tensor& log_normal_(Tensor& self, double mean, double std, std::optional<Generator> generator) {
  TORCH_CHECK(std > 0.0, "log_normal_ expects std > 0.0, but found std=", std);
  return normal_(self, mean, std, std::move(generator)).exp_();
}

Tensor& randperm_out(int64_t n, std::optional<Generator> generator, Tensor& out) {
  DeviceOf guard(out);
  TORCH_CHECK(n >= 0, "n must be non-negative, got", n);
  TORCH_CHECK(!generator.has_value() || generator->device().type() == out.device().type(), "Expected a '", out.device(),
              "' generator device but found '", generator->device(), "'");
  out.resize_({n});
  if (n > 0) {
    const Position at = next_draw(generator, out);
    OpCommand cmd;
    cmd.Name("StatelessRandperm").Input(Scalar(n), kLong).Input(IntArrayRef(at.seed)).Input(IntArrayRef(at.offset));
    cmd.Output(out).Attr("layout", 0).Attr("dtype", out.scalar_type()).Run();
  }
  return out;
}

Tensor multinomial(const Tensor& self, int64_t num_samples, bool replacement, std::optional<Generator> generator) {
  DeviceOf guard(self);
  TORCH_CHECK(self.dim() > 0 && self.dim() <= 2, "prob_dist must be 1 or 2 dim");
  TORCH_CHECK(isFloatingType(self.scalar_type()),
              "multinomial only supports floating-point dtypes for input, got: ", self.scalar_type());
  TORCH_CHECK(num_samples > 0, "cannot sample n_sample <= 0 samples");
  TORCH_CHECK(self.size(-1) <= (int64_t{1} << 24), "number of categories cannot exceed 2^24");
  TORCH_CHECK(replacement || num_samples <= self.size(-1),
              "cannot sample n_sample > prob_dist.size(-1) samples without replacement");
  const Tensor picks = self.dim() == 1 ? empty_npu({num_samples}, kLong, self.device())
                                       : empty_npu({self.size(0), num_samples}, kLong, self.device());
  if (picks.numel() > 0) {
    const Position at = next_draw(generator, self);
    OpCommand cmd;
    cmd.Name("MultinomialWithReplacement").Input(self).Input(IntArrayRef(at.seed)).Input(IntArrayRef(at.offset));
    cmd.Output(picks).Attr("numsamples", num_samples).Attr("replacement", replacement).Run();
  }
  return picks;
}

std::tuple<Tensor, Tensor> dropout(const Tensor& input, double p, std::optional<bool> train) {
  DeviceOf guard(input);
  TORCH_CHECK(p >= 0 && p <= 1, "dropout probability has to be between 0 and 1, but got ", p);
  if (input.numel() == 0 || p == 0 || !train.value_or(true)) {
    return {input.clone(), at::ones(input.sizes(), input.options().dtype(kBool))};
  }
  if (p == 1) {
    return {at::zeros_like(input), at::zeros_like(input, input.options().dtype(kBool))};
  }
  const Tensor mask = empty_preserved(input, kBool);
  draw_bernoulli(mask, 1 - p, std::nullopt);
  // The operator's factor is fp32.
  if (input.scalar_type() == kDouble) return {input * (mask.to(kDouble) * (1.0 / (1.0 - p))), mask};
  const Tensor y = empty_preserved(input, input.scalar_type());
  OpCommand cmd;
  cmd.Name("MaskedScale").Elementwise().Input(input).Input(mask).Output(y).Attr("value", 1.0 / (1.0 - p)).Run();
  return {y, mask};
}

Tensor dropout_backward(const Tensor& grad_output, const Tensor& mask, double scale) {
  DeviceOf guard(grad_output);
  // The operator's factor is fp32, and integers become floats.
  if (!grad_output.is_floating_point() || grad_output.scalar_type() == kDouble || grad_output.sizes() != mask.sizes()) {
    return grad_output * (mask.to(grad_output.scalar_type()) * scale);
  }
  const Tensor dx = empty_preserved(grad_output, grad_output.scalar_type());
  if (dx.numel() > 0) {
    OpCommand cmd;
    cmd.Name("MaskedScale").Elementwise().Input(grad_output).Input(mask).Output(dx).Attr("value", scale).Run();
  }
  return dx;
}

}  // namespace at::native::npu
