#include "core/device.h"

#include "core/config.h"
#include "core/error.h"
#include "core/log.h"
#include "core/process.h"
#include "core/thread_local.h"

#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

namespace acl_sim {
namespace {

constexpr size_t kPage = 4096;
constexpr size_t kHugePage = size_t{2} << 20;
constexpr int kMaxDevices = 64;

size_t round_up(size_t size, size_t unit) { return (size + unit - 1) / unit * unit; }

// Small blocks take pages, large ones huge pages, as a card's do.
size_t block_size(size_t size) { return round_up(size, size < (size_t{1} << 20) ? kPage : kHugePage); }

// See Note [Two mappings]. Offsets below file_bytes are the file's own addresses, the rest is for reserved ones.
struct Windows {
  char* handed_out = nullptr;
  char* aliases = nullptr;
  size_t file_bytes = 0;
  size_t window_bytes = 0;
};

char* reserve_addresses(size_t size) {
  void* at = ::mmap(nullptr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) {
    throw Error(
        ACL_ERROR_RT_MEMORY_ALLOCATION,
        format("cannot reserve %zu GiB of addresses for the simulated devices (%s); is 'ulimit -v' set? A lower "
               "ASCEND_SIM_MEMORY or ASCEND_SIM_DEVICE_COUNT needs less",
               size >> 30, std::strerror(errno)));
  }
  return static_cast<char*>(at);
}

const Windows& windows() {
  static const Windows* value = [] {
    auto* w = new Windows;
    w->file_bytes = round_up(config().memory, kHugePage) * 4;
    w->window_bytes = w->file_bytes * 2;
    const size_t all = w->window_bytes * config().visible.size();
    // One reservation for both halves, so that a failure leaves none behind.
    w->handed_out = reserve_addresses(all * 2);
    w->aliases = w->handed_out + all;
    return w;
  }();
  return *value;
}

std::atomic<Device*> devices[kMaxDevices];
std::mutex opening;

}  // namespace

int device_count() { return static_cast<int>(config().visible.size()); }

Device& device(int logical_id) {
  if (logical_id < 0 || logical_id >= device_count()) {
    throw Error(ACL_ERROR_RT_INVALID_DEVICEID,
                format("device %d does not exist: there are %d (ASCEND_SIM_DEVICE_COUNT, ASCEND_RT_VISIBLE_DEVICES)",
                       logical_id, device_count()));
  }
  auto& slot = devices[logical_id];
  if (Device* d = slot.load(std::memory_order_acquire)) return *d;
  std::lock_guard<std::mutex> lock(opening);
  if (!slot.load(std::memory_order_relaxed)) {
    check_config();
    slot.store(new Device(logical_id), std::memory_order_release);
    mark_in_use();
  }
  return *slot.load(std::memory_order_relaxed);
}

Device* opened_device(int logical_id) {
  return logical_id >= 0 && logical_id < device_count() ? devices[logical_id].load(std::memory_order_acquire) : nullptr;
}

int device_number_of(const void* pointer) {
  if (!in_use()) return -1;  // nothing has been handed out, so the windows need not exist
  const auto& w = windows();
  const auto offset = static_cast<size_t>(static_cast<const char*>(pointer) - w.handed_out);
  return offset < w.window_bytes * config().visible.size() ? static_cast<int>(offset / w.window_bytes) : -1;
}

Device* device_of_alias(const void* alias) {
  if (!in_use()) return nullptr;
  const auto& w = windows();
  const auto offset = static_cast<size_t>(static_cast<const char*>(alias) - w.aliases);
  return offset < w.window_bytes * config().visible.size() ? opened_device(static_cast<int>(offset / w.window_bytes))
                                                           : nullptr;
}

Device::Device(int logical_id)
    : id(logical_id),
      ledger_(config().visible[static_cast<size_t>(logical_id)], config().memory),
      window_(windows().handed_out + windows().window_bytes * static_cast<size_t>(logical_id)),
      distance_(windows().aliases - windows().handed_out),
      window_bytes_(windows().window_bytes),
      file_bytes_(windows().file_bytes),
      file_ranges_(0, windows().file_bytes),
      address_ranges_(windows().file_bytes, windows().window_bytes) {
  file_ = ::memfd_create("ascend_sim", MFD_CLOEXEC);
  const bool good =
      file_ >= 0 && ::ftruncate(file_, static_cast<off_t>(file_bytes_)) == 0 &&
      ::mmap(window_, file_bytes_, PROT_NONE, MAP_SHARED | MAP_FIXED | MAP_NORESERVE, file_, 0) != MAP_FAILED &&
      ::mmap(alias_base(), file_bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED | MAP_NORESERVE, file_, 0) !=
          MAP_FAILED;
  if (!good) {
    const int reason = errno;
    if (file_ >= 0) ::close(file_);
    const char* limit = reason == EFBIG    ? "; 'ulimit -f' is too low for it, or ASCEND_SIM_MEMORY too high"
                        : reason == EMFILE ? "; 'ulimit -n' is too low"
                                           : "";
    throw Error(ACL_ERROR_RT_DEV_SETUP_ERROR,
                format("cannot make the memory of simulated device %d, a file of %zu MiB: %s%s", id, file_bytes_ >> 20,
                       std::strerror(reason), limit));
  }
  // A forked child must not write into its parent's device.
  ::madvise(alias_base(), file_bytes_, MADV_DONTFORK);
  if (log_enabled(LogLevel::Event)) {
    log_line(LogLevel::Event, "RUNTIME", __FILE__, __LINE__,
             format("simulated device %d is open, %zu MiB", id, config().memory >> 20));
  }
}

void Device::count(size_t size) {
  const size_t bound = config().memory;
  if (size > bound || used_ > bound - size || !ledger_.take(size)) {
    const size_t all = ledger_.used();
    throw Error(ACL_ERROR_RT_MEMORY_ALLOCATION,
                format("device %d is out of memory: %zu bytes asked for, %zu of %zu are free%s", id, size,
                       all < bound ? bound - all : 0, bound, ledger_.others().c_str()));
  }
  used_ += size;
  if (used_ > peak_) peak_ = used_;
}

void Device::discount(size_t size) {
  used_ -= size;
  ledger_.give(size);
}

void Device::punch(size_t offset, size_t size) {
  // Gives the pages back to the host; the mappings stay and read as zero.
  ::fallocate(file_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset), static_cast<off_t>(size));
}

size_t Device::take_physical(size_t size) {
  std::lock_guard<std::mutex> lock(mutex_);
  count(size);
  const auto at = file_ranges_.take(size);
  if (!at) {
    discount(size);
    throw Error(ACL_ERROR_RT_MEMORY_ALLOCATION, format("device %d has no run of %zu free bytes", id, size));
  }
  return *at;
}

void Device::give_physical(size_t offset, size_t size) {
  std::lock_guard<std::mutex> lock(mutex_);
  punch(offset, size);
  file_ranges_.give(offset, size);
  discount(size);
}

void* Device::malloc(size_t size) {
  const size_t whole = block_size(size);
  const size_t at = take_physical(whole);
  std::lock_guard<std::mutex> lock(mutex_);
  blocks_.emplace(at, whole);
  return window_ + at;
}

bool Device::free(void* pointer) {
  std::lock_guard<std::mutex> lock(mutex_);
  auto found =
      in_window(pointer) ? blocks_.find(static_cast<size_t>(static_cast<char*>(pointer) - window_)) : blocks_.end();
  if (found == blocks_.end()) return false;
  shrinks_.fetch_add(1, std::memory_order_acq_rel);
  punch(found->first, found->second);
  file_ranges_.give(found->first, found->second);
  discount(found->second);
  blocks_.erase(found);
  return true;
}

void Device::free_all() {
  std::lock_guard<std::mutex> lock(mutex_);
  shrinks_.fetch_add(1, std::memory_order_acq_rel);
  for (const auto& [at, size] : blocks_) {
    punch(at, size);
    file_ranges_.give(at, size);
    discount(size);
  }
  blocks_.clear();
}

bool Device::contains(const void* pointer, size_t size) {
  // Copies come from the same few blocks again and again.
  struct Last {
    const Device* device;
    uint64_t shrinks;
    size_t begin, end;
  };
  static SIM_THREAD_LOCAL Last last = {};
  if (!in_window(pointer)) return false;
  const auto at = static_cast<size_t>(static_cast<const char*>(pointer) - window_);
  const uint64_t now = shrinks();
  if (last.device == this && last.shrinks == now && at >= last.begin && at <= last.end && size <= last.end - at)
    return true;
  size_t begin = 0, end = 0;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!find_range(at, size, &begin, &end)) return false;
  }
  last = {this, now, begin, end};
  return true;
}

bool Device::find_range(size_t at, size_t size, size_t* begin, size_t* end) {
  if (at < file_bytes_) {
    auto next = blocks_.upper_bound(at);
    if (next == blocks_.begin()) return false;
    const auto& [start, length] = *std::prev(next);
    *begin = start;
    *end = start + length;
    return at - start <= length && size <= length - (at - start);
  }
  // Neighbouring mappings form one address range, as expandable segments use them.
  auto next = reserved_.upper_bound(at);
  if (next == reserved_.begin()) return false;
  *begin = *end = at;
  for (auto it = std::prev(next); it != reserved_.end() && it->first <= *end; ++it) {
    if (!it->second.mapped) return false;
    *end = it->first + it->second.mapped_size;
    if (*end >= at + size) return true;
  }
  return false;
}

void Device::memory_info(size_t* free, size_t* total, size_t* peak) {
  std::lock_guard<std::mutex> lock(mutex_);
  *total = config().memory;
  const size_t all = ledger_.used();
  *free = all < config().memory ? config().memory - all : 0;
  if (peak) *peak = peak_;
}

void* Device::reserve(size_t size, void* expected) {
  const size_t whole = round_up(size, kHugePage);
  std::lock_guard<std::mutex> lock(mutex_);
  if (expected && in_window(expected)) {
    const auto wanted = static_cast<size_t>(static_cast<char*>(expected) - window_);
    if (wanted >= file_bytes_ && address_ranges_.take_at(wanted, whole)) {
      reserved_[wanted].size = whole;
      return expected;
    }
  }
  const auto at = address_ranges_.take(whole);
  if (!at) throw Error(ACL_ERROR_RT_MEMORY_ALLOCATION, format("device %d has no run of %zu free addresses", id, whole));
  reserved_[*at].size = whole;
  return window_ + *at;
}

// A reservation that was mapped in pieces is several entries that adjoin; releasing its start releases all of them.
bool Device::release(void* pointer) {
  std::lock_guard<std::mutex> lock(mutex_);
  auto found =
      in_window(pointer) ? reserved_.find(static_cast<size_t>(static_cast<char*>(pointer) - window_)) : reserved_.end();
  if (found == reserved_.end() || found->second.size == 0) return false;
  const size_t begin = found->first, size = found->second.size;
  for (auto it = found; it != reserved_.end() && it->first < begin + size; ++it) {
    if (it->second.mapped) return false;
  }
  reserved_.erase(found, reserved_.lower_bound(begin + size));
  address_ranges_.give(begin, size);
  return true;
}

void Device::map(void* pointer, size_t size, int file, size_t offset) {
  std::lock_guard<std::mutex> lock(mutex_);
  const auto at = static_cast<size_t>(static_cast<char*>(pointer) - window_);
  auto next = reserved_.upper_bound(at);
  auto owner = next;
  bool inside = false;
  while (owner != reserved_.begin() && !inside) {
    --owner;
    if (owner->second.size) {
      inside = at + size <= owner->first + owner->second.size;
      break;
    }
  }
  if (!in_window(pointer) || !inside) {
    throw Error(ACL_ERROR_RT_PARAM_INVALID,
                format("[%p, +%zu) is not inside one reserved range of device %d", pointer, size, id));
  }
  auto previous = std::prev(next);
  if ((previous->second.mapped && previous->first + previous->second.mapped_size > at) ||
      (next != reserved_.end() && next->second.mapped && next->first < at + size)) {
    throw Error(ACL_ERROR_RT_PARAM_INVALID, format("[%p, +%zu) of device %d is mapped already", pointer, size, id));
  }
  if (::mmap(alias(pointer), size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED | MAP_NORESERVE, file,
             static_cast<off_t>(offset)) == MAP_FAILED) {
    throw Error(ACL_ERROR_RT_MEMORY_ALLOCATION,
                format("cannot map %zu bytes of device %d: %s", size, id, std::strerror(errno)));
  }
  ::madvise(alias(pointer), size, MADV_DONTFORK);
  auto& piece = reserved_[at];
  piece.mapped = true;
  piece.mapped_size = size;
}

bool Device::unmap(void* pointer) {
  std::lock_guard<std::mutex> lock(mutex_);
  auto found =
      in_window(pointer) ? reserved_.find(static_cast<size_t>(static_cast<char*>(pointer) - window_)) : reserved_.end();
  if (found == reserved_.end() || !found->second.mapped) return false;
  shrinks_.fetch_add(1, std::memory_order_acq_rel);
  constexpr int kReserved = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE;
  if (::mmap(alias(pointer), found->second.mapped_size, PROT_NONE, kReserved, -1, 0) == MAP_FAILED) return false;
  found->second.mapped = false;
  if (found->second.size == 0) reserved_.erase(found);
  return true;
}

}  // namespace acl_sim
