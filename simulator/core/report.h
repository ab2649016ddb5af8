#pragma once
// Host callbacks in streams (aclrtLaunchCallback): a stream hands them to the thread that subscribed to it, which runs
// them inside aclrtProcessReport. And the layout of the information given to exception callbacks.

#include <acl/acl.h>

#include "core/task.h"

struct rtExceptionInfo {
  uint32_t taskid;
  uint32_t streamid;
  uint32_t tid;
  uint32_t deviceid;
  uint32_t retcode;
};

namespace [[gnu::visibility("hidden")]] acl_sim {

struct Stream;

// The stream's side: queues the callback for its thread, and waits until it has run if it blocks.
void run_callback(CallbackWork& work, Stream& stream);

void subscribe(uint64_t thread, Stream& stream);
void unsubscribe(uint64_t thread, Stream& stream);
// The thread's side: runs one callback, or gives ACL's code if none came within timeout_ms (-1: any time).
aclError process_report(int32_t timeout_ms);

}  // namespace acl_sim
