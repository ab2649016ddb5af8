#pragma once
// Note [Overflow check]
// The device's float status says that something overflowed, not what. While the check is on, each IR operator is
// therefore launched alone: launch it, read the status after it on its stream, wait, and clear what was found. So the
// named operator is the right one whatever was queued before, on a card and on the simulator, and in backward as in
// forward. Slow, and it takes the status away from a loss scaler that reads it: a mode for finding an operator.
// A card's status is one word: something overflowed. The simulator's second word counts the results that underflowed,
// that is became zero though they are not.

#include <cstdint>
#include <string>
#include <vector>

namespace at::native::npu {

// An operator that overflowed or underflowed; one that did both is in the list twice.
struct Overflow {
  std::string op_type;
  uint32_t lost;      // results that underflowed; 0: it overflowed
  uint64_t sequence;  // of the IR operators launched since the check was switched on, from 1
  int device;
  int stream;  // streams are numbered from 0 as the check meets them
};

// Switches the check for all devices of the process; switching it on forgets what was found and restarts the count.
void set_overflow_check(bool on);
bool overflow_check_is_on();
// What was found since the last call, oldest first.
std::vector<Overflow> take_overflows();

}  // namespace at::native::npu
