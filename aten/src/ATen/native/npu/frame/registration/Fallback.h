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

// Runs an operator that has a kernel on the CPU after all, because the device lacks the kernel's IR operator `ir`. As
// above, with NPU_FALLBACK=0 it raises.
void run_on_cpu(const c10::OperatorHandle& op, torch::jit::Stack* stack, const char* ir);

}  // namespace at::native::npu
