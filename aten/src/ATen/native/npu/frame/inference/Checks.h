#pragma once
// Checks of operands that the CPU's kernels make and upstream's meta functions leave to them. Without them the device
// would tell of the mistake, which is at the next synchronisation.

#include <ATen/MemoryOverlap.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/BinaryOps.h>
#include <ATen/native/FractionalMaxPooling.h>
#include <ATen/native/npu/frame/inference/Dtype.h>
#include <c10/util/Exception.h>

#include <optional>
#include <string_view>

namespace at::native::npu {

// The integers that most of upstream's kernels take.
constexpr DtypeMask kDtypePlainInt =
    kDtypeInt & ~dtype_mask(ScalarType::UInt16, ScalarType::UInt32, ScalarType::UInt64);

constexpr DtypeMask kDtypeCommon = ~(kDtypeInt & ~kDtypePlainInt);

inline void check_one_dtype(const char* op, const Tensor& first, const Tensor& other) {
  TORCH_CHECK(first.scalar_type() == other.scalar_type(), op, ": expected scalar type ", first.scalar_type(),
              " but found ", other.scalar_type(), ": operands have to be of one dtype");
}
inline void check_one_dtype(const char* op, const Tensor& first, const std::optional<Tensor>& other) {
  if (other.has_value() && other->defined()) check_one_dtype(op, first, *other);
}

// Scales, shifts and statistics are of the input's dtype; those of a half-precision input may be fp32.
inline void check_parameter(const char* op, const char* name, const Tensor& input, const std::optional<Tensor>& t) {
  if (!t.has_value() || !t->defined() || t->scalar_type() == input.scalar_type()) return;
  TORCH_CHECK(t->scalar_type() == kFloat && isReducedFloatingType(input.scalar_type()), op, ": mixed dtype: expected ",
              name, " to have scalar type ", input.scalar_type(), ", as the input has",
              isReducedFloatingType(input.scalar_type()) ? ", or Float" : "", ", but found ", t->scalar_type());
}

// A sum or product of nothing is 0 or 1 in every dtype.
inline void check_reduced(const char* name, const Tensor& input, const Tensor& result) {
  if (input.numel() > 0) check_dtype(result.scalar_type(), kDtypeCommon, name);
}

inline void check_scatter_reduce(const Tensor& self, std::string_view reduce) {
  if (reduce == "mean") check_dtype(self.scalar_type(), ~kDtypeBool, "scatter_reduce of mean");
  if (reduce == "amax" || reduce == "amin")
    check_dtype(self.scalar_type(), ~kDtypeComplex, "scatter_reduce of extremes");
}

inline void check_alpha(ScalarType dtype, const Scalar& alpha) {
  if (C10_UNLIKELY(!alpha.isIntegral(/*includeBool=*/false))) at::native::alpha_check(dtype, alpha);
}

// A result that is written while the operands are read.
template <class... T>
inline void check_apart(const Tensor& result, const T&... operands) {
  (at::assert_no_overlap(result, operands), ...);
}

template <int64_t rank>
inline void check_random_samples(const Tensor& input, const Tensor& samples) {
  at::native::fractional_max_pool_check_shape<rank>(input, samples);
}

inline void check_signed_limits(const Tensor& self, const Scalar& least, const Scalar& most) {
  TORCH_CHECK(self.scalar_type() != kByte || (least.toDouble() >= 0 && most.toDouble() >= 0),
              "cannot do hardtanh on an unsigned type with negative limits");
}

// One number for each channel.
inline void check_vector(const char* op, const char* name, const std::optional<Tensor>& t, int64_t channels) {
  TORCH_CHECK(!t.has_value() || !t->defined() || (t->dim() == 1 && t->numel() == channels), op, ": expected ", name,
              " to be a vector of size equal to the number of channels in input, ", channels, ", but got ", name,
              " of shape ", t.has_value() ? t->sizes() : IntArrayRef{});
}

// Operators that compute in fp32 whatever they are given: float64 would lose what it is used for.
inline void check_single(const char* name, const Tensor& t) {
  const ScalarType type = t.scalar_type();
  TORCH_CHECK_NOT_IMPLEMENTED(type == kFloat || type == kHalf || type == kBFloat16, '"', name,
                              "\" not implemented for '", toString(type), "'");
}

}  // namespace at::native::npu
