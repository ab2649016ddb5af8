// See Float8.h.

#include <ATen/native/npu/frame/command/Float8.h>
#include <ATen/native/npu/frame/command/HostScalar.h>
#include <ATen/native/npu/frame/command/Rearrange.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <c10/util/bit_cast.h>

#include <map>
#include <mutex>

namespace at::native::npu {
namespace {

// Of a number in fp32 the upper half counts, and whether the lower half is zero: no float8 type rounds anywhere else.
constexpr int64_t kCodes = int64_t{1} << 17;

Tensor make_values(ScalarType type) { return at::arange(256, at::kByte).view(type).to(kFloat); }

Tensor make_codes(ScalarType type) {
  const Tensor numbers = at::empty({kCodes}, at::kFloat);
  float* number = numbers.mutable_data_ptr<float>();
  for (uint32_t i = 0; i < kCodes; ++i) number[i] = c10::bit_cast<float>((i >> 1) << 16 | (i & 1));
  return numbers.to(type).view(kByte);
}

struct Tables {
  Tensor values, codes;
};

// On the host, made once.
Tables tables_of(ScalarType type) {
  static std::mutex making;
  static auto* made = new std::map<ScalarType, Tables>;
  const std::lock_guard<std::mutex> lock(making);
  Tables& tables = (*made)[type];
  if (!tables.values.defined()) tables = {make_values(type), make_codes(type)};
  return tables;
}

}  // namespace

Tensor values_of_codes(const Tensor& float8) {
  return tables_of(float8.scalar_type()).values.to(float8.device()).take(float8.view(kByte).to(kLong));
}

Tensor codes_of_values(const Tensor& values, ScalarType type) {
  const Tensor bits = contiguous(values).view(kInt);
  const Tensor upper = bits.bitwise_right_shift(16).bitwise_and(0xffff).mul(2);
  return tables_of(type).codes.to(values.device()).take(upper.add(bits.bitwise_and(0xffff).ne(0)).to(kLong));
}

Scalar rounded_to(const Scalar& number, ScalarType type) {
  uint8_t code = 0;
  write_scalar(number, type, &code);
  return tables_of(type).values.const_data_ptr<float>()[code];
}

}  // namespace at::native::npu
