#pragma once
// Operators without an NPU kernel: run by upstream's CPU kernel on copies, said once per operator, and counted.
// NPU_FALLBACK=0 in the environment when the library loads: they raise upstream's "Could not run" instead.

#include <cstdint>
#include <map>
#include <string>

namespace at::native::npu {

// Calls per operator ("aten::name.overload") since the process began or since reset_fallback_stats.
std::map<std::string, int64_t> fallback_stats();
void reset_fallback_stats();

}  // namespace at::native::npu
