// acl_rt.h: physical memory, reserved addresses, and sharing physical memory between processes.
//
// Note [Shared handles]
// A shareable handle names the exporting process, its memfd, and a slot of the export table, which lies in a memfd of
// its own: the importer opens both through /proc/<pid>/fd, so nothing has to be sent and nothing stays behind. The
// table's slot holds where the memory lies in the file and which processes may import it.

#include "core/context.h"
#include "core/device.h"
#include "core/error.h"
#include "core/handles.h"
#include "core/stream.h"
#include "sim_api.h"

#include <cerrno>
#include <cstring>
#include <mutex>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

namespace acl_sim::api {
namespace {

constexpr size_t kGranule = size_t{2} << 20;
constexpr uint32_t kSlots = 1024;
constexpr size_t kPids = 30;

struct Physical {
  std::atomic<bool> alive{false};
  Device* device = nullptr;
  size_t size = 0;
  size_t offset = 0;
  int file = -1;  // the device's, or an importer's own descriptor
  bool imported = false;
};

struct Slot {
  std::atomic<uint32_t> used;
  uint32_t device;
  uint64_t offset, size;
  int32_t file;
  int32_t any_process;
  int32_t pids[kPids];
  std::atomic<int32_t> pid_count;
};

using Pool = HandlePool<Physical, 65536>;
Pool& pool() {
  static auto* value = new Pool;
  return *value;
}

Physical& physical_of(aclrtDrvMemHandle handle) {
  if (Physical* physical = pool().check(handle)) return *physical;
  throw Error(ACL_ERROR_RT_INVALID_HANDLE, format("%p is no physical memory", handle));
}

Physical& make_physical(Device& device, size_t size, size_t offset, int file, bool imported) {
  Physical* physical = pool().take();
  if (!physical) throw Error(ACL_ERROR_RT_RESOURCE_ALLOC_FAIL, "too many pieces of physical memory");
  physical->device = &device;
  physical->size = size;
  physical->offset = offset;
  physical->file = file;
  physical->imported = imported;
  physical->alive.store(true);
  return *physical;
}

struct Exports {
  std::mutex mutex;
  int file = -1;
  Slot* slots = nullptr;
};

Exports& exports() {
  static auto* value = new Exports;
  return *value;
}

Slot* map_slots(int file, int protection) {
  void* at = ::mmap(nullptr, sizeof(Slot) * kSlots, protection, MAP_SHARED, file, 0);
  return at == MAP_FAILED ? nullptr : static_cast<Slot*>(at);
}

Exports& opened_exports() {
  auto& e = exports();
  if (e.slots) return e;
  e.file = ::memfd_create("ascend_sim_exports", MFD_CLOEXEC);
  if (e.file < 0 || ::ftruncate(e.file, sizeof(Slot) * kSlots) != 0 ||
      !(e.slots = map_slots(e.file, PROT_READ | PROT_WRITE))) {
    throw Error(ACL_ERROR_RT_IPC_ERROR, format("cannot make the table of exported memory: %s", std::strerror(errno)));
  }
  return e;
}

// pid: 32 bits, descriptor of the table: 20 bits, slot: 12 bits.
uint64_t pack(int pid, int file, uint32_t slot) {
  return static_cast<uint64_t>(static_cast<uint32_t>(pid)) << 32 | static_cast<uint64_t>(file) << 12 | slot;
}

Slot& own_slot(uint64_t handle) {
  auto& e = exports();
  const auto slot = static_cast<uint32_t>(handle & 0xFFF);
  if (!e.slots || handle >> 32 != static_cast<uint64_t>(::getpid()) ||
      (handle >> 12 & 0xFFFFF) != static_cast<uint64_t>(e.file) || slot >= kSlots || !e.slots[slot].used.load()) {
    throw Error(ACL_ERROR_RT_INVALID_HANDLE,
                format("%#llx is no handle that this process has exported", static_cast<unsigned long long>(handle)));
  }
  return e.slots[slot];
}

int open_of(uint64_t pid, uint64_t file) {
  const int opened = ::open(
      format("/proc/%llu/fd/%llu", static_cast<unsigned long long>(pid), static_cast<unsigned long long>(file)).c_str(),
      O_RDWR | O_CLOEXEC);
  if (opened < 0)
    throw Error(ACL_ERROR_RT_IPC_ERROR, format("the memory of process %llu cannot be reached: %s",
                                               static_cast<unsigned long long>(pid), std::strerror(errno)));
  return opened;
}

}  // namespace

aclError aclrtReserveMemAddress(void** pointer, size_t size, size_t alignment, void* expected, uint64_t flags) {
  if (!pointer || size == 0 || alignment != 0 || flags > 1)
    throw Error(ACL_ERROR_INVALID_PARAM, "the pointer is null, the size is 0, or alignment or flags are refused");
  *pointer = current_context().device->reserve(size, expected);
  return ACL_SUCCESS;
}

aclError aclrtReleaseMemAddress(void* pointer) {
  const int number = device_number_of(pointer);
  if (number < 0 || !opened_device(number) || !opened_device(number)->release(pointer)) {
    throw Error(ACL_ERROR_RT_PARAM_INVALID,
                format("%p is not the start of a reserved range, or memory is still mapped there", pointer));
  }
  return ACL_SUCCESS;
}

aclError aclrtMallocPhysical(aclrtDrvMemHandle* handle, size_t size, const aclrtPhysicalMemProp* property,
                             uint64_t flags) {
  if (!handle || !property || size == 0 || flags != 0)
    throw Error(ACL_ERROR_INVALID_PARAM, "a pointer is null, the size is 0, or flags are not 0");
  if (property->location.type != ACL_MEM_LOCATION_TYPE_DEVICE)
    throw Error(ACL_ERROR_RT_FEATURE_NOT_SUPPORT, "physical memory can only be on a device");
  Device& on = device(static_cast<int>(property->location.id));
  const size_t whole = (size + kGranule - 1) / kGranule * kGranule;
  *handle = &make_physical(on, whole, on.take_physical(whole), on.file(), false);
  return ACL_SUCCESS;
}

aclError aclrtFreePhysical(aclrtDrvMemHandle handle) {
  Physical& physical = physical_of(handle);
  physical.alive.store(false);
  if (physical.imported) {
    ::close(physical.file);
  } else {
    physical.device->give_physical(physical.offset, physical.size);
  }
  pool().give(&physical);
  return ACL_SUCCESS;
}

aclError aclrtMapMem(void* pointer, size_t size, size_t offset, aclrtDrvMemHandle handle, uint64_t flags) {
  Physical& physical = physical_of(handle);
  const int number = device_number_of(pointer);
  if (number < 0 || offset != 0 || flags != 0 || size == 0 || size > physical.size || size % kGranule) {
    throw Error(
        ACL_ERROR_RT_PARAM_INVALID,
        format("cannot map %zu bytes of a piece of %zu at %p: sizes are multiples of 2 MiB, offset and flags are 0",
               size, physical.size, pointer));
  }
  device(number).map(pointer, size, physical.file, physical.offset);
  return ACL_SUCCESS;
}

aclError aclrtUnmapMem(void* pointer) {
  const int number = device_number_of(pointer);
  if (number >= 0 && opened_device(number)) drain_device(*opened_device(number));
  if (number < 0 || !opened_device(number) || !opened_device(number)->unmap(pointer))
    throw Error(ACL_ERROR_RT_PARAM_INVALID, format("nothing is mapped at %p", pointer));
  return ACL_SUCCESS;
}

aclError aclrtMemGetAllocationGranularity(aclrtPhysicalMemProp* property, aclrtMemGranularityOptions option,
                                          size_t* granularity) {
  if (!property || !granularity || option >= ACL_RT_MEM_ALLOC_GRANULARITY_UNDEF)
    throw Error(ACL_ERROR_INVALID_PARAM, "a pointer is null or the option is refused");
  *granularity = kGranule;
  return ACL_SUCCESS;
}

aclError aclrtMemExportToShareableHandle(aclrtDrvMemHandle handle, aclrtMemHandleType type, uint64_t flags,
                                         uint64_t* shareable) {
  Physical& physical = physical_of(handle);
  if (!shareable || type != ACL_MEM_HANDLE_TYPE_NONE || flags > ACL_RT_VMM_EXPORT_FLAG_DISABLE_PID_VALIDATION ||
      physical.imported) {
    throw Error(ACL_ERROR_INVALID_PARAM,
                "the result is null, type or flags are refused, or the memory was imported itself");
  }
  std::lock_guard<std::mutex> lock(exports().mutex);
  auto& e = opened_exports();
  for (uint32_t i = 0; i < kSlots; ++i) {
    Slot& slot = e.slots[i];
    if (slot.used.load()) continue;
    slot.device = static_cast<uint32_t>(physical.device->id);
    slot.offset = physical.offset;
    slot.size = physical.size;
    slot.file = physical.file;
    slot.any_process = flags == ACL_RT_VMM_EXPORT_FLAG_DISABLE_PID_VALIDATION;
    slot.pid_count.store(0);
    slot.used.store(1, std::memory_order_release);
    *shareable = pack(::getpid(), e.file, i);
    return ACL_SUCCESS;
  }
  throw Error(ACL_ERROR_RT_RESOURCE_ALLOC_FAIL, format("more than %u pieces of memory are exported", kSlots));
}

aclError aclrtMemSetPidToShareableHandle(uint64_t shareable, int32_t* pids, size_t count) {
  if (!pids || count == 0) throw Error(ACL_ERROR_INVALID_PARAM, "the list of processes is null or empty");
  std::lock_guard<std::mutex> lock(exports().mutex);
  Slot& slot = own_slot(shareable);
  const auto have = static_cast<size_t>(slot.pid_count.load());
  if (have + count > kPids)
    throw Error(ACL_ERROR_RT_OVER_LIMIT, format("at most %zu processes can import one piece of memory", kPids));
  for (size_t i = 0; i < count; ++i) slot.pids[have + i] = pids[i];
  slot.pid_count.store(static_cast<int32_t>(have + count), std::memory_order_release);
  return ACL_SUCCESS;
}

aclError aclrtMemImportFromShareableHandle(uint64_t shareable, int32_t device_id, aclrtDrvMemHandle* handle) {
  if (!handle) throw Error(ACL_ERROR_INVALID_PARAM, "handle is null");
  Device& on = device(device_id);
  const uint64_t pid = shareable >> 32;
  const auto index = static_cast<uint32_t>(shareable & 0xFFF);
  const int table = open_of(pid, shareable >> 12 & 0xFFFFF);
  Slot* slots = map_slots(table, PROT_READ);
  ::close(table);
  if (!slots || index >= kSlots) throw Error(ACL_ERROR_RT_INVALID_HANDLE, "the shareable handle is damaged");
  const Slot& slot = slots[index];
  bool allowed = slot.used.load(std::memory_order_acquire) && slot.any_process;
  for (int i = 0; !allowed && i < slot.pid_count.load(std::memory_order_acquire); ++i)
    allowed = slot.pids[i] == ::getpid();
  const uint64_t size = slot.size, offset = slot.offset;
  const int file = slot.file;
  ::munmap(slots, sizeof(Slot) * kSlots);
  if (!allowed)
    throw Error(ACL_ERROR_RT_NO_PERMISSION, format("process %llu does not share that memory with process %d",
                                                   static_cast<unsigned long long>(pid), ::getpid()));
  *handle = &make_physical(on, size, offset, open_of(pid, static_cast<uint64_t>(file)), true);
  return ACL_SUCCESS;
}

// ---- device binaries

aclError aclrtBinaryLoadFromData(const void* data, size_t length, const aclrtBinaryLoadOptions*,
                                 aclrtBinHandle* handle) {
  if (!data || length == 0 || !handle) throw Error(ACL_ERROR_INVALID_PARAM, "a pointer is null or the length is 0");
  throw Error(ACL_ERROR_RT_FEATURE_NOT_SUPPORT, "the simulated device has no AI cores that could run a device binary");
}

aclError aclrtBinaryGetFunction(const aclrtBinHandle binary, const char* name, aclrtFuncHandle* function) {
  if (!binary || !name || !function) throw Error(ACL_ERROR_INVALID_PARAM, "a pointer is null");
  throw Error(ACL_ERROR_RT_FEATURE_NOT_SUPPORT, "the simulated device has no AI cores that could run a device binary");
}

aclError aclrtGetFunctionAddr(aclrtFuncHandle function, void** aic, void** aiv) {
  if (!function || !aic || !aiv) throw Error(ACL_ERROR_INVALID_PARAM, "a pointer is null");
  throw Error(ACL_ERROR_RT_FEATURE_NOT_SUPPORT, "the simulated device has no AI cores that could run a device binary");
}

}  // namespace acl_sim::api
