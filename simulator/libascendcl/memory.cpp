// acl_rt.h: device and host memory, copies.

#include "core/capture.h"
#include "core/context.h"
#include "core/device.h"
#include "core/error.h"
#include "core/executor.h"
#include "core/fault.h"
#include "core/peers.h"
#include "core/pinned.h"
#include "core/stream.h"
#include "sim_api.h"

#include <cstring>

namespace acl_sim::api {
namespace {

// Copies up to that size run on the calling thread when the stream is idle.
constexpr size_t kTinyCopy = size_t{64} << 10;
constexpr size_t kModestCopy = size_t{1} << 20;  // on a busy machine, see core/load.h

struct Plan {
  CopyRoute route;
  bool host_to_host;
  Device* counted;
  void* to;
  const void* from;
};

const char* kind_name(aclrtMemcpyKind kind) {
  switch (kind) {
    case ACL_MEMCPY_HOST_TO_HOST:
      return "host to host";
    case ACL_MEMCPY_HOST_TO_DEVICE:
      return "host to device";
    case ACL_MEMCPY_DEVICE_TO_HOST:
      return "device to host";
    default:
      return "device to device";
  }
}

// A live block of device memory, or an error that says what the address is instead.
Device& live(const void* address, size_t bytes, const char* which, aclrtMemcpyKind kind) {
  const int number = device_number_of(address);
  if (number < 0)
    throw Error(ACL_ERROR_RT_PARAM_INVALID,
                format("a copy from %s has the %s %p, which is host memory", kind_name(kind), which, address));
  Device* device = opened_device(number);
  if (!device || !device->contains(address, bytes)) {
    throw Error(ACL_ERROR_RT_PARAM_INVALID,
                format("the %s [%p, +%zu) is not inside one allocation of device %d", which, address, bytes, number));
  }
  return *device;
}

void check_host(const void* address, const char* which, aclrtMemcpyKind kind) {
  const int number = device_number_of(address);
  if (number >= 0)
    throw Error(ACL_ERROR_RT_PARAM_INVALID, format("a copy from %s has the %s %p, which is memory of device %d",
                                                   kind_name(kind), which, address, number));
}

// Checks direction, bounds and ownership, and translates the addresses.
Plan plan_copy(void* to, size_t room, const void* from, size_t bytes, aclrtMemcpyKind kind) {
  if (!to || !from) throw Error(ACL_ERROR_INVALID_PARAM, "the source or the destination is null");
  if (bytes > room)
    throw Error(ACL_ERROR_INVALID_PARAM, format("%zu bytes do not fit in a destination of %zu", bytes, room));
  if (kind == ACL_MEMCPY_DEFAULT) {
    const bool from_device = device_number_of(from) >= 0, to_device = device_number_of(to) >= 0;
    kind = from_device ? (to_device ? ACL_MEMCPY_DEVICE_TO_DEVICE : ACL_MEMCPY_DEVICE_TO_HOST)
           : to_device ? ACL_MEMCPY_HOST_TO_DEVICE
                       : ACL_MEMCPY_HOST_TO_HOST;
  } else if (kind == ACL_MEMCPY_HOST_TO_BUF_TO_DEVICE) {
    kind = ACL_MEMCPY_HOST_TO_DEVICE;
  } else if (kind == ACL_MEMCPY_INNER_DEVICE_TO_DEVICE || kind == ACL_MEMCPY_INTER_DEVICE_TO_DEVICE) {
    kind = ACL_MEMCPY_DEVICE_TO_DEVICE;
  }
  Plan plan{kDeviceToDevice, false, nullptr, to, from};
  switch (kind) {
    case ACL_MEMCPY_HOST_TO_HOST:
      check_host(from, "source", kind);
      check_host(to, "destination", kind);
      plan.host_to_host = true;
      break;
    case ACL_MEMCPY_HOST_TO_DEVICE: {
      check_host(from, "source", kind);
      Device& device = live(to, bytes, "destination", kind);
      plan = {kHostToDevice, false, &device, device.alias(to), from};
      break;
    }
    case ACL_MEMCPY_DEVICE_TO_HOST: {
      Device& device = live(from, bytes, "source", kind);
      check_host(to, "destination", kind);
      plan = {kDeviceToHost, false, &device, to, device.alias(from)};
      break;
    }
    case ACL_MEMCPY_DEVICE_TO_DEVICE: {
      Device& source = live(from, bytes, "source", kind);
      Device& target = live(to, bytes, "destination", kind);
      if (&source != &target && !are_peers(source.id, target.id))
        throw Error(ACL_ERROR_RT_PARAM_INVALID,
                    format("devices %d and %d do not copy from each other: call aclrtDeviceEnablePeerAccess first",
                           source.id, target.id));
      plan = {kDeviceToDevice, false, &target, target.alias(to), source.alias(from)};
      break;
    }
    default:
      throw Error(ACL_ERROR_INVALID_PARAM, format("there is no copy kind %d", static_cast<int>(kind)));
  }
  return plan;
}

void count(const Plan& plan, size_t bytes) {
  if (!plan.counted) return;
  plan.counted->counters.copies[plan.route][0].fetch_add(1, std::memory_order_relaxed);
  plan.counted->counters.copies[plan.route][1].fetch_add(bytes, std::memory_order_relaxed);
}

// A Fill of device or host memory; gives the address that the device writes to.
void* plan_fill(void* to, size_t room, size_t bytes) {
  if (!to) throw Error(ACL_ERROR_INVALID_PARAM, "the address is null");
  if (bytes > room) throw Error(ACL_ERROR_INVALID_PARAM, format("%zu bytes do not fit in %zu", bytes, room));
  return device_number_of(to) >= 0 ? live(to, bytes, "destination", ACL_MEMCPY_HOST_TO_DEVICE).alias(to) : to;
}

}  // namespace

aclError aclrtMalloc(void** pointer, size_t size, aclrtMemMallocPolicy policy) {
  if (!pointer || size == 0) throw Error(ACL_ERROR_INVALID_PARAM, "the pointer is null or the size is 0");
  constexpr int kKnown =
      ACL_MEM_TYPE_LOW_BAND_WIDTH | ACL_MEM_TYPE_HIGH_BAND_WIDTH | ACL_MEM_ACCESS_USER_SPACE_READONLY | 0x7;
  if (policy & ~kKnown)
    throw Error(ACL_ERROR_INVALID_PARAM, format("there is no allocation policy %d", static_cast<int>(policy)));
  Device& device = *current_context().device;
  if (device.lost.load()) throw Error(ACL_ERROR_RT_LOST_HEARTBEAT, format("device %d is lost", device.id));
  if (malloc_fails()) {
    size_t free = 0, total = 0;
    device.memory_info(&free, &total, nullptr);
    throw Error(ACL_ERROR_RT_MEMORY_ALLOCATION,
                format("device %d is out of memory: %zu bytes asked for (fault injected; %zu of %zu are free)",
                       device.id, size, free, total));
  }
  *pointer = device.malloc(size);
  return ACL_SUCCESS;
}

aclError aclrtMallocAlign32(void** pointer, size_t size, aclrtMemMallocPolicy policy) {
  return aclrtMalloc(pointer, size, policy);
}

aclError aclrtFree(void* pointer) {
  if (!pointer) throw Error(ACL_ERROR_INVALID_PARAM, "the address is null");
  const int number = device_number_of(pointer);
  Device* device = number >= 0 ? opened_device(number) : nullptr;
  // Queued work may still use the block: its pages must not come back to life after they were given back.
  if (device) drain_device(*device);
  if (!device || !device->free(pointer))
    throw Error(ACL_ERROR_RT_MEMORY_FREE, format("%p is not the start of a live device allocation", pointer));
  return ACL_SUCCESS;
}

aclError aclrtMallocHost(void** pointer, size_t size) {
  if (!pointer || size == 0) throw Error(ACL_ERROR_INVALID_PARAM, "the pointer is null or the size is 0");
  current_context();
  *pointer = pinned_malloc(size);
  return ACL_SUCCESS;
}

aclError aclrtFreeHost(void* pointer) {
  if (!pointer) throw Error(ACL_ERROR_INVALID_PARAM, "the address is null");
  if (!pinned_free(pointer))
    throw Error(ACL_ERROR_RT_MEMORY_FREE, format("%p is not the start of memory from aclrtMallocHost", pointer));
  return ACL_SUCCESS;
}

aclError aclrtGetMemInfo(aclrtMemAttr attr, size_t* free, size_t* total) {
  if (!free || !total) throw Error(ACL_ERROR_INVALID_PARAM, "a pointer is null");
  if (attr < ACL_DDR_MEM || attr > ACL_HBM_MEM_P2P_HUGE1G)
    throw Error(ACL_ERROR_INVALID_PARAM, format("there is no memory attribute %d", static_cast<int>(attr)));
  current_context().device->memory_info(free, total, nullptr);
  return ACL_SUCCESS;
}

aclError aclrtMemcpy(void* to, size_t room, const void* from, size_t bytes, aclrtMemcpyKind kind) {
  current_context();
  check_safe_in_capture("aclrtMemcpy");
  const Plan plan = plan_copy(to, room, from, bytes, kind);
  if (bytes == 0) return ACL_SUCCESS;
  if (plan.counted && plan.counted->lost.load())
    throw Error(ACL_ERROR_RT_LOST_HEARTBEAT, format("device %d is lost", plan.counted->id));
  count(plan, bytes);
  copy_now(plan.to, plan.from, bytes);
  return ACL_SUCCESS;
}

aclError aclrtMemcpyAsync(void* to, size_t room, const void* from, size_t bytes, aclrtMemcpyKind kind,
                          aclrtStream handle) {
  Stream& stream = submit_stream_of(handle);
  const Plan plan = plan_copy(to, room, from, bytes, kind);
  if (bytes == 0) return ACL_SUCCESS;
  if (stream.device->lost.load())
    throw Error(ACL_ERROR_RT_LOST_HEARTBEAT, format("device %d is lost", stream.device->id));
  const bool pageable_source = plan.route == kHostToDevice && !plan.host_to_host && !is_pinned(from);
  const bool pageable_target = plan.route == kDeviceToHost && !is_pinned(to);
  if (pageable_source || pageable_target) check_safe_in_capture("aclrtMemcpyAsync with pageable host memory");
  if (pageable_target) check_no_capture(stream, "copying to pageable host memory");
  count(plan, bytes);
  Task task;
  task.kind = TaskKind::Copy;
  task.tiny = bytes <= kTinyCopy;
  task.modest = bytes <= kModestCopy;
  task.copy = {plan.to, plan.from, bytes, 0, nullptr, false};
  // Ordinary host memory may change or go as soon as this call returns: a copy that is queued takes it with it, as a
  // card's driver does.
  task.copy.pageable = pageable_source;
  stream.submit(task);
  // And there is no telling how long ordinary memory waits for a result.
  if (pageable_target) stream.wait(task.id, -1);
  return ACL_SUCCESS;
}

aclError aclrtMemset(void* to, size_t room, int32_t value, size_t bytes) {
  current_context();
  check_safe_in_capture("aclrtMemset");
  void* place = plan_fill(to, room, bytes);
  if (Device* device = device_of_alias(place)) before_raw_write(*device, place, bytes);
  std::memset(place, value, bytes);
  return ACL_SUCCESS;
}

aclError aclrtMemsetAsync(void* to, size_t room, int32_t value, size_t bytes, aclrtStream handle) {
  Stream& stream = submit_stream_of(handle);
  void* place = plan_fill(to, room, bytes);
  Task task;
  task.kind = TaskKind::Fill;
  task.tiny = bytes <= kTinyCopy;
  task.modest = bytes <= kModestCopy;
  task.copy = {place, nullptr, bytes, value, nullptr, false};
  stream.submit(task);
  return ACL_SUCCESS;
}

}  // namespace acl_sim::api
