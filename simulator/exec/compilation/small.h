#pragma once
// Ways to compute operators on small operands without tensors.
//
// Note [Small operators]
// To make tensors of operands, enter libtorch and have it look at them costs several times what a small operator
// computes. So an operator's file may name a function on addresses for small operands. Which one, if any, is chosen
// once, when the operator is compiled, by dtypes, shapes and attributes:
//
//   SIM_SMALL(MatMulV2, choose_product);
//
// It runs in a team of one thread (run.cpp), where every operand is stored plainly, and rounds no less exactly than the
// operator's other ways. What host values say (numbers, axes) is known only at the launch, so it may still decline,
// having written nothing; then the operator runs as all others do.

namespace [[gnu::visibility("hidden")]] acl_sim {

struct CompiledOp;

// `operands` are the addresses of the inputs, then of the outputs; those of absent inputs are null.
using SmallFn = bool (*)(const CompiledOp& op, void* const* operands);
using SmallChoice = SmallFn (*)(const CompiledOp& op);

// For initialisers of operators' files.
bool register_small(const char* type, SmallChoice choice);
#define SIM_SMALL(TYPE, CHOICE) \
  [[maybe_unused]] static const bool sim_small_##TYPE = ::acl_sim::register_small(#TYPE, CHOICE)

// Null where there is none.
SmallFn small_way(const CompiledOp& op);

}  // namespace acl_sim
