#pragma once
// The environment switches that the device layer obeys, read once per process.

#include <c10/npu/NPUMacros.h>

#include <cstdint>

namespace c10::npu {

// How an operator reaches its stream (TASK_QUEUE_ENABLE).
enum class TaskQueueMode : uint8_t {
  Off = 0,     // "0": at the call; an error of the launch is raised by the call that caused it
  On = 1,      // "1", the default: through the queue's thread on a card; the simulator takes tasks at the call,
               // since launching into it is asynchronous and cheap already
  Always = 2,  // "2": through the queue's thread on the simulator as well
};

struct Options {
  TaskQueueMode task_queue = TaskQueueMode::On;
  bool launch_blocking = false;  // ASCEND_LAUNCH_BLOCKING=1: wait for the device after each operator
  bool acl_dump_data = false;    // ACL_DUMP_DATA=1: ./acl.json is given to aclInit, to dump from the start
  // INF_NAN_MODE_ENABLE=0, or INF_NAN_MODE_FORCE_DISABLE=1: results that overflow become the largest number.
  bool saturates = false;
  // ACL_DEVICE_SYNC_TIMEOUT, in seconds there: bound on every wait for the device; -1 means none.
  int32_t sync_timeout_ms = 30 * 60 * 1000;
};

// The value of an environment variable, null where it is unset: the one place where the host reads the environment.
// docs/variables.yaml lists every variable with its type, default and meaning; test_variables.py compares.
C10_NPU_API const char* environment(const char* name);

// Throws ValueError, naming the variable, when one holds a value that is not allowed.
C10_NPU_API const Options& options();

}  // namespace c10::npu
