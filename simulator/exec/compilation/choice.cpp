#include "exec/compilation/choice.h"

#include "core/error.h"
#include "core/log.h"
#include "exec/compilation/compile.h"
#include "exec/compilation/compile_cache.h"
#include "exec/compilation/fuzzy.h"
#include "exec/compilation/knowledge.h"

#include <algorithm>
#include <atomic>
#include <map>

namespace acl_sim {
namespace {

using Names = std::vector<std::string>;

std::map<std::string, Names, std::less<>>& kernels() {
  static auto* value = new std::map<std::string, Names, std::less<>>;  // initialisers fill it, in any order
  return *value;
}

// Every choice of any operator by number, from 1.
const Names& all_choices() {
  static const auto* value = [] {
    auto* all = new Names{kDefaultChoice, "only:one", "only:team"};
    for (const auto& [type, names] : kernels()) {
      for (const auto& name : names) {
        for (const char* who : {":one", ":team"}) {
          if (std::find(all->begin(), all->end(), name + who) == all->end()) all->push_back(name + who);
        }
      }
    }
    return all;
  }();
  return *value;
}

std::atomic<uint32_t> forced{0};

// The kernels of an operator; "only" if there is one, and nothing if nobody may choose.
Names kernels_of(const CompiledOp& op) {
  if (!op.def->cube) return {};
  const auto found = kernels().find(op.def->type);
  return found == kernels().end() ? Names{"only"} : found->second;
}

void take_choice(CompiledOp& op, const std::string& choice) {
  const Names names = kernels_of(op);
  const std::string kernel = choice.substr(0, choice.find(':'));
  const auto found = std::find(names.begin(), names.end(), kernel);
  if (names.size() > 1) op.kernel = static_cast<int8_t>(found - names.begin());
  op.narrow = choice.ends_with(":one");
}

}  // namespace

bool register_kernels(const char* type, std::initializer_list<const char*> names) {
  return kernels().emplace(type, Names(names.begin(), names.end())).second;
}

std::vector<std::string> choices_of(const CompiledOp& op) {
  Names choices{kDefaultChoice};
  const bool computes = std::all_of(op.inputs.begin(), op.inputs.end(), [](const Operand& o) {
    return o.absent || o.host || (kFloatTypes & dtype_bit(o.dtype)) != 0;
  });
  if (!computes || op.elements == 0) return choices;
  for (const auto& kernel : kernels_of(op)) {
    choices.push_back(kernel + ":one");
    if (!op.tiny) choices.push_back(kernel + ":team");  // a tiny one may run on a thread of the host
  }
  // Both of these are the rule's.
  if (op.tiny && choices.size() == 2) choices.pop_back();
  return choices;
}

void decide_choice(CompiledOp& op) {
  const uint32_t number = forced.load(std::memory_order_relaxed);
  std::string choice;
  if (number != 0) {
    choice = all_choices()[number - 1];
  } else if (!knows_choices() || !op.def->cube) {
    return;
  } else {
    choice = known_choice(identity_of(op));
  }
  if (choice.empty() || choice == kDefaultChoice) return;
  const Names possible = choices_of(op);
  if (std::find(possible.begin(), possible.end(), choice) == possible.end()) return;
  take_choice(op, choice);
  if (number == 0 && log_enabled(LogLevel::Info))
    log_line(LogLevel::Info, "ASCENDCL", __FILE__, __LINE__,
             "CompileOp: the knowledge base chooses " + choice + " for " + op.describe());
}

bool force_choice(const std::string& choice) {
  const Names& all = all_choices();
  const auto found = std::find(all.begin(), all.end(), choice);
  if (!choice.empty() && found == all.end()) return false;
  forced.store(choice.empty() ? 0 : static_cast<uint32_t>(found - all.begin()) + 1, std::memory_order_relaxed);
  look_up_again();
  return true;
}

uint32_t forced_choice() { return forced.load(std::memory_order_relaxed); }

}  // namespace acl_sim
