#pragma once
// The options of aclSetCompileopt, and what they decide about a compilation.
//
// Note [Cube precision]
// HF32 has the sign and the exponent of fp32 and 11 bits of its fraction. Where it is allowed, the cube unit rounds its
// fp32 operands to it (to nearest, ties to even) and still adds up in fp32. Three options allow it:
//  - ACL_ALLOW_HF32, one digit for the Conv class and one for the MatMul class;
//  - ACL_OP_SELECT_IMPL_MODE=high_performance, for the types in ACL_OPTYPELIST_FOR_IMPLMODE or, without a list, for
//  all;
//  - ACL_OP_SELECT_IMPL_MODE=high_performance_for_all.
// ACL_PRECISION_MODE goes before: allow_fp32_to_fp16, force_fp16 and allow_mix_precision have both classes take their
// fp32 operands, and give their results, in fp16.
// CANN's defaults are HF32 for convolutions and allow_fp32_to_fp16. This device begins in fp32 and rounds only after it
// has been asked to, because its results are compared with the CPU's. What was compiled before keeps its numbers: how
// an operator rounds is part of its key in the compile cache.

#include <acl/acl_op_compiler.h>

#include <string>
#include <string_view>

#include "exec/definition/op.h"

namespace [[gnu::visibility("hidden")]] acl_sim {

// Throws Error for an option or a value that is not allowed.
void set_compile_option(aclCompileOpt option, const char* value);
// Empty for one that was not set. Throws Error for an option that there is not.
std::string compile_option(aclCompileOpt option);
bool is_compile_option(aclCompileOpt option);

// How operators of that type round their fp32 operands if they are compiled now.
CubeRounding cube_rounding(std::string_view type);

}  // namespace acl_sim
