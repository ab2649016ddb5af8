// Tensors as small integers with scales, and products of such, made of upstream's operators, so that fake tensors and
// tracing take them. What is rounded has no gradient.

#include <ATen/ATen.h>
#include <ATen/WrapDimUtils.h>
#include <ATen/native/npu/frame/inference/Wide.h>
#include <NPUCustomFunctions.h>

#include <limits>

namespace at::native::npu {
namespace {

constexpr int64_t kExactProducts = 1024;

// What integers a result holds: in tensors of `dtype`, or eight in one int32.
struct Integers {
  ScalarType dtype;
  double least, most;
  bool packed = false;
};

Integers integers_of(const char* name, std::optional<int64_t> number) {
  switch (static_cast<ScalarType>(number.value_or(static_cast<int64_t>(kChar)))) {
    case kChar:
    case kQInt8:
      return {kChar, -128, 127};
    case kByte:
    case kQUInt8:
      return {kByte, 0, 255};
    case kInt:
    case kQInt32:
      return {kInt, std::numeric_limits<int32_t>::min(), std::numeric_limits<int32_t>::max()};
    case kQUInt4x2:
      return {kInt, -8, 7, true};
    default:
      C10_THROW_ERROR(NotImplementedError,
                      c10::str(name, ": a result of dtype number ", number.value_or(0),
                               " is not supported, only int8, quint4x2 and where they fit uint8 and int32"));
  }
}

// Eight numbers of four bits along the last dimension as one, the first in the lowest bits.
Tensor pack(const char* name, const Tensor& numbers) {
  TORCH_CHECK(numbers.size(-1) % 8 == 0, name,
              ": the last dimension must be a multiple of 8 for numbers of four bits, ", "but the shape is ",
              numbers.sizes());
  const Tensor bits = numbers.to(kLong).bitwise_and(15).unflatten(-1, {numbers.size(-1) / 8, 8});
  const Tensor places = at::arange(8, bits.options()) * 4;
  const Tensor whole = bits.bitwise_left_shift(places).sum(-1);
  return at::where(whole.gt(std::numeric_limits<int32_t>::max()), whole - (int64_t{1} << 32), whole).to(kInt);
}

Tensor unpack(const Tensor& words) {
  const Tensor places = at::arange(8, words.options().dtype(kLong)) * 4;
  const Tensor bits = words.to(kLong).unsqueeze(-1).bitwise_right_shift(places).bitwise_and(15);
  return at::where(bits.gt(7), bits - 16, bits).flatten(-2);
}

// A matrix whose words lie along the rows, or a view that transposes such.
Tensor unpack_matrix(const Tensor& words) {
  const bool turned = words.dim() == 2 && !words.is_contiguous() && words.t().is_contiguous();
  return turned ? unpack(words.t()).t() : unpack(words);
}

Tensor rounded(const char* name, const Tensor& x, const Integers& kind) {
  const Tensor numbers = at::round(x.detach()).clamp(kind.least, kind.most);
  return kind.packed ? pack(name, numbers) : numbers.to(kind.dtype);
}

// The row of per_group for each row of x, whose groups end at `ends`.
Tensor by_rows(const char* name, const Tensor& per_group, const Tensor& ends, const Tensor& x) {
  TORCH_CHECK(
      per_group.dim() == 2 && ends.dim() == 1 && ends.size(0) == per_group.size(0) && per_group.size(1) == x.size(-1),
      name, ": with group_index of shape (groups) the scales are of shape (groups, ", x.size(-1), "), but they are ",
      ends.sizes(), " and ", per_group.sizes());
  const int64_t rows = c10::multiply_integers(x.sizes().slice(0, x.dim() - 1));
  const Tensor numbers = at::arange(rows, ends.options());
  const Tensor groups = at::searchsorted(ends, numbers, /*out_int32=*/false, /*right=*/true);
  return per_group.index_select(0, groups.clamp_max(per_group.size(0) - 1)).view(x.sizes());
}

Tensor smoothed(const char* name, const Tensor& input, const std::optional<Tensor>& smooth_scales,
                const std::optional<Tensor>& group_index) {
  check_floating(name, input);
  TORCH_CHECK(input.dim() >= 2, name, ": the input has two dimensions or more, but its shape is ", input.sizes());
  TORCH_CHECK(given(smooth_scales) || !given(group_index), name, ": group_index goes with smooth_scales");
  const ScalarType wide = wide_type(input);
  const Tensor x = input.detach().to(wide);
  if (!given(smooth_scales)) return x;
  if (given(group_index)) return x * by_rows(name, *smooth_scales, *group_index, x).to(wide);
  TORCH_CHECK(smooth_scales->dim() == 1 && smooth_scales->size(0) == input.size(-1), name,
              ": smooth_scales must be of shape (", input.size(-1), "), but are ", smooth_scales->sizes());
  return x * smooth_scales->to(wide);
}

void check_mode(const char* name, std::string_view quant_mode, double dst_type_max) {
  TORCH_CHECK_NOT_IMPLEMENTED(quant_mode == "pertoken" && dst_type_max == 0.0, name,
                              ": quant_mode 'pertoken' and dst_type_max 0 are supported, not '", quant_mode, "' and ",
                              dst_type_max);
}

// What npu_trans_quant_param has packed into 64 bits, or a plain scale.
// The product of factors of one dtype, and the bias, which is converted to it; matrices take one operator for both.
Tensor product(const Tensor& a, const Tensor& b, const std::optional<Tensor>& bias) {
  if (!given(bias)) return at::matmul(a, b);
  const Tensor added = bias->to(a.scalar_type());
  return a.dim() == 2 && b.dim() == 2 && added.dim() == 1 ? at::addmm(added, a, b) : at::matmul(a, b) + added;
}

struct Scale {
  Tensor factor;
  std::optional<Tensor> offset;
};
Scale scale_of(const Tensor& scale, ScalarType wide = kDouble) {
  if (scale.scalar_type() != kLong) return {scale.to(wide), std::nullopt};
  const Tensor low = scale.bitwise_and(0xFFFFFFFFLL);
  const Tensor bits = at::where(low.gt(0x7FFFFFFFLL), low - (int64_t{1} << 32), low).to(kInt);
  const Tensor field = scale.bitwise_right_shift(37).bitwise_and(0x1FF);
  return {bits.view(kFloat).to(wide), at::where(field.gt(255), field - 512, field).to(wide)};
}

}  // namespace

Tensor npu_anti_quant(const Tensor& x, const Tensor& scale, const std::optional<Tensor>& offset,
                      std::optional<int64_t> dst_dtype, std::optional<int64_t> src_dtype) {
  const char* const name = "npu_anti_quant";
  const auto result = static_cast<ScalarType>(dst_dtype.value_or(static_cast<int64_t>(kHalf)));
  TORCH_CHECK_NOT_IMPLEMENTED(result == kHalf || result == kBFloat16 || result == kFloat, name,
                              ": dst_dtype is float16, bfloat16 or float32");
  TORCH_CHECK_NOT_IMPLEMENTED(x.scalar_type() == kChar || x.scalar_type() == kInt, name,
                              ": x is of int8, or of int32 that hold eight numbers of four bits, not of ",
                              x.scalar_type());
  TORCH_CHECK(!src_dtype.has_value() || (static_cast<ScalarType>(*src_dtype) == kChar) == (x.scalar_type() == kChar),
              name, ": src_dtype does not fit x, which is of ", x.scalar_type());
  const Tensor numbers = (x.scalar_type() == kInt ? unpack(x) : x).to(kFloat);
  TORCH_CHECK(scale.dim() == 1 && (scale.size(0) == 1 || scale.size(0) == numbers.size(-1)), name,
              ": scale must be of shape (1) or (", numbers.size(-1), "), but is ", scale.sizes());
  TORCH_CHECK(!given(offset) || offset->sizes() == scale.sizes(), name, ": offset must have the shape of scale");
  const Tensor moved = given(offset) ? numbers + offset->to(kFloat) : numbers;
  return (moved * scale.to(kFloat)).to(result);
}

Tensor npu_quantize(const Tensor& self, const Tensor& scales, const std::optional<Tensor>& zero_points, int64_t dtype,
                    int64_t axis, bool div_mode) {
  const char* const name = "npu_quantize";
  check_floating(name, self);
  const Integers kind = integers_of(name, dtype);
  // Without div_mode every axis but the last but one means the last.
  const int64_t dim = at::maybe_wrap_dim(div_mode || axis == -2 ? axis : -1, self.dim());
  const auto along = [&](const Tensor& t) {
    if (t.dim() != 1) return t.to(wide_type(self));
    TORCH_CHECK(t.size(0) == 1 || t.size(0) == self.size(dim), name, ": scales and zero_points must have 1 or ",
                self.size(dim), " elements, but their shape is ", t.sizes());
    DimVector shape(self.dim(), 1);
    shape[dim] = t.size(0);
    return t.view(shape).to(wide_type(self));
  };
  const Tensor x = self.detach().to(wide_type(self)), scale = along(scales);
  const Tensor scaled = div_mode ? x / scale : x * scale;
  return rounded(name, given(zero_points) ? scaled + along(*zero_points) : scaled, kind);
}

Tensor npu_group_quant(const Tensor& x, const Tensor& scale, const Tensor& group_index,
                       const std::optional<Tensor>& offset, std::optional<ScalarType> dst_dtype) {
  const char* const name = "npu_group_quant";
  check_floating(name, x);
  const ScalarType wide = wide_type(x);
  Tensor scaled = x.detach().to(wide) * by_rows(name, scale, group_index, x).to(wide);
  if (given(offset)) scaled = scaled + offset->to(wide);
  return rounded(name, scaled, integers_of(name, static_cast<int64_t>(dst_dtype.value_or(kChar))));
}

std::tuple<Tensor, Tensor> npu_dynamic_quant(const Tensor& input, const std::optional<Tensor>& smooth_scales,
                                             const std::optional<Tensor>& group_index, std::optional<int64_t> dst_type,
                                             std::string_view quant_mode, double dst_type_max) {
  const char* const name = "npu_dynamic_quant";
  check_mode(name, quant_mode, dst_type_max);
  const Integers kind = integers_of(name, dst_type);
  const Tensor x = smoothed(name, input, smooth_scales, group_index);
  const Tensor scale = x.abs().amax(-1, true) / kind.most;
  const Tensor divisor = at::where(scale.eq(0), 1, scale);  // rows of zeros stay zero
  return {rounded(name, x / divisor, kind), scale.squeeze(-1).to(kFloat)};
}

std::tuple<Tensor, Tensor, Tensor> npu_dynamic_quant_asymmetric(const Tensor& input,
                                                                const std::optional<Tensor>& smooth_scales,
                                                                const std::optional<Tensor>& group_index,
                                                                std::optional<int64_t> dst_type,
                                                                std::string_view quant_mode, double dst_type_max) {
  const char* const name = "npu_dynamic_quant_asymmetric";
  check_mode(name, quant_mode, dst_type_max);
  const Integers kind = integers_of(name, dst_type);
  const Tensor x = smoothed(name, input, smooth_scales, group_index);
  const Tensor most = x.amax(-1, true), range = most - x.amin(-1, true);
  // Where all numbers of a row are one, any scale gives them back.
  const Tensor scale = at::where(range.eq(0), 1, range / (kind.most - kind.least));
  const Tensor offset = kind.most - most / scale;
  const auto flat = [](const Tensor& t) { return t.squeeze(-1).to(kFloat); };
  return {rounded(name, x / scale + offset, kind), flat(scale), flat(offset)};
}

Tensor npu_trans_quant_param(const Tensor& scale, const std::optional<Tensor>& offset,
                             std::optional<int64_t> round_mode) {
  const char* const name = "npu_trans_quant_param";
  TORCH_CHECK_NOT_IMPLEMENTED(round_mode.value_or(0) == 0, name, ": round_mode 0 is supported, not ", *round_mode);
  TORCH_CHECK(scale.scalar_type() == kFloat, name, ": scale is of float32, not of ", scale.scalar_type());
  const Tensor bits = scale.contiguous().view(kInt).to(kLong).bitwise_and(0xFFFFE000LL);
  const Tensor marked = bits.bitwise_or(int64_t{1} << 46);
  if (!given(offset)) return marked;
  const Tensor field = at::round(*offset).clamp(-256, 255).to(kLong).bitwise_and(0x1FF).bitwise_left_shift(37);
  return marked.bitwise_and(0x4000FFFFFFFFLL).bitwise_or(field);
}

Tensor npu_quant_matmul(const Tensor& x1, const Tensor& x2, const Tensor& scale, const std::optional<Tensor>& offset,
                        const std::optional<Tensor>& pertoken_scale, const std::optional<Tensor>& bias,
                        std::optional<int64_t> output_dtype, std::optional<int64_t> x1_dtype,
                        std::optional<int64_t> x2_dtype, std::optional<int64_t> pertoken_scale_dtype,
                        std::optional<int64_t> scale_dtype, OptionalIntArrayRef group_sizes,
                        const std::optional<Tensor>& y_scale) {
  const NoAutocast guard;
  const char* const name = "npu_quant_matmul";
  const auto result = static_cast<ScalarType>(output_dtype.value_or(static_cast<int64_t>(kChar)));
  const bool words = x1.scalar_type() == kInt && x2.scalar_type() == kInt;
  TORCH_CHECK_NOT_IMPLEMENTED(words || (x1.scalar_type() == kChar && x2.scalar_type() == kChar), name,
                              ": factors of int8, or of int32 that hold eight numbers of four bits, are supported, not "
                              "of ",
                              x1.scalar_type(), " and ", x2.scalar_type());
  TORCH_CHECK_NOT_IMPLEMENTED(result == kChar || result == kHalf || result == kBFloat16 || result == kFloat, name,
                              ": a result of int8, float16, bfloat16 or float32 is supported, not of ", result);
  TORCH_CHECK_NOT_IMPLEMENTED(!words || result == kHalf || result == kBFloat16, name,
                              ": with numbers of four bits output_dtype is float16 or bfloat16, not ", result);
  TORCH_CHECK_NOT_IMPLEMENTED(!x1_dtype && !x2_dtype && !pertoken_scale_dtype && !scale_dtype && !group_sizes &&
                                  !given(y_scale) && scale.dim() == 1,
                              name, ": scales of groups and dtypes of the hardware are not supported");
  // Sums of products of bytes are exact in fp64, and those of up to 1024 products in fp32, which is wide enough for
  // what follows where the result is narrower still.
  const Tensor a = words ? unpack(x1) : x1, b = words ? unpack_matrix(x2) : x2;
  const bool narrow = a.size(-1) <= kExactProducts && (result == kHalf || result == kBFloat16);
  const ScalarType wide = narrow ? kFloat : kDouble;
  const bool early = given(bias) && bias->scalar_type() == kInt;
  Tensor sum = product(a.to(wide), b.to(wide), early ? bias : std::nullopt);
  const Scale factor = scale_of(scale, wide);
  sum = sum * factor.factor;
  if (given(pertoken_scale)) sum = sum * pertoken_scale->to(wide).unsqueeze(-1);
  if (given(bias) && !early) sum = sum + bias->to(wide);
  if (factor.offset.has_value() && result == kChar) sum = sum + *factor.offset;
  if (given(offset)) sum = sum + offset->to(wide);
  return result == kChar ? rounded(name, sum, integers_of(name, std::nullopt)) : sum.to(result);
}

Tensor npu_weight_quant_batchmatmul(const Tensor& x, const Tensor& weight, const Tensor& antiquant_scale,
                                    const std::optional<Tensor>& antiquant_offset,
                                    const std::optional<Tensor>& quant_scale, const std::optional<Tensor>& quant_offset,
                                    const std::optional<Tensor>& bias, int64_t antiquant_group_size,
                                    int64_t /*inner_precise*/, std::optional<int64_t> weight_dtype) {
  const NoAutocast guard;
  const char* const name = "npu_weight_quant_batchmatmul";
  check_floating(name, x);
  TORCH_CHECK_NOT_IMPLEMENTED(
      (weight.scalar_type() == kChar || weight.scalar_type() == kInt) && !weight_dtype, name,
      ": a weight of int8, or of int32 that hold eight numbers of four bits, is supported, not ", "of ",
      weight.scalar_type());
  TORCH_CHECK_NOT_IMPLEMENTED(antiquant_scale.is_floating_point(), name,
                              ": antiquant_scale is of a floating dtype, not ", "of ", antiquant_scale.scalar_type());
  TORCH_CHECK(given(quant_scale) || !given(quant_offset), name, ": quant_offset goes with quant_scale");
  // Half holds bytes and sums of two of them exactly, and the product is summed in fp32 whatever its factors are.
  const auto is_half = [](const std::optional<Tensor>& t) { return !given(t) || t->scalar_type() == kHalf; };
  const bool narrow = x.scalar_type() == kHalf && antiquant_scale.scalar_type() == kHalf && is_half(antiquant_offset) &&
                      is_half(bias) && !given(quant_scale);
  const ScalarType wide = narrow ? kHalf : wide_type(x);
  const Tensor numbers = (weight.scalar_type() == kInt ? unpack_matrix(weight) : weight).to(wide);
  const int64_t depth = numbers.size(0);
  const auto spread = [&](const Tensor& t) {
    if (antiquant_group_size <= 0) return t.to(wide);
    TORCH_CHECK(t.dim() == 2 && t.size(0) == (depth + antiquant_group_size - 1) / antiquant_group_size, name,
                ": scales and offsets of groups of ", antiquant_group_size, " rows must have one row each, but are ",
                t.sizes(), " for ", depth, " rows");
    return t.to(wide).repeat_interleave(antiquant_group_size, 0).narrow(0, 0, depth);
  };
  const Tensor moved = given(antiquant_offset) ? numbers + spread(*antiquant_offset) : numbers;
  Tensor y = product(x.to(wide), moved * spread(antiquant_scale), bias);
  if (!given(quant_scale)) return y.to(x.scalar_type());
  const Scale factor = scale_of(*quant_scale);
  y = y.detach().to(kDouble) * factor.factor;
  if (given(quant_offset)) {
    y = y + quant_offset->to(kDouble);
  } else if (factor.offset.has_value()) {
    y = y + *factor.offset;
  }
  return rounded(name, y, integers_of(name, std::nullopt));
}

Tensor npu_sign_bits_pack(const Tensor& self, int64_t size) {
  TORCH_CHECK(self.dim() == 1 && self.is_floating_point(), "npu_sign_bits_pack: self of one dimension and a floating ",
              "dtype expected, got ", self.sizes(), " of ", self.scalar_type());
  const int64_t bytes = (self.size(0) + 7) / 8;
  TORCH_CHECK(size > 0 && bytes % size == 0, "npu_sign_bits_pack: size must divide the ", bytes, " bytes, got ", size);
  const Tensor bits = at::constant_pad_nd(self.ge(0).to(kInt), {0, bytes * 8 - self.size(0)});
  const Tensor values = at::bitwise_left_shift(at::ones({8}, bits.options()), at::arange(8, bits.options()));
  return (bits.view({bytes, 8}) * values).sum(-1).to(kByte).view({size, bytes / size});
}

Tensor npu_sign_bits_unpack(const Tensor& input, int64_t size, ScalarType dtype) {
  TORCH_CHECK(input.dim() == 1 && input.scalar_type() == kByte,
              "npu_sign_bits_unpack: input of one dimension and uint8 ", "expected, got ", input.sizes(), " of ",
              input.scalar_type());
  const int64_t count = input.size(0) * 8;
  TORCH_CHECK(size > 0 && count % size == 0, "npu_sign_bits_unpack: size must divide the ", count, " signs, got ",
              size);
  const Tensor words = input.to(kInt).unsqueeze(-1);
  const Tensor bits = words.bitwise_right_shift(at::arange(8, words.options())).bitwise_and(1);
  return (bits * 2 - 1).to(dtype).view({size, count / size});
}

}  // namespace at::native::npu
