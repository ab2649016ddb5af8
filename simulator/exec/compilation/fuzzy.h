#pragma once
// Note [Fuzzy compilation]
// CANN compiles an operator either for exact shapes or, while aclopSetCompileFlag says ACL_OP_COMPILE_FUZZ, for a range
// of shapes, which then need no compilation of their own. Here a fuzzy compilation covers every shape of the same type,
// dtypes, formats, ranks and attributes. The device computes the same in both modes; what changes is what counts as a
// compilation in the log and in the counters, so that scripts with changing shapes can be examined.

#include <string>

#include "exec/compilation/compile.h"

namespace [[gnu::visibility("hidden")]] acl_sim {

// By the compile flag, and by ACL_OP_JIT_COMPILE=disable (kernels that fit every shape); one of them is enough.
void set_fuzzy_mode(bool on);
void set_jit_compile(bool on);

// Decides how a new combination of operands gets its operator: true if it is a compilation of its own, false if an
// earlier fuzzy one covers it. Writes the compile log.
bool needs_compilation(const CompiledOp& op);

}  // namespace acl_sim
