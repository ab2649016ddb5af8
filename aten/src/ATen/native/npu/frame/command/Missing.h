#pragma once
// Which IR operators the device has, and what is done where it lacks one.
//
// Note [What a card has]
// third_party/acl/ir_facts.yaml knows which IR types CANN documents. Types that only the simulated device has are never
// sent to another: the one question, asked here, is lacks(type). A kernel that has another composition for such a
// device asks it and computes so (`composed` in the operator table, Composed.h); for the others the table of
// descriptors throws MissingOperator before anything is launched, and the registration runs the operator on the CPU,
// which says so once and counts it, or raises where NPU_FALLBACK=0 forbids that. The simulated device has everything,
// unless ASCEND_SIM_OPERATORS=cann makes it as strict as a card.

#include <ATen/native/npu/frame/inference/Dtype.h>
#include <c10/util/Exception.h>

#include <atomic>
#include <string>

namespace at::native::npu {

namespace detail {

enum class Operators : uint8_t { Unknown, All, Documented, Card };
extern std::atomic<Operators> known_operators;
Operators find_operators();
bool lacks_one(const char* ir);

inline Operators operators() {
  const Operators known = known_operators.load(std::memory_order_relaxed);
  return C10_LIKELY(known != Operators::Unknown) ? known : find_operators();
}

}  // namespace detail

// Whether the device has no IR operator of this type. A load and a comparison where it has all.
inline bool lacks(const char* ir) {
  return C10_UNLIKELY(detail::operators() != detail::Operators::All) && detail::lacks_one(ir);
}

// Of dtypes that the simulated device's kernels refuse, those that this device is known to refuse.
inline DtypeMask refused_here(DtypeMask dtypes) {
  return C10_UNLIKELY(detail::operators() == detail::Operators::Card) ? 0 : dtypes;
}

// Thrown before the launch of an operator that the device lacks.
class MissingOperator final : public c10::NotImplementedError {
 public:
  explicit MissingOperator(const char* ir);
  const char* ir() const { return ir_; }

 private:
  const char* ir_;
};

}  // namespace at::native::npu
