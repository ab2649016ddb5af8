#include "reduce.h"

#include "half.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <type_traits>

// One version of a loop for each vector unit, chosen when the library is loaded.
// Not under ThreadSanitizer, which is not ready by then.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_THREAD__)
#define HCCL_MULTIVERSION __attribute__((target_clones("avx2", "default")))
#else
#define HCCL_MULTIVERSION
#endif

namespace hccl_sim {
namespace {

constexpr size_t kBlock = 4096;  // elements that are accumulated at a time; small enough for the first cache

template <class T>
struct AccumulatorOf {
  using type = T;
};
template <>
struct AccumulatorOf<Half> {
  using type = float;
};
template <>
struct AccumulatorOf<BFloat16> {
  using type = float;
};

template <class T>
HCCL_INLINE auto widen_any(T value) {
  if constexpr (std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>) {
    return widen(value);
  } else {
    return value;
  }
}

template <HcclReduceOp op, class A>
HCCL_INLINE A combine(A a, A b) {
  if constexpr (op == HCCL_REDUCE_SUM || op == HCCL_REDUCE_PROD) {
    // Integers wrap around, which only unsigned ones may do in C++.
    if constexpr (std::is_integral_v<A>) {
      using U = std::conditional_t<(sizeof(A) < 4), uint32_t, std::make_unsigned_t<A>>;
      const U x = static_cast<U>(a), y = static_cast<U>(b);
      return static_cast<A>(op == HCCL_REDUCE_SUM ? x + y : x * y);
    } else {
      return op == HCCL_REDUCE_SUM ? a + b : a * b;
    }
  } else {
    // A NaN on either side wins, as it does in upstream's own reductions.
    const bool first = op == HCCL_REDUCE_MAX ? a > b : a < b;
    return first || a != a ? a : b;
  }
}

template <HcclReduceOp op, class T>
HCCL_MULTIVERSION void start(typename AccumulatorOf<T>::type* __restrict sum, const T* __restrict a,
                             const T* __restrict b, size_t n) {
  for (size_t i = 0; i < n; ++i) sum[i] = combine<op>(widen_any(a[i]), widen_any(b[i]));
}

template <HcclReduceOp op, class T>
HCCL_MULTIVERSION void accumulate(typename AccumulatorOf<T>::type* __restrict sum, const T* __restrict a, size_t n) {
  for (size_t i = 0; i < n; ++i) sum[i] = combine<op>(sum[i], widen_any(a[i]));
}

template <class T>
HCCL_MULTIVERSION void store(T* __restrict out, const float* __restrict sum, size_t n) {
  for (size_t i = 0; i < n; ++i) narrow(sum[i], out[i]);
}

template <class T>
HCCL_MULTIVERSION void multiply(T* data, size_t n, float factor) {
  for (size_t i = 0; i < n; ++i) {
    if constexpr (std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>) {
      narrow(widen(data[i]) * factor, data[i]);
    } else {
      data[i] = static_cast<T>(data[i] * static_cast<T>(factor));
    }
  }
}

template <HcclReduceOp op, class T>
void reduce_as(const void* const* in, size_t inputs, void* const* outs, size_t outputs, size_t count) {
  using A = typename AccumulatorOf<T>::type;
  alignas(64) A sum[kBlock];
  for (size_t at = 0; at < count; at += kBlock) {
    const size_t n = std::min(kBlock, count - at);
    const auto input = [&](size_t i) { return static_cast<const T*>(in[i]) + at; };
    const auto output = [&](size_t i) { return static_cast<T*>(outs[i]) + at; };
    if (inputs == 1) {
      for (size_t i = 0; i < outputs; ++i) {
        if (output(i) != input(0)) std::memcpy(output(i), input(0), n * sizeof(T));
      }
      continue;
    }
    start<op, T>(sum, input(0), input(1), n);
    for (size_t i = 2; i < inputs; ++i) accumulate<op, T>(sum, input(i), n);
    if constexpr (std::is_same_v<A, T>) {
      for (size_t i = 0; i < outputs; ++i) std::memcpy(output(i), sum, n * sizeof(T));
    } else {
      store<T>(output(0), sum, n);
      for (size_t i = 1; i < outputs; ++i) std::memcpy(output(i), output(0), n * sizeof(T));
    }
  }
}

template <class T>
void reduce_of(HcclReduceOp op, const void* const* in, size_t inputs, void* const* outs, size_t outputs, size_t n) {
  switch (op) {
    case HCCL_REDUCE_SUM:
      return reduce_as<HCCL_REDUCE_SUM, T>(in, inputs, outs, outputs, n);
    case HCCL_REDUCE_PROD:
      return reduce_as<HCCL_REDUCE_PROD, T>(in, inputs, outs, outputs, n);
    case HCCL_REDUCE_MAX:
      return reduce_as<HCCL_REDUCE_MAX, T>(in, inputs, outs, outputs, n);
    case HCCL_REDUCE_MIN:
      return reduce_as<HCCL_REDUCE_MIN, T>(in, inputs, outs, outputs, n);
  }
}

// Calls f with a value of the C++ type; false for a type without arithmetic.
template <class F>
bool with_type(HcclDataType type, F&& f) {
  switch (type) {
    case HCCL_DATA_TYPE_INT8:
      return f(int8_t{}), true;
    case HCCL_DATA_TYPE_INT16:
      return f(int16_t{}), true;
    case HCCL_DATA_TYPE_INT32:
      return f(int32_t{}), true;
    case HCCL_DATA_TYPE_INT64:
      return f(int64_t{}), true;
    case HCCL_DATA_TYPE_UINT8:
      return f(uint8_t{}), true;
    case HCCL_DATA_TYPE_UINT16:
      return f(uint16_t{}), true;
    case HCCL_DATA_TYPE_UINT32:
      return f(uint32_t{}), true;
    case HCCL_DATA_TYPE_UINT64:
      return f(uint64_t{}), true;
    case HCCL_DATA_TYPE_FP16:
      return f(Half{}), true;
    case HCCL_DATA_TYPE_BFP16:
      return f(BFloat16{}), true;
    case HCCL_DATA_TYPE_FP32:
      return f(float{}), true;
    case HCCL_DATA_TYPE_FP64:
      return f(double{}), true;
    default:
      return false;
  }
}

}  // namespace

size_t element_size(HcclDataType type) {
  if (type == HCCL_DATA_TYPE_INT128) return 16;
  size_t size = 0;
  with_type(type, [&](auto value) { size = sizeof(value); });
  return size;
}

const char* type_name(HcclDataType type) {
  static const char* const names[] = {"int8",  "int16",  "int32",  "fp16", "fp32", "int64", "uint64",
                                      "uint8", "uint16", "uint32", "fp64", "bf16", "int128"};
  const auto i = static_cast<size_t>(type);
  return i < std::size(names) ? names[i] : "unknown type";
}

const char* reduce_name(HcclReduceOp op) {
  static const char* const names[] = {"sum", "prod", "max", "min"};
  const auto i = static_cast<size_t>(op);
  return i < std::size(names) ? names[i] : "unknown reduction";
}

bool reducible(HcclDataType type) {
  return with_type(type, [](auto) {});
}

void reduce(HcclDataType type, HcclReduceOp op, const void* const* in, size_t inputs, void* const* outs, size_t outputs,
            size_t count) {
  with_type(type, [&](auto value) { reduce_of<decltype(value)>(op, in, inputs, outs, outputs, count); });
}

void scale(HcclDataType type, void* data, size_t count, float factor) {
  with_type(type, [&](auto value) {
    using T = decltype(value);
    multiply<T>(static_cast<T*>(data), count, factor);
  });
}

}  // namespace hccl_sim
