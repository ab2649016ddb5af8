// Asks the device once which of the operators that CANN does not document it has.

#include <ATen/native/npu/frame/command/Missing.h>

#include <acl_ir_types.h>
#include <acl_loader.h>

#include <set>
#include <string_view>

namespace at::native::npu {

namespace acl = c10::npu::acl;

namespace detail {

std::atomic<Operators> known_operators{Operators::Unknown};

namespace {

const std::set<std::string_view>& missing() {
  static const auto* const names = [] {
    auto* const found = new std::set<std::string_view>();
    // CANN has no such question; a card has what CANN documents.
    const bool card = !acl::has_function("aclsimIsOpSupported");
    for (const std::string_view type : acl::kNotOnACard) {
      if (card || acl::aclsimIsOpSupported(std::string(type).c_str()) == 0) found->insert(type);
    }
    known_operators = card ? Operators::Card : found->empty() ? Operators::All : Operators::Documented;
    return found;
  }();
  return *names;
}

}  // namespace

Operators find_operators() {
  missing();
  return known_operators;
}

bool lacks_one(const char* ir) { return missing().contains(ir); }

}  // namespace detail

MissingOperator::MissingOperator(const char* ir)
    : c10::NotImplementedError({__func__, __FILE__, static_cast<uint32_t>(__LINE__)},
                               std::string("the device has no operator of type '") + ir +
                                   "': CANN documents none, only the simulated NPU has it"),
      ir_(ir) {}

}  // namespace at::native::npu
