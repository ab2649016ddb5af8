#pragma once
// Faults on demand. ASCEND_SIM_FAULT holds entries separated by commas:
//   OPTYPE:scale=F@N   the N-th launch of that operator type in this process comes out multiplied by F
//   OPTYPE:error@N     it fails on the device
//   OPTYPE:hang@N      it does not end before a time-out, a device reset or the end of the process
//   malloc:oom@N       the N-th allocation of device memory finds none
//   device:lost@N      the device of the N-th operator launch is lost until it is reset
// A collective is an operator, too, with its function as the type: HcclAllReduce:error@2.
// Launches are counted in the order in which the host makes them; N is 1 or more.

#include <atomic>
#include <string>

#include "core/task.h"

namespace [[gnu::visibility("hidden")]] acl_sim {

class Device;

namespace detail {
extern std::atomic<int> faults_armed;  // -1 until the environment has been read
void read_fault_environment();
bool fault_launch(const char* type, OpLaunch& launch, Device& device);
bool fault_malloc();
}  // namespace detail

// Replaces the faults and restarts the counts. Throws Error(ACL_ERROR_INVALID_PARAM) naming the entry that is refused.
void set_faults(const std::string& specification);
// Throws if ASCEND_SIM_FAULT is refused.
void check_faults();

// Marks the launch if a fault is due; true if the device was lost by it.
inline bool inject_into_launch(const char* type, OpLaunch& launch, Device& device) {
  const int armed = detail::faults_armed.load(std::memory_order_relaxed);
  if (__builtin_expect(armed == 0, 1)) return false;
  return detail::fault_launch(type, launch, device);
}

inline bool malloc_fails() {
  return detail::faults_armed.load(std::memory_order_relaxed) != 0 && detail::fault_malloc();
}

}  // namespace acl_sim
