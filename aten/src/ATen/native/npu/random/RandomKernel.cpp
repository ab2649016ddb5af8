// Random numbers and dropout. The generator hands out (seed, offset) on the host; the device's stateless operators make
// the numbers, so a draw is reproducible whatever the device was doing.

#include <ATen/ExpandUtils.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/core/Generator.h>
#include <ATen/native/DistributionTemplates.h>
#include <ATen/native/TensorFactories.h>
#include <ATen/native/npu/frame/command/DeviceOf.h>
#include <ATen/native/npu/frame/command/DrawPlace.h>
#include <ATen/native/npu/frame/command/OpCommand.h>
#include <ATen/native/npu/frame/inference/Allocate.h>
#include <ATen/native/npu/frame/inference/Checks.h>
#include <ATen/native/npu/frame/inference/Dtype.h>
#include <ATen/native/npu/frame/inference/Give.h>
#include <ATen/native/npu/frame/inference/Structured.h>
#include <ATen/native/npu/frame/inference/Suggested.h>
#include <ATen/npu/NPUGeneratorImpl.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/view_as_real.h>
#include <ATen/ops/zeros_like.h>
#include <NPUNativeFunctions.h>
#include <c10/util/BFloat16-math.h>

#include <cmath>
#include <limits>
#include <tuple>

namespace at::native::npu {
namespace {

// Moves the generator on; every draw has an offset of its own, and elements count from there.
DrawPlace next_draw(const std::optional<Generator>& generator, const Tensor& self) {
  // A generator alone brings a call here, whatever the tensor.
  TORCH_CHECK(self.device().is_privateuseone(), "Expected a '", self.device().type(),
              "' device type for generator but found '", DeviceType::PrivateUse1, "'");
  auto* impl = get_generator_or_default<NPUGeneratorImpl>(
      generator, at::npu::detail::getDefaultNPUGenerator(self.device().index()));
  return next_place(impl);
}

// StatelessRandomUniformV2 and StatelessRandomNormalV2 share their operands.
void draw(const char* ir, const Tensor& self, const std::optional<Generator>& generator) {
  if (self.numel() == 0) {
    return;
  }
  const DrawPlace place = next_draw(generator, self);
  OpCommand cmd;
  cmd.Name(ir).Input(self.sizes());
  add_seed(cmd, place);
  add_counter(cmd, place);
  cmd.Input(Scalar(1), kInt).Output(self).Attr("dtype", self.scalar_type()).Run();
}

void draw_bernoulli(const Tensor& self, double p, const std::optional<Generator>& generator) {
  if (self.numel() == 0) {
    return;
  }
  const DrawPlace at = next_draw(generator, self);
  OpCommand cmd;
  cmd.Name("StatelessBernoulli").Input(self.sizes()).Input(Scalar(p), kDouble);
  add_seed(cmd, at);
  add_offset(cmd, at);
  cmd.Output(self).Attr("dtype", self.scalar_type()).Run();
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
  const DrawPlace at = next_draw(generator, self);
  OpCommand cmd;
  cmd.Name("StatelessRandomUniformInt").Input(self.sizes());
  add_seed_and_offset(cmd, at);
  cmd.Input(Scalar(from), kLong).Input(Scalar(to), kLong).Output(self).Run();
}

void check_bounded(const Tensor& self) {
  TORCH_CHECK(isFloatingType(self.scalar_type()) || isIntegralType(self.scalar_type(), /*includeBool=*/true),
              "random_: check_random_bounds handles only integral, floating-point and boolean types, but self is ",
              self.scalar_type());
}

void check_float(const Tensor& self, const char* name) { check_dtype(self.scalar_type(), kDtypeFloat, name); }

ScalarType full_precision(ScalarType type) {
  if (type == kComplexHalf) return kComplexFloat;
  return isReducedFloatingType(type) ? kFloat : type;
}

// A half's few bits are those of the result, not of the numbers it is computed from: those are drawn and transformed in
// fp32, and rounded once.
template <class Fill>
Tensor& in_full_precision(Tensor& self, const Fill& fill) {
  if (self.numel() == 0) return self;
  const ScalarType type = full_precision(self.scalar_type());
  if (type == self.scalar_type()) {
    fill(self);
    return self;
  }
  Tensor wide = empty_as(self, type);
  fill(wide);
  return self.copy_(wide);
}

// The largest number of a floating type below `limit`.
double largest_below(double limit, ScalarType type) {
  const auto below = [limit](auto number) {
    using T = decltype(number);
    return static_cast<double>(number) < limit ? static_cast<double>(number)
                                               : static_cast<double>(std::nextafter(number, T(-INFINITY)));
  };
  if (type == kHalf) return below(c10::Half(static_cast<float>(limit)));
  if (type == kBFloat16) return below(c10::BFloat16(static_cast<float>(limit)));
  return type == kFloat ? below(static_cast<float>(limit)) : below(limit);
}

double smallest_positive(ScalarType type) {
  return type == kHalf ? static_cast<double>(std::numeric_limits<c10::Half>::denorm_min())
                       : static_cast<double>(std::numeric_limits<float>::min());
}

void draw_normal(const Tensor& self, double mean, double std, const std::optional<Generator>& generator) {
  Tensor numbers = self.is_complex() ? at::view_as_real(self) : self;
  draw("StatelessRandomNormalV2", numbers, generator);
  if (self.is_complex()) std /= std::sqrt(2.0);
  if (std != 1) numbers.mul_(std);
  if (mean != 0) numbers.add_(mean);
}

// What upstream's templates call once they have checked the arguments; the generator's type is theirs to name.
template <class RNG>
struct Uniform {
  void operator()(TensorIteratorBase& iter, double from, double to, const std::optional<Generator>& generator) {
    Tensor self = iter.tensor(0);
    in_full_precision(self, [&](Tensor& wide) {
      draw("StatelessRandomUniformV2", wide, generator);
      if (to - from != 1) wide.mul_(to - from);
      if (from != 0) wide.add_(from);
      // Rounding may reach `to`, which the range excludes.
      const double last = largest_below(to, self.scalar_type());
      const bool exact = from == 0 && !isReducedFloatingType(self.scalar_type());
      if (!exact && from <= last) wide.clamp_max_(last);
    });
  }
};

template <class RNG>
struct Integers {
  void operator()(TensorIteratorBase& iter, uint64_t range, int64_t from, const std::optional<Generator>& generator) {
    draw_integers(iter.tensor(0), from, static_cast<int64_t>(static_cast<uint64_t>(from) + range), generator);
  }
  // All of 64 bits.
  void operator()(TensorIteratorBase& iter, const std::optional<Generator>& generator) {
    draw_integers(iter.tensor(0), 0, 0, generator);
  }
};

template <class RNG>
struct Exponential {
  void operator()(TensorIteratorBase& iter, double lambda, const std::optional<Generator>& generator) {
    Tensor self = iter.tensor(0);
    TORCH_CHECK(isFloatingType(self.scalar_type()),
                "Exponential distribution is a continuous probability distribution. dtype must be a floating point but "
                "you specified ",
                self.scalar_type());
    in_full_precision(self, [&](Tensor& wide) {
      draw("StatelessRandomUniformV2", wide, generator);
      wide.neg_().log1p_().mul_(-1.0 / lambda);
      // log1p(-0) is 0, which the distribution's support excludes.
      if (std::isfinite(lambda)) wide.clamp_min_(smallest_positive(self.scalar_type()));
    });
  }
};

template <class RNG>
struct Geometric {
  void operator()(TensorIteratorBase& iter, double p, const std::optional<Generator>& generator) {
    const Tensor& self = iter.tensor(0);
    check_dtype(self.scalar_type(), kDtypeFloat | kDtypePlainInt, "geometric");
    const Tensor u = empty_as(self, kDouble);
    draw("StatelessRandomUniformV2", u, generator);
    self.copy_(u.neg_().log1p_().mul_(1.0 / std::log1p(-p)).floor_().add_(1));
  }
};

template <class RNG>
struct Cauchy {
  void operator()(TensorIteratorBase& iter, double median, double sigma, const std::optional<Generator>& generator) {
    constexpr double pi = 3.141592653589793;
    Tensor self = iter.tensor(0);
    in_full_precision(self, [&](Tensor& wide) {
      draw("StatelessRandomUniformV2", wide, generator);
      wide.sub_(0.5).mul_(pi).tan_().mul_(sigma).add_(median);
    });
  }
};

template <class RNG>
struct LogNormal {
  void operator()(TensorIteratorBase& iter, double mean, double std, const std::optional<Generator>& generator) {
    Tensor self = iter.tensor(0);
    check_float(self, "log_normal");
    in_full_precision(self, [&](Tensor& wide) {
      draw_normal(wide, mean, std, generator);
      wide.exp_();
    });
  }
};

template <class RNG>
struct BernoulliOfOne {
  void operator()(const Tensor& self, double p, const std::optional<Generator>& generator) {
    check_dtype(self.scalar_type(), kDtypeFloat | kDtypePlainInt | kDtypeBool, "bernoulli_scalar");
    draw_bernoulli(self, p, generator);
  }
};

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
  return templates::uniform_impl_<Uniform, NPUGeneratorImpl>(self, from, to, std::move(generator));
}

Tensor& normal_(Tensor& self, double mean, double std, std::optional<Generator> generator) {
  DeviceOf guard(self);
  TORCH_CHECK(std >= 0.0, "normal expects std >= 0.0, but found std ", std);
  at::assert_no_internal_overlap(self);
  check_dtype(self.scalar_type(), kDtypeFloat | kDtypeComplex, "normal_kernel");
  return in_full_precision(self, [&](Tensor& wide) { draw_normal(wide, mean, std, generator); });
}

Tensor normal_of_mean(const Tensor& mean, double std, std::optional<Generator> generator) {
  TORCH_CHECK(std >= 0.0, "normal expects std >= 0.0, but found std ", std);
  check_dtype(mean.scalar_type(), kDtypeFloat | kDtypeComplex, "normal_kernel");
  DeviceOf guard(mean);
  Tensor result = empty_as(mean);
  return in_full_precision(result, [&](Tensor& wide) {
    draw_normal(wide, 0, std, generator);
    wide.add_(mean);
  });
}

// At the call, as upstream on every device: the host waits for it.
void check_std(const Tensor& std) {
  TORCH_CHECK(!std.is_complex(), "normal expects standard deviation to be non-complex");
  TORCH_CHECK(std.numel() == 0 || std.min().ge(0).item<bool>(), "normal expects all elements of std >= 0.0");
}

Tensor normal_of_std(double mean, const Tensor& std, std::optional<Generator> generator) {
  check_std(std);
  check_float(std, "normal_kernel");
  DeviceOf guard(std);
  Tensor result = empty_as(std);
  return in_full_precision(result, [&](Tensor& wide) {
    draw_normal(wide, 0, 1, generator);
    wide.mul_(std).add_(mean);
  });
}

Tensor normal_of_both(const Tensor& mean, const Tensor& std, std::optional<Generator> generator) {
  check_std(std);
  check_dtype(mean.scalar_type(), kDtypeFloat | kDtypeComplex, "normal_kernel");
  DeviceOf guard(mean);
  Tensor result = empty_npu(infer_size_dimvector(mean.sizes(), std.sizes()), mean.scalar_type(), mean.device());
  return in_full_precision(result, [&](Tensor& wide) {
    draw_normal(wide, 0, 1, generator);
    wide.mul_(std).add_(mean);
  });
}

namespace {

Tensor& give_normal(const Tensor& result, Tensor& out) {
  check_dtype(out.scalar_type(), kDtypeFloat | kDtypeComplex, "normal_kernel_npu");
  return give(result, out);
}

}  // namespace

Tensor& normal_of_mean_out(const Tensor& mean, double std, std::optional<Generator> generator, Tensor& out) {
  check_overlap(out, mean);
  return give_normal(npu::normal_of_mean(mean, std, generator), out);
}

Tensor& normal_of_std_out(double mean, const Tensor& std, std::optional<Generator> generator, Tensor& out) {
  check_overlap(out, std);
  return give_normal(npu::normal_of_std(mean, std, generator), out);
}

Tensor& normal_of_both_out(const Tensor& mean, const Tensor& std, std::optional<Generator> generator, Tensor& out) {
  check_overlap(out, mean, std);
  return give_normal(npu::normal_of_both(mean, std, generator), out);
}

Tensor& random_(Tensor& self, std::optional<Generator> generator) {
  DeviceOf guard(self);
  at::assert_no_internal_overlap(self);
  check_bounded(self);
  const bool real = isFloatingType(self.scalar_type());
  draw_integers(self, 0, (real ? mantissa_limit(self.scalar_type()) : largest(self.scalar_type())) + 1, generator);
  return self;
}

Tensor& random_from_(Tensor& self, int64_t from, std::optional<int64_t> to, std::optional<Generator> generator) {
  DeviceOf guard(self);
  return templates::random_from_to_impl<Integers, NPUGeneratorImpl>(self, from, to, std::move(generator));
}

Tensor& random_to_(Tensor& self, int64_t to, std::optional<Generator> generator) {
  return random_from_(self, 0, to, std::move(generator));
}

Tensor& bernoulli_float_(Tensor& self, double p, std::optional<Generator> generator) {
  DeviceOf guard(self);
  return templates::bernoulli_impl_<BernoulliOfOne, NPUGeneratorImpl>(self, p, std::move(generator));
}

Tensor& bernoulli_tensor_(Tensor& self, const Tensor& p, std::optional<Generator> generator) {
  DeviceOf guard(self);
  at::assert_no_internal_overlap(self);
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

Tensor& exponential_(Tensor& self, double lambd, std::optional<Generator> generator) {
  DeviceOf guard(self);
  return templates::exponential_impl_<Exponential, NPUGeneratorImpl>(self, lambd, std::move(generator));
}

Tensor& geometric_(Tensor& self, double p, std::optional<Generator> generator) {
  DeviceOf guard(self);
  return templates::geometric_impl_<Geometric, NPUGeneratorImpl>(self, p, std::move(generator));
}

Tensor& cauchy_(Tensor& self, double median, double sigma, std::optional<Generator> generator) {
  DeviceOf guard(self);
  return templates::cauchy_impl_<Cauchy, NPUGeneratorImpl>(self, median, sigma, std::move(generator));
}

Tensor& log_normal_(Tensor& self, double mean, double std, std::optional<Generator> generator) {
  DeviceOf guard(self);
  return templates::log_normal_impl_<LogNormal, NPUGeneratorImpl>(self, mean, std, std::move(generator));
}

Tensor& randperm_out(int64_t n, std::optional<Generator> generator, Tensor& out) {
  DeviceOf guard(out);
  TORCH_CHECK(n >= 0, "n must be non-negative, got", n);
  TORCH_CHECK(!generator.has_value() || generator->device().type() == out.device().type(), "Expected a '", out.device(),
              "' generator device but found '", generator->device(), "'");
  // Asked of a CPU tensor, so that no number is made on the device.
  at::native::check_supported_max_int_with_precision(n, at::empty({0}, out.options().device(kCPU)));
  check_dtype(out.scalar_type(), kDtypeFloat | kDtypePlainInt, "randperm");
  out.resize_({n});
  if (n > 0) {
    const DrawPlace at = next_draw(generator, out);
    OpCommand cmd;
    cmd.Name("StatelessRandperm").Input(Scalar(n), kLong);
    add_seed(cmd, at);
    add_offset(cmd, at);
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
    const DrawPlace at = next_draw(generator, self);
    OpCommand cmd;
    cmd.Name("MultinomialWithReplacement").Input(self);
    add_seed(cmd, at);
    add_offset(cmd, at);
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
  const Tensor y = empty_iterated(input);
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
  const Tensor dx = empty_iterated(grad_output);
  if (dx.numel() > 0) {
    OpCommand cmd;
    cmd.Name("MaskedScale").Elementwise().Input(grad_output).Input(mask).Output(dx).Attr("value", scale).Run();
  }
  return dx;
}

Tensor& bernoulli_out(const Tensor& self, std::optional<Generator> generator, Tensor& out) {
  check_dtype(out.scalar_type(), kDtypeFloat | kDtypeInt | kDtypeBool, "bernoulli_tensor_cpu_self_");
  at::native::resize_output(out, self.sizes());
  check_overlap(out, self);
  return out.bernoulli_(self, generator);
}

Tensor& multinomial_out(const Tensor& self, int64_t num_samples, bool replacement, std::optional<Generator> generator,
                        Tensor& out) {
  TORCH_CHECK(out.scalar_type() == kLong, "multinomial expects Long tensor out, got: ", out.scalar_type());
  return give(at::multinomial(self, num_samples, replacement, generator), out);
}

}  // namespace at::native::npu
