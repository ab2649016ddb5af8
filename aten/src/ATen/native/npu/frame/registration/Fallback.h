#pragma once
// Operators without an NPU kernel: run by upstream's CPU kernel on copies, said once per operator, and counted.
// NPU_FALLBACK=0 in the environment when the library loads: they raise upstream's "Could not run" instead.

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <cstdint>
#include <map>
#include <string>

namespace at::native::npu {

// Calls per operator ("aten::name.overload") since the process began or since reset_fallback_stats.
std::map<std::string, int64_t> fallback_stats();
void reset_fallback_stats();

// Whether NPU_FALLBACK lets operators run on the CPU.
bool fallback_enabled();
// Runs the operator's kernel for `key`, one of the CPU's, on copies of its arguments, and counts that; Note [Fallback].
void run_on_cpu(const c10::OperatorHandle& op, torch::jit::Stack* stack, c10::DispatchKey key);

// Runs an operator that has a kernel on the CPU after all, because the device lacks the kernel's IR operator `ir`. As
// above, with NPU_FALLBACK=0 it raises.
void run_on_cpu(const c10::OperatorHandle& op, torch::jit::Stack* stack, const char* ir);

}  // namespace at::native::npu
