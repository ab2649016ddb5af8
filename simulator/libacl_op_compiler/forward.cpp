// libacl_op_compiler.so: CANN keeps compiling in a library of its own, the simulator keeps it in libascendcl.so. This
// one only depends on that one, so that a program linked against it, or looking it up by name, finds the functions.

#include <acl/acl.h>

extern "C" aclError aclopSetCompileFlag(aclOpCompileFlag flag);

namespace {
// One reference, so that the dependency is recorded whatever the linker's habits.
[[maybe_unused]] __attribute__((used)) auto* const kept = &aclopSetCompileFlag;
}  // namespace
