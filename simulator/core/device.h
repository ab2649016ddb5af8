#pragma once
// One simulated device: its memory and what it counts.
//
// Note [Two mappings]
// A device's memory is a memfd. The addresses that callers get lie in the *window*, where the file is mapped PROT_NONE:
// a host that dereferences them crashes, as it would on a card. The device itself reads and writes through the *alias*,
// a readable mapping at a fixed distance, so that translating an address is one addition. The windows of all devices
// are one reservation, so that finding the device of an address is one division. The file is sparse and larger than
// the device: what is used is bounded by a counter (Note [Shared bound]), and fragments never make an allocation fail
// that would fit.

#include <acl/acl.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>

#include "core/ledger.h"
#include "core/ranges.h"

namespace [[gnu::visibility("hidden")]] acl_sim {

struct Context;
struct Stream;
class LayoutMap;

struct Counters {
  std::atomic<uint64_t> copies[3][2] = {};  // [host to device, device to host, device to device][count, bytes]
  std::atomic<uint64_t> ops_launched{0}, ops_run_by_caller{0}, ops_compiled{0}, relayouts{0};
  // Of workers, on what has ended; tiny tasks, which mostly callers run, are not timed.
  std::atomic<uint64_t> busy_ns{0};
  // Operators that ran at once are counted by their stream, see direct_ops_of(); what they were at the last reset.
  std::atomic<uint64_t> direct_ops_of_old_streams{0}, direct_ops_before{0};
};

enum CopyRoute { kHostToDevice = 0, kDeviceToHost = 1, kDeviceToDevice = 2 };

class Device {
 public:
  explicit Device(int logical_id);

  // Throws Error with ACL's code when the bound or the host refuses.
  void* malloc(size_t size);
  // False if `pointer` is not the start of a live block.
  bool free(void* pointer);
  void free_all();
  // Whether [pointer, pointer + size) lies inside one live block or mapping.
  bool contains(const void* pointer, size_t size);
  // Grows whenever memory that was valid ceases to be: a range found before is valid as long as it has not.
  uint64_t shrinks() const { return shrinks_.load(std::memory_order_acquire); }
  void memory_info(size_t* free, size_t* total, size_t* peak);
  // Whole pages of the file without an address, for aclrtMallocPhysical; counted against the bound.
  size_t take_physical(size_t size);
  void give_physical(size_t offset, size_t size);

  // Addresses without memory, for aclrtReserveMemAddress and what is mapped there.
  void* reserve(size_t size, void* expected);
  bool release(void* pointer);
  void map(void* pointer, size_t size, int file, size_t offset);
  bool unmap(void* pointer);

  char* alias(const void* pointer) const { return static_cast<char*>(const_cast<void*>(pointer)) + distance_; }
  void* window_address(const void* alias) const { return static_cast<char*>(const_cast<void*>(alias)) - distance_; }
  bool in_window(const void* pointer) const {
    return static_cast<size_t>(static_cast<const char*>(pointer) - window_) < window_bytes_;
  }
  bool in_alias(const void* pointer) const {
    return static_cast<size_t>(static_cast<const char*>(pointer) - window_ - distance_) < window_bytes_;
  }
  char* alias_base() const { return window_ + distance_; }
  size_t window_bytes() const { return window_bytes_; }
  int file() const { return file_; }

  const int id;
  Counters counters;
  std::atomic<bool> lost{false};            // by a fault; aclrtResetDevice brings it back
  std::atomic<bool> watches_floats{false};  // see Note [Float status]
  std::atomic<bool> saturates{false};       // of streams made from now on
  std::atomic<uint32_t> float_status{0};
  std::atomic<uint32_t> underflows{0};  // see Note [Underflow]
  void clear_float_status() {
    float_status.store(0, std::memory_order_relaxed);
    underflows.store(0, std::memory_order_relaxed);
  }
  std::atomic<LayoutMap*> layout{nullptr};  // how its tensors are stored, see exec/layout/layout.h; made at first need

 private:
  struct Reservation {
    size_t size = 0;
    bool mapped = false;
    size_t mapped_size = 0;
  };
  // Both need mutex_.
  void count(size_t size);
  void discount(size_t size);
  void punch(size_t offset, size_t size);

  Ledger ledger_;
  char* window_;
  ptrdiff_t distance_;
  size_t window_bytes_;
  size_t file_bytes_;
  int file_ = -1;

  bool find_range(size_t at, size_t size, size_t* begin, size_t* end);

  std::atomic<uint64_t> shrinks_{0};
  std::mutex mutex_;
  Ranges file_ranges_;
  Ranges address_ranges_;            // window offsets behind the file's
  std::map<size_t, size_t> blocks_;  // window offset -> size
  std::map<size_t, Reservation> reserved_;
  size_t used_ = 0, peak_ = 0;  // of this process
};

// The device that owns an address of the windows, opened or not, as a logical number; -1 for host memory.
int device_number_of(const void* pointer);
// The device of a number, made at its first use. Throws Error(ACL_ERROR_RT_INVALID_DEVICEID).
Device& device(int logical_id);
// The device if it has been used, else nullptr.
Device* opened_device(int logical_id);
int device_count();
// The device an alias address lies in, or nullptr.
Device* device_of_alias(const void* alias);

}  // namespace acl_sim
