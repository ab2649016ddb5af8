#pragma once
// Note [Compile mode]
// ACL compiles an operator for its exact shapes or, while the process-wide compile flag says so, for a range of shapes
// ("fuzzy"). The flag is raised by torch.npu.set_start_fuzz_compile_step with global_step_inc, or from the start by
// DYNAMIC_COMPILE_ENABLE=1. Two variables make exceptions by operator, for which a launch changes the flag and puts it
// back (an observer of launches, while there are exceptions):
//   DISABLE_DYNAMIC_PATH  a file with one IR operator per line ('#' begins a comment): always compiled exactly
//   DYNAMIC_OP            names joined by '#', such as ADD#MUL: always compiled for ranges; case does not matter

namespace at::native::npu {

// Compiles for ranges of shapes from now on, or for exact ones. The device must be open.
void set_fuzzy_compile(bool on);

}  // namespace at::native::npu
