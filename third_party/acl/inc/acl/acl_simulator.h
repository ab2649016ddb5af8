#pragma once
// What only the simulated device answers: counters that tests compare, faults set at run time. No CANN library has
// these functions (aclsim*); ask c10::npu::acl::has_function first.

#include "acl_base.h"

// Totals since the process began or since aclsimResetCounters. Sizes in bytes.
typedef struct aclsimCounters {
  uint64_t host_to_device_copies;
  uint64_t host_to_device_bytes;
  uint64_t device_to_host_copies;
  uint64_t device_to_host_bytes;
  uint64_t device_to_device_copies;
  uint64_t device_to_device_bytes;
  uint64_t ops_launched;
  uint64_t ops_run_by_caller;  // tiny operators that ran at once, or that a waiter ran
  uint64_t ops_compiled;
  uint64_t memory_used;
  uint64_t memory_peak;
  uint64_t memory_total;
  uint64_t scratch_used;
  uint64_t scratch_peak;
  uint64_t relayouts;   // operands that had to be rewritten into another layout
  uint64_t ops_cached;  // compiled operators in memory, of all devices; a bounded number
  uint64_t busy_ns;     // that the device's threads have spent on operators and copies, each counted when it ends
  uint64_t reserved[7];
} aclsimCounters;
