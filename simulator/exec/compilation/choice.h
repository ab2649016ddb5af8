#pragma once
// What an operator leaves open: the kernel that computes it, and whether one thread or the team does.
//
// Note [Choices]
// Which way is the fastest depends on the shapes and on the machine. Without knowledge a rule of the operator's own
// decides, by shapes alone. An operator's file names its kernels (SIM_KERNELS) and asks which one was chosen:
//
//   SIM_KERNELS(Conv2D, "rows", "direct");
//   const bool by_rows = chosen_kernel(c).value_or(rule(shape) ? 0 : 1) == 0;
//
// A choice is a text: "default", the rule, or a kernel and who computes it, "direct:team". Kernels round differently,
// none less exactly than another. Operators that may be steps of a fused one have no choice: there each step has to
// round as alone (Note [Narrow operators]).
//
// Choices come from the knowledge base (Note [Knowledge base]) when an operator is compiled, so that one operator
// computes alike in a whole process. A tuning pass forces one after another; what was compiled under a forced choice is
// an operator of its own in the compile cache.

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace [[gnu::visibility("hidden")]] acl_sim {

struct CompiledOp;
class OpContext;

inline constexpr const char* kDefaultChoice = "default";

// For initialisers of operators' files.
bool register_kernels(const char* type, std::initializer_list<const char*> names);
#define SIM_KERNELS(TYPE, ...) \
  [[maybe_unused]] static const bool sim_kernels_##TYPE = ::acl_sim::register_kernels(#TYPE, {__VA_ARGS__})

// The number of the kernel that was chosen for the running operator, nothing if its rule decides.
std::optional<int> chosen_kernel(const OpContext& c);

// All that the operator can be computed by, "default" first; only that one if it leaves nothing open.
std::vector<std::string> choices_of(const CompiledOp& op);
// What it is called in the knowledge base: all that tells it from other operators.
std::string identity_of(const CompiledOp& op);
// Decides, for an operator whose sizes are known.
void decide_choice(CompiledOp& op);

// Until the next call operators are compiled for this choice, if it is one of theirs; empty: as known. Returns false
// for a text that is no choice of any operator. Not for processes whose other threads launch operators.
bool force_choice(const std::string& choice);
// Part of the key of what is compiled now.
uint32_t forced_choice();

}  // namespace acl_sim
