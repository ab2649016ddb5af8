// acl_rt.h: devices, contexts, peers, and what is counted.

#include "core/device.h"
#include "core/capture.h"
#include "core/config.h"
#include "core/context.h"
#include "core/error.h"
#include "core/fault.h"
#include "core/peers.h"
#include "core/stream.h"
#include "exec/compilation/compile_cache.h"
#include "exec/running/scratch.h"
#include "sim_api.h"

#include <unistd.h>

namespace acl_sim::api {
namespace {

void check_device(int32_t id) {
  if (id < 0 || id >= device_count())
    throw Error(ACL_ERROR_RT_INVALID_DEVICEID, format("there is no device %d, there are %d", id, device_count()));
}

}  // namespace

aclError aclrtGetDeviceCount(uint32_t* count) {
  if (!count) throw Error(ACL_ERROR_INVALID_PARAM, "count is null");
  check_config();
  *count = static_cast<uint32_t>(device_count());
  return ACL_SUCCESS;
}

aclError aclrtSetDevice(int32_t id) {
  check_faults();
  set_device(id);
  return ACL_SUCCESS;
}

aclError aclrtGetDevice(int32_t* id) {
  if (!id) throw Error(ACL_ERROR_INVALID_PARAM, "deviceId is null");
  *id = current_context().device->id;
  return ACL_SUCCESS;
}

aclError aclrtResetDevice(int32_t id) {
  check_device(id);
  reset_device(id);
  return ACL_SUCCESS;
}

namespace {

aclError wait_for_device(int64_t timeout_ms) {
  Device& device = *current_context().device;
  check_no_capture(device, "waiting for a device");
  return synchronize_device(device, timeout_ms);
}

}  // namespace

aclError aclrtSynchronizeDevice() { return wait_for_device(-1); }

aclError aclrtSynchronizeDeviceWithTimeout(int32_t timeout) {
  if (timeout < -1)
    throw Error(ACL_ERROR_INVALID_PARAM, format("the time-out %d is refused: -1 waits for ever", timeout));
  return wait_for_device(timeout);
}

aclError aclrtCreateContext(aclrtContext* context, int32_t id) {
  if (!context) throw Error(ACL_ERROR_INVALID_PARAM, "context is null");
  *context = &create_context(id);
  return ACL_SUCCESS;
}

aclError aclrtDestroyContext(aclrtContext context) {
  destroy_context(context);
  return ACL_SUCCESS;
}

aclError aclrtSetCurrentContext(aclrtContext context) {
  set_current_context(context);
  return ACL_SUCCESS;
}

aclError aclrtGetCurrentContext(aclrtContext* context) {
  if (!context) throw Error(ACL_ERROR_INVALID_PARAM, "context is null");
  *context = &current_context();
  return ACL_SUCCESS;
}

aclError aclrtGetRunMode(aclrtRunMode* mode) {
  if (!mode) throw Error(ACL_ERROR_INVALID_PARAM, "runMode is null");
  *mode = ACL_HOST;
  return ACL_SUCCESS;
}

aclError aclrtDeviceCanAccessPeer(int32_t* can, int32_t id, int32_t peer) {
  if (!can) throw Error(ACL_ERROR_INVALID_PARAM, "canAccessPeer is null");
  check_device(id);
  check_device(peer);
  if (id == peer) throw Error(ACL_ERROR_RT_INVALID_DEVICEID, format("device %d is no peer of itself", id));
  *can = 1;
  return ACL_SUCCESS;
}

aclError aclrtDeviceEnablePeerAccess(int32_t peer, uint32_t flags) {
  const int mine = current_context().device->id;
  check_device(peer);
  if (peer == mine) throw Error(ACL_ERROR_RT_INVALID_DEVICEID, format("device %d is no peer of itself", peer));
  if (flags != 0) throw Error(ACL_ERROR_INVALID_PARAM, "flags must be 0");
  set_peer(mine, peer, true);  // every simulated device reaches every other
  return ACL_SUCCESS;
}

aclError aclrtDeviceDisablePeerAccess(int32_t peer) {
  const int mine = current_context().device->id;
  check_device(peer);
  if (peer == mine) throw Error(ACL_ERROR_RT_INVALID_DEVICEID, format("device %d is no peer of itself", peer));
  set_peer(mine, peer, false);
  return ACL_SUCCESS;
}

aclError aclrtDeviceGetBareTgid(int32_t* pid) {
  if (!pid) throw Error(ACL_ERROR_INVALID_PARAM, "pid is null");
  *pid = ::getpid();
  return ACL_SUCCESS;
}

aclError aclrtGetLastError(aclrtLastErrLevel level) {
  if (level != ACL_RT_THREAD_LEVEL) return ACL_ERROR_INVALID_PARAM;
  return last_error(true);
}

aclError aclrtPeekAtLastError(aclrtLastErrLevel level) {
  if (level != ACL_RT_THREAD_LEVEL) return ACL_ERROR_INVALID_PARAM;
  return last_error(false);
}

aclError aclrtSetDeviceSatMode(aclrtFloatOverflowMode mode) {
  const Context& context = current_context();
  if (mode < ACL_RT_OVERFLOW_MODE_SATURATION || mode >= ACL_RT_OVERFLOW_MODE_UNDEF) {
    throw Error(ACL_ERROR_INVALID_PARAM, format("there is no overflow mode %d", static_cast<int>(mode)));
  }
  const bool saturates = mode == ACL_RT_OVERFLOW_MODE_SATURATION;
  context.device->saturates.store(saturates);
  context.default_stream->saturates.store(saturates);
  return ACL_SUCCESS;
}

aclError aclrtGetDeviceSatMode(aclrtFloatOverflowMode* mode) {
  const Context& context = current_context();
  if (!mode) throw Error(ACL_ERROR_INVALID_PARAM, "mode is null");
  *mode = context.device->saturates.load() ? ACL_RT_OVERFLOW_MODE_SATURATION : ACL_RT_OVERFLOW_MODE_INFNAN;
  return ACL_SUCCESS;
}

// ---- what only the simulator answers

aclError aclsimGetCounters(int32_t id, aclsimCounters* counters) {
  check_device(id);
  if (!counters) throw Error(ACL_ERROR_INVALID_PARAM, "counters is null");
  *counters = {};
  size_t free = 0, total = config().memory, peak = 0;
  if (Device* d = opened_device(id)) {
    const auto& c = d->counters;
    counters->host_to_device_copies = c.copies[kHostToDevice][0].load();
    counters->host_to_device_bytes = c.copies[kHostToDevice][1].load();
    counters->device_to_host_copies = c.copies[kDeviceToHost][0].load();
    counters->device_to_host_bytes = c.copies[kDeviceToHost][1].load();
    counters->device_to_device_copies = c.copies[kDeviceToDevice][0].load();
    counters->device_to_device_bytes = c.copies[kDeviceToDevice][1].load();
    const uint64_t direct = direct_ops_of(*d) - c.direct_ops_before.load();
    counters->ops_launched = c.ops_launched.load() + direct;
    counters->ops_run_by_caller = c.ops_run_by_caller.load() + direct;
    counters->ops_compiled = c.ops_compiled.load();
    counters->relayouts = c.relayouts.load();
    counters->ops_cached = compiled_ops();
    counters->busy_ns = busy_ns_of(*d);
    d->memory_info(&free, &total, &peak);
    counters->memory_used = total - free;
    size_t scratch = 0, scratch_peak = 0;
    scratch_usage(&scratch, &scratch_peak);
    counters->scratch_used = scratch;
    counters->scratch_peak = scratch_peak;
  }
  counters->memory_total = total;
  counters->memory_peak = peak;
  return ACL_SUCCESS;
}

aclError aclsimResetCounters(int32_t id) {
  check_device(id);
  if (Device* d = opened_device(id)) {
    for (auto& route : d->counters.copies) {
      for (auto& value : route) value.store(0);
    }
    d->counters.direct_ops_before.store(direct_ops_of(*d));
    d->counters.ops_launched.store(0);
    d->counters.ops_run_by_caller.store(0);
    d->counters.ops_compiled.store(0);
    d->counters.relayouts.store(0);
    d->counters.busy_ns.store(0);
  }
  return ACL_SUCCESS;
}

aclError aclsimSetFault(const char* specification) {
  set_faults(specification ? specification : "");
  return ACL_SUCCESS;
}

}  // namespace acl_sim::api
