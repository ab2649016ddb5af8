// acl_simulator.h: what the simulator's other libraries need of this one.

#include "core/config.h"
#include "core/device.h"
#include "core/error.h"
#include "core/executor.h"
#include "core/fault.h"
#include "core/process.h"
#include "core/stream.h"
#include "sim_api.h"

#include <cerrno>
#include <cstring>

#include <sys/stat.h>

namespace acl_sim::api {
namespace {

Device& owner_of(const void* pointer, size_t size) {
  const int number = device_number_of(pointer);
  if (number < 0) throw Error(ACL_ERROR_RT_PARAM_INVALID, format("%p is host memory, not a device's", pointer));
  Device* found = opened_device(number);
  if (!found || !found->contains(pointer, size)) {
    throw Error(ACL_ERROR_RT_PARAM_INVALID,
                format("[%p, +%zu) is not inside one allocation of device %d", pointer, size, number));
  }
  return *found;
}

aclsimMemory describe(const Device& on, const void* pointer) {
  struct stat file{};
  if (::fstat(on.file(), &file) != 0)
    throw Error(ACL_ERROR_RT_IPC_ERROR, format("the file of device %d: %s", on.id, std::strerror(errno)));
  const auto bytes = static_cast<uint64_t>(file.st_size);
  // Addresses behind the file's are for memory that aclrtMapMem puts there.
  const auto at = static_cast<uint64_t>(on.alias(pointer) - on.alias_base());
  return {on.alias(pointer), config().visible[static_cast<size_t>(on.id)], on.file(), bytes,
          at < bytes ? at : UINT64_MAX};
}

}  // namespace

aclError aclsimLaunch(const char* name, aclsimFunction run, aclsimReady ready, void* data, aclrtStream handle) {
  if (!name || !run) throw Error(ACL_ERROR_INVALID_PARAM, "the name or the function is null");
  Stream& stream = submit_stream_of(handle);
  OpLaunch launch{};
  const bool lost = inject_into_launch(name, launch, *stream.device);
  Task task{};
  task.kind = TaskKind::External;
  const OpFault fault = lost ? OpFault::Error : launch.fault;
  task.external = {name, run, fault == OpFault::None ? ready : nullptr, data, fault, launch.fault_scale};
  stream.submit(task);
  return ACL_SUCCESS;
}

int32_t aclsimMustStop(const aclsimTask* task) {
  if (exiting()) return 1;
  const auto* stream = static_cast<const Stream*>(task->stream);
  return stream->aborting() || stream->device->lost.load(std::memory_order_relaxed) ? 1 : 0;
}

void aclsimShareCores(int32_t processes) { share_cores(processes); }

aclError aclsimFindMemory(const void* pointer, size_t size, aclsimMemory* memory) {
  if (!memory) throw Error(ACL_ERROR_INVALID_PARAM, "memory is null");
  *memory = describe(owner_of(pointer, size), pointer);
  return ACL_SUCCESS;
}

aclError aclsimFindDevice(int32_t device_id, aclsimMemory* memory) {
  if (!memory) throw Error(ACL_ERROR_INVALID_PARAM, "memory is null");
  Device& on = device(device_id);
  *memory = describe(on, on.window_address(on.alias_base()));
  return ACL_SUCCESS;
}

aclError aclsimPrepareMemory(void* pointer, size_t size, aclsimAccess access) {
  Device& on = owner_of(pointer, size);
  if (access == ACLSIM_WRITE) {
    before_raw_write(on, on.alias(pointer), size);
  } else {
    before_raw_read(on, on.alias(pointer), size);
  }
  return ACL_SUCCESS;
}

aclError aclsimGetOrder(const void* pointer, size_t size, uint64_t* order) {
  if (!order) throw Error(ACL_ERROR_INVALID_PARAM, "order is null");
  Device& on = owner_of(pointer, size);
  *order = stored_order(on, on.alias(pointer), size);
  return ACL_SUCCESS;
}

void aclsimReport(aclError code, const char* reason) { fail(code, reason ? reason : ""); }

}  // namespace acl_sim::api
