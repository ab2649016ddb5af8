#pragma once
// Checks of operands that the CPU's kernels make and upstream's meta functions leave to them. Without them the device
// would tell of the mistake, which is at the next synchronisation.

#include <ATen/core/Tensor.h>
#include <ATen/native/npu/frame/inference/Dtype.h>
#include <c10/util/Exception.h>

#include <optional>

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

// A sum of nothing is zero in every dtype.
inline void check_summed(const Tensor& input, const Tensor& result) {
  if (input.numel() > 0) check_dtype(result.scalar_type(), ~dtype_bit(kComplexHalf), "sum");
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

}  // namespace at::native::npu
