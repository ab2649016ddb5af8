#include "ops/fused/loops.h"

#include "ops/half_elements.h"
#include "ops/multiversion.h"

#include <array>
#include <cmath>
#include <utility>

namespace acl_sim::fused {
namespace {

using c10::BFloat16;
using c10::Half;

struct Entry {
  std::string_view type;
  aclDataType dtype, result;
  int operands;
  Side first, second;
  Loop loop;
  Side third = Side::kAll;
};

// Sums take a number in the dtype of the other operand, products take it as it is.
template <class T>
SIM_INLINE float rounded(float number) {
  T element{};
  write_element(&element, number);
  return read_element(&element);
}

#define LOOP_NAME(NAME, T, SIDES) NAME##_##T##_##SIDES

// EXPRESSION over floats a and b. `all`: two tensors; `one`: the second is a number; `of_one`: the first is.
#define BINARY_ALL(NAME, T, EXPRESSION)                                                        \
  SIM_MULTIVERSION void LOOP_NAME(NAME, T, all)(void* out, const void* const* in, int64_t n) { \
    const T *x = static_cast<const T*>(in[0]), *y = static_cast<const T*>(in[1]);              \
    T* r = static_cast<T*>(out);                                                               \
    _Pragma("GCC ivdep") for (int64_t i = 0; i < n; ++i) {                                     \
      const float a = read_element(x + i), b = read_element(y + i);                            \
      write_element(r + i, EXPRESSION);                                                        \
    }                                                                                          \
  }
#define BINARY_ONE(NAME, T, EXPRESSION, NUMBER)                                                \
  SIM_MULTIVERSION void LOOP_NAME(NAME, T, one)(void* out, const void* const* in, int64_t n) { \
    const T* x = static_cast<const T*>(in[0]);                                                 \
    const float number = *static_cast<const float*>(in[1]);                                    \
    const float b = NUMBER;                                                                    \
    T* r = static_cast<T*>(out);                                                               \
    _Pragma("GCC ivdep") for (int64_t i = 0; i < n; ++i) {                                     \
      const float a = read_element(x + i);                                                     \
      write_element(r + i, EXPRESSION);                                                        \
    }                                                                                          \
  }
#define BINARY_OF_ONE(NAME, T, EXPRESSION)                                                        \
  SIM_MULTIVERSION void LOOP_NAME(NAME, T, of_one)(void* out, const void* const* in, int64_t n) { \
    const float a = *static_cast<const float*>(in[0]);                                            \
    const T* y = static_cast<const T*>(in[1]);                                                    \
    T* r = static_cast<T*>(out);                                                                  \
    _Pragma("GCC ivdep") for (int64_t i = 0; i < n; ++i) {                                        \
      const float b = read_element(y + i);                                                        \
      write_element(r + i, EXPRESSION);                                                           \
    }                                                                                             \
  }
#define UNARY_LOOP(NAME, T, EXPRESSION)                                                         \
  SIM_MULTIVERSION void LOOP_NAME(NAME, T, self)(void* out, const void* const* in, int64_t n) { \
    const T* x = static_cast<const T*>(in[0]);                                                  \
    T* r = static_cast<T*>(out);                                                                \
    _Pragma("GCC ivdep") for (int64_t i = 0; i < n; ++i) {                                      \
      const float a = read_element(x + i);                                                      \
      write_element(r + i, EXPRESSION);                                                         \
    }                                                                                           \
  }
#define COMPARISON(NAME, T, EXPRESSION)                                                        \
  SIM_MULTIVERSION void LOOP_NAME(NAME, T, all)(void* out, const void* const* in, int64_t n) { \
    const T *x = static_cast<const T*>(in[0]), *y = static_cast<const T*>(in[1]);              \
    auto* r = static_cast<uint8_t*>(out);                                                      \
    _Pragma("GCC ivdep") for (int64_t i = 0; i < n; ++i) r[i] = x[i] EXPRESSION y[i] ? 1 : 0;  \
  }                                                                                            \
  SIM_MULTIVERSION void LOOP_NAME(NAME, T, one)(void* out, const void* const* in, int64_t n) { \
    const T* x = static_cast<const T*>(in[0]);                                                 \
    const T b = *static_cast<const T*>(in[1]);                                                 \
    auto* r = static_cast<uint8_t*>(out);                                                      \
    _Pragma("GCC ivdep") for (int64_t i = 0; i < n; ++i) r[i] = x[i] EXPRESSION b ? 1 : 0;     \
  }
#define FOR_FLOATS(KIND, NAME, EXPRESSION) \
  KIND(NAME, float, EXPRESSION) KIND(NAME, BFloat16, EXPRESSION) KIND(NAME, Half, EXPRESSION)

#define SUM_WITH_ONE(NAME, EXPRESSION)                              \
  BINARY_ONE(NAME, float, EXPRESSION, number)                       \
  BINARY_ONE(NAME, BFloat16, EXPRESSION, rounded<BFloat16>(number)) \
  BINARY_ONE(NAME, Half, EXPRESSION, rounded<Half>(number))
#define PRODUCT_WITH_ONE(NAME, EXPRESSION)    \
  BINARY_ONE(NAME, float, EXPRESSION, number) \
  BINARY_ONE(NAME, BFloat16, EXPRESSION, number) BINARY_ONE(NAME, Half, EXPRESSION, number)

FOR_FLOATS(BINARY_ALL, Add, a + b)
SUM_WITH_ONE(Add, a + b)
FOR_FLOATS(BINARY_ALL, Sub, a - b)
SUM_WITH_ONE(Sub, a - b)
FOR_FLOATS(BINARY_ALL, Mul, a* b)
PRODUCT_WITH_ONE(Mul, a* b)
FOR_FLOATS(BINARY_ALL, RealDiv, a / b)
PRODUCT_WITH_ONE(RealDiv, a / b)
BINARY_OF_ONE(Add, float, a + b)
BINARY_OF_ONE(Sub, float, a - b)
BINARY_OF_ONE(Mul, float, a* b)
BINARY_OF_ONE(RealDiv, float, a / b)
// The gradient comes first; where the activation was not above zero it is zero.
FOR_FLOATS(BINARY_ALL, ReluGrad, b <= 0 ? 0.0F : a)
FOR_FLOATS(UNARY_LOOP, Relu, a < 0 ? 0.0F : a)
FOR_FLOATS(UNARY_LOOP, Neg, -a)
COMPARISON(Less, float, <)
COMPARISON(LessEqual, float, <=)
COMPARISON(Greater, float, >)
COMPARISON(GreaterEqual, float, >=)
COMPARISON(Equal, float, ==)
COMPARISON(NotEqual, float, !=)

#define LOGICAL(NAME, EXPRESSION)                                                                 \
  SIM_MULTIVERSION void LOOP_NAME(NAME, bool, all)(void* out, const void* const* in, int64_t n) { \
    const auto *x = static_cast<const uint8_t*>(in[0]), *y = static_cast<const uint8_t*>(in[1]);  \
    auto* r = static_cast<uint8_t*>(out);                                                         \
    _Pragma("GCC ivdep") for (int64_t i = 0; i < n; ++i) {                                        \
      const bool a = x[i] != 0, b = y[i] != 0;                                                    \
      r[i] = EXPRESSION ? 1 : 0;                                                                  \
    }                                                                                             \
  }
LOGICAL(LogicalAnd, a& b)
LOGICAL(LogicalOr, a | b)

#define SELECT(T)                                                                                \
  SIM_MULTIVERSION void LOOP_NAME(Select, T, all)(void* out, const void* const* in, int64_t n) { \
    const auto* condition = static_cast<const uint8_t*>(in[0]);                                  \
    const T *x = static_cast<const T*>(in[1]), *y = static_cast<const T*>(in[2]);                \
    T* r = static_cast<T*>(out);                                                                 \
    _Pragma("GCC ivdep") for (int64_t i = 0; i < n; ++i) {                                       \
      const T a = x[i], b = y[i];                                                                \
      r[i] = condition[i] != 0 ? a : b;                                                          \
    }                                                                                            \
  }                                                                                              \
  SIM_MULTIVERSION void LOOP_NAME(Select, T, one)(void* out, const void* const* in, int64_t n) { \
    const auto* condition = static_cast<const uint8_t*>(in[0]);                                  \
    const T* x = static_cast<const T*>(in[1]);                                                   \
    T b{};                                                                                       \
    write_element(&b, *static_cast<const float*>(in[2]));                                        \
    T* r = static_cast<T*>(out);                                                                 \
    _Pragma("GCC ivdep") for (int64_t i = 0; i < n; ++i) {                                       \
      const T a = x[i];                                                                          \
      r[i] = condition[i] != 0 ? a : b;                                                          \
    }                                                                                            \
  }
SELECT(float)
SELECT(BFloat16)
SELECT(Half)

// A NaN stays, and a bound that is one makes all of them NaN.
SIM_MULTIVERSION void clip_float(void* out, const void* const* in, int64_t n) {
  const auto* x = static_cast<const float*>(in[0]);
  const float least = *static_cast<const float*>(in[1]), most = *static_cast<const float*>(in[2]);
  auto* r = static_cast<float*>(out);
  if (least != least || most != most) {
    for (int64_t i = 0; i < n; ++i) r[i] = NAN;
    return;
  }
  _Pragma("GCC ivdep") for (int64_t i = 0; i < n; ++i) {
    const float a = x[i], b = a < least ? least : a;
    r[i] = b > most ? most : b;
  }
}

#define CAST(FROM, TO)                                                                              \
  SIM_MULTIVERSION void Cast_##FROM##_##TO(void* out, const void* const* in, int64_t n) {           \
    const FROM* x = static_cast<const FROM*>(in[0]);                                                \
    TO* r = static_cast<TO*>(out);                                                                  \
    _Pragma("GCC ivdep") for (int64_t i = 0; i < n; ++i) write_element(r + i, read_element(x + i)); \
  }
CAST(float, BFloat16)
CAST(float, Half)
CAST(BFloat16, float)
CAST(Half, float)

constexpr Side kAll = Side::kAll, kOne = Side::kOne;
constexpr aclDataType kOf_float = ACL_FLOAT, kOf_BFloat16 = ACL_BF16, kOf_Half = ACL_FLOAT16;

#define ENTRY_ALL(NAME, T) \
  Entry { #NAME, kOf_##T, kOf_##T, 2, kAll, kAll, LOOP_NAME(NAME, T, all) }
#define ENTRY_ONE(NAME, T) \
  Entry { #NAME, kOf_##T, kOf_##T, 2, kAll, kOne, LOOP_NAME(NAME, T, one) }
#define ENTRY_OF_ONE(NAME, T) \
  Entry { #NAME, kOf_##T, kOf_##T, 2, kOne, kAll, LOOP_NAME(NAME, T, of_one) }
#define ENTRY_SELF(NAME, T) \
  Entry { #NAME, kOf_##T, kOf_##T, 1, kAll, kAll, LOOP_NAME(NAME, T, self) }
#define ENTRY_CAST(FROM, TO) \
  Entry { "Cast", kOf_##FROM, kOf_##TO, 1, kAll, kAll, Cast_##FROM##_##TO }
#define ENTRY_COMPARISON(NAME)                                                           \
  Entry{#NAME, ACL_FLOAT, ACL_BOOL, 2, kAll, kAll, LOOP_NAME(NAME, float, all)}, Entry { \
    #NAME, ACL_FLOAT, ACL_BOOL, 2, kAll, kOne, LOOP_NAME(NAME, float, one)               \
  }
#define ENTRY_LOGICAL(NAME) \
  Entry { #NAME, ACL_BOOL, ACL_BOOL, 2, kAll, kAll, LOOP_NAME(NAME, bool, all) }
#define ENTRY_SELECT(T)                                                                \
  Entry{"Select", kOf_##T, kOf_##T, 3, kAll, kAll, LOOP_NAME(Select, T, all)}, Entry { \
    "Select", kOf_##T, kOf_##T, 3, kAll, kAll, LOOP_NAME(Select, T, one), kOne         \
  }
#define ENTRIES(KIND, NAME) KIND(NAME, float), KIND(NAME, BFloat16), KIND(NAME, Half)

const std::array kLoops = {
    ENTRIES(ENTRY_ALL, Add),
    ENTRIES(ENTRY_ONE, Add),
    ENTRIES(ENTRY_ALL, Sub),
    ENTRIES(ENTRY_ONE, Sub),
    ENTRIES(ENTRY_ALL, Mul),
    ENTRIES(ENTRY_ONE, Mul),
    ENTRIES(ENTRY_ALL, RealDiv),
    ENTRIES(ENTRY_ONE, RealDiv),
    ENTRY_OF_ONE(Add, float),
    ENTRY_OF_ONE(Sub, float),
    ENTRY_OF_ONE(Mul, float),
    ENTRY_OF_ONE(RealDiv, float),
    ENTRIES(ENTRY_ALL, ReluGrad),
    ENTRIES(ENTRY_SELF, Relu),
    ENTRIES(ENTRY_SELF, Neg),
    ENTRY_COMPARISON(Less),
    ENTRY_COMPARISON(LessEqual),
    ENTRY_COMPARISON(Greater),
    ENTRY_COMPARISON(GreaterEqual),
    ENTRY_COMPARISON(Equal),
    ENTRY_COMPARISON(NotEqual),
    ENTRY_CAST(float, BFloat16),
    ENTRY_CAST(float, Half),
    ENTRY_CAST(BFloat16, float),
    ENTRY_CAST(Half, float),
    ENTRY_LOGICAL(LogicalAnd),
    ENTRY_LOGICAL(LogicalOr),
    ENTRY_SELECT(float),
    ENTRY_SELECT(BFloat16),
    ENTRY_SELECT(Half),
    Entry{"ClipByValue", ACL_FLOAT, ACL_FLOAT, 3, kAll, kOne, clip_float, kOne},
};

}  // namespace

Loop find_loop(std::string_view type, aclDataType dtype, aclDataType result, int operands, Side first, Side second,
               Side third) {
  for (const Entry& entry : kLoops) {
    if (entry.type == type && entry.dtype == dtype && entry.result == result && entry.operands == operands &&
        entry.first == first && entry.second == second && entry.third == third) {
      return entry.loop;
    }
  }
  return nullptr;
}

}  // namespace acl_sim::fused
