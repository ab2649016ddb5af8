#pragma once
// torch.npu._sleep: keeps a stream busy, for tests of what happens meanwhile.

#include <cstdint>

namespace at::npu {

// The current stream does nothing else for `cycles` of the simulated device's clock, which has 1 GHz. Throws on a card:
// CANN has no operator that waits.
void sleep(int64_t cycles);

}  // namespace at::npu
