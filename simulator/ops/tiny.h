#pragma once
// Loops for small operands that run without tensors: OpDef::tiny. They give what ATen's vector kernels give: every
// function here is exactly rounded or a plain comparison, so that one operator has one result.

#include "exec/definition/op.h"

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

namespace acl_sim::tiny {

// Calls f with a value of the C++ type of `dtype`; false for types without a short way.
template <class F>
bool with_real(aclDataType dtype, F&& f) {
  switch (dtype) {
    case ACL_FLOAT:
      return f(float{});
    case ACL_DOUBLE:
      return f(double{});
    case ACL_FLOAT16:
      return f(c10::Half{});
    case ACL_BF16:
      return f(c10::BFloat16{});
    case ACL_INT32:
      return f(int32_t{});
    case ACL_INT64:
      return f(int64_t{});
    case ACL_INT16:
      return f(int16_t{});
    case ACL_INT8:
      return f(int8_t{});
    case ACL_UINT8:
      return f(uint8_t{});
    default:
      return false;
  }
}

// The type that an element is computed in: float for the half types, unsigned for integers, which wrap around.
template <class T>
struct Compute {
  using type = T;
};
template <>
struct Compute<c10::Half> {
  using type = float;
};
template <>
struct Compute<c10::BFloat16> {
  using type = float;
};

template <class T>
inline constexpr bool is_float = !std::is_integral_v<T>;

template <class Fn>
bool binary(aclDataType dtype, void* out, const void* const* in, int64_t n) {
  return with_real(dtype, [&]<class T>(T) {
    using C = typename Compute<T>::type;
    if constexpr (!Fn::template supports<T>) {
      return false;
    } else {
      const T* a = static_cast<const T*>(in[0]);
      const T* b = static_cast<const T*>(in[1]);
      T* r = static_cast<T*>(out);
      for (int64_t i = 0; i < n; ++i) r[i] = static_cast<T>(Fn::apply(static_cast<C>(a[i]), static_cast<C>(b[i])));
      return true;
    }
  });
}

template <class Fn>
bool compare(aclDataType dtype, void* out, const void* const* in, int64_t n) {
  return with_real(dtype, [&]<class T>(T) {
    using C = typename Compute<T>::type;
    const T* a = static_cast<const T*>(in[0]);
    const T* b = static_cast<const T*>(in[1]);
    bool* r = static_cast<bool*>(out);
    for (int64_t i = 0; i < n; ++i) r[i] = Fn::apply(static_cast<C>(a[i]), static_cast<C>(b[i]));
    return true;
  });
}

template <class Fn>
bool unary(aclDataType dtype, void* out, const void* const* in, int64_t n) {
  return with_real(dtype, [&]<class T>(T) {
    using C = typename Compute<T>::type;
    if constexpr (!Fn::template supports<T>) {
      return false;
    } else {
      const T* a = static_cast<const T*>(in[0]);
      T* r = static_cast<T*>(out);
      for (int64_t i = 0; i < n; ++i) r[i] = static_cast<T>(Fn::apply(static_cast<C>(a[i])));
      return true;
    }
  });
}

struct ForAll {
  template <class T>
  static constexpr bool supports = true;
};
struct ForFloats {
  template <class T>
  static constexpr bool supports = is_float<T>;
};

// Integer sums wrap around: computed unsigned.
template <class T, class F>
T wrapping(T a, T b, F f) {
  if constexpr (std::is_integral_v<T>) {
    using U = std::make_unsigned_t<T>;
    using W = std::common_type_t<U, unsigned>;
    return static_cast<T>(static_cast<U>(f(static_cast<W>(static_cast<U>(a)), static_cast<W>(static_cast<U>(b)))));
  } else {
    return f(a, b);
  }
}

struct Add : ForAll {
  template <class T>
  static T apply(T a, T b) {
    return wrapping(a, b, [](auto x, auto y) { return x + y; });
  }
};
struct Sub : ForAll {
  template <class T>
  static T apply(T a, T b) {
    return wrapping(a, b, [](auto x, auto y) { return x - y; });
  }
};
struct Mul : ForAll {
  template <class T>
  static T apply(T a, T b) {
    return wrapping(a, b, [](auto x, auto y) { return x * y; });
  }
};
struct Div : ForFloats {
  template <class T>
  static T apply(T a, T b) {
    return a / b;
  }
};
struct Maximum : ForAll {
  template <class T>
  static T apply(T a, T b) {
    return (a >= b) | (a != a) ? a : b;  // NaN if either is; without branches, so that it becomes vector code
  }
};
struct Minimum : ForAll {
  template <class T>
  static T apply(T a, T b) {
    return (a <= b) | (a != a) ? a : b;
  }
};
struct Less {
  template <class T>
  static bool apply(T a, T b) {
    return a < b;
  }
};
struct LessEqual {
  template <class T>
  static bool apply(T a, T b) {
    return a <= b;
  }
};
struct Greater {
  template <class T>
  static bool apply(T a, T b) {
    return a > b;
  }
};
struct GreaterEqual {
  template <class T>
  static bool apply(T a, T b) {
    return a >= b;
  }
};
struct Equal {
  template <class T>
  static bool apply(T a, T b) {
    return a == b;
  }
};
struct NotEqual {
  template <class T>
  static bool apply(T a, T b) {
    return a != b;
  }
};
struct Neg : ForFloats {
  template <class T>
  static T apply(T a) {
    return -a;
  }
};
struct Abs : ForFloats {
  template <class T>
  static T apply(T a) {
    return std::abs(a);
  }
};
struct Relu : ForAll {
  template <class T>
  static T apply(T a) {
    return a < T(0) ? T(0) : a;  // NaN is not less
  }
};
// Gradient, operand.
struct ReluGrad : ForAll {
  template <class T>
  static T apply(T g, T x) {
    return x <= T(0) ? T(0) : g;  // NaN is not less
  }
};

}  // namespace acl_sim::tiny
