#include "slot.h"

#include "guard.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstring>
#include <ctime>
#include <new>
#include <utility>

namespace hccl_sim {
namespace {

constexpr size_t kLine = 64;

size_t round_up(size_t size, size_t unit) { return (size + unit - 1) / unit * unit; }
size_t counts_bytes(size_t n) { return round_up(4 * n * sizeof(uint64_t), kLine); }

}  // namespace

size_t Slot::bytes_for(size_t n) {
  return round_up(sizeof(Slot) + counts_bytes(n) + n * sizeof(Letter) + n * sizeof(std::atomic<uint64_t>), 4096);
}

uint64_t* Slot::counts(size_t parity, size_t n) {
  return reinterpret_cast<uint64_t*>(reinterpret_cast<char*>(this) + sizeof(Slot)) + parity * 2 * n;
}

Letter& Slot::letter_to(size_t rank, size_t n) {
  return reinterpret_cast<Letter*>(reinterpret_cast<char*>(this) + sizeof(Slot) + counts_bytes(n))[rank];
}

std::atomic<uint64_t>& Slot::taken_of(size_t rank, size_t n) {
  return reinterpret_cast<std::atomic<uint64_t>*>(reinterpret_cast<char*>(&letter_to(0, n)) + n * sizeof(Letter))[rank];
}

void Slot::ring() {
  bell.fetch_add(1, std::memory_order_seq_cst);
  if (sleepers.load(std::memory_order_seq_cst) > 0) {
    ::syscall(SYS_futex, reinterpret_cast<uint32_t*>(&bell), FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
  }
}

void Slot::sleep(uint32_t seen, int ms) {
  const timespec most{ms / 1000, (ms % 1000) * 1000000L};
  sleepers.fetch_add(1, std::memory_order_seq_cst);
  ::syscall(SYS_futex, reinterpret_cast<uint32_t*>(&bell), FUTEX_WAIT, seen, &most, nullptr, 0);
  sleepers.fetch_sub(1, std::memory_order_seq_cst);
}

Mapping::Mapping(int pid, int file, size_t bytes) : bytes_(bytes) {
  const std::string path = pid ? format("/proc/%d/fd/%d", pid, file) : format("/proc/self/fd/%d", file);
  const int opened = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (opened < 0)
    throw Error(HCCL_E_MEMORY, format("the memory of process %d cannot be opened: %s", pid, std::strerror(errno)));
  void* at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, opened, 0);
  const int problem = errno;
  ::close(opened);
  if (at == MAP_FAILED)
    throw Error(HCCL_E_MEMORY,
                format("%zu MiB of process %d cannot be mapped: %s", bytes >> 20, pid, std::strerror(problem)));
  data_ = static_cast<char*>(at);
  // A forked child must not write into what its parent shares.
  ::madvise(at, bytes, MADV_DONTFORK);
}

Mapping::Mapping(Mapping&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

Mapping& Mapping::operator=(Mapping&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

Mapping::~Mapping() {
  if (data_) ::munmap(data_, bytes_);
}

}  // namespace hccl_sim
