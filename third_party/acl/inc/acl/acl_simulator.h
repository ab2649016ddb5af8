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
  uint64_t busy_ns;     // that the device's threads have spent on operators and copies, those that run now included
  uint64_t reserved[7];
} aclsimCounters;

// What a record of the device's profiler tells of: a task, a call of the ABI, or a mark of the host.
typedef enum aclsimRecordKind {
  ACL_SIM_RECORD_OP = 0,
  ACL_SIM_RECORD_COPY = 1,
  ACL_SIM_RECORD_FILL = 2,
  ACL_SIM_RECORD_EVENT = 3,
  ACL_SIM_RECORD_WAIT = 4,  // of a stream for an event
  ACL_SIM_RECORD_CALLBACK = 5,
  ACL_SIM_RECORD_EXTERNAL = 6,  // of another library, such as a collective
  ACL_SIM_RECORD_API = 16,
  ACL_SIM_RECORD_RANGE = 17,
  ACL_SIM_RECORD_MARK = 18,
} aclsimRecordKind;

// Times are nanoseconds of the epoch, on the clock that aclsimProfileStart read; all of one session fit together.
// aclsimProfileRead gives none once all have been read; after aclsimProfileStop that ends the session.
typedef struct aclsimRecord {
  uint64_t id;           // of the task, never given twice; of an API call: the last task that it submitted, or 0
  uint64_t correlation;  // what the submitting thread had set with aclsimSetCorrelation, or its innermost pushed range
  int64_t submitted;     // 0: before the session began
  int64_t started;
  int64_t ended;
  uint64_t bytes;  // read and written in device memory; of a copy: copied
  uint32_t text;   // for aclsimProfileText
  uint32_t stream;
  uint32_t thread;  // of the host: that called, or submitted
  int16_t device;   // -1 where there is none
  uint8_t kind;     // aclsimRecordKind
  uint8_t detail;   // of a copy: aclrtMemcpyKind; of an operator: 1 if it failed
} aclsimRecord;
