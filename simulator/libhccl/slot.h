#pragma once
// What a rank shows to the others of its host: one memfd for each communicator and rank, which the others map.
//
// Note [Slots]
// Only its owner writes into a slot, but for `sleepers`. A collective has a number, the same on every rank. A rank
// posts what it is about to do under its number (Post, in the place of the number's parity), then raises `arrived`, and
// waits until all have arrived: so each sees what each does before anybody touches data, and a mismatch is found on all
// ranks. As nobody passes operation k + 1 before all have arrived there, nobody can still look at the post of k when k
// + 2 is posted. What is small travels in the post itself, and needs no more: `filled` says how much of it is there, so
// that others wake up and take the first of it while the rest is written. If the stream is idle the thread that calls
// posts it, and where the others' posts are there finishes it: no other thread has to wake. Otherwise ranks read and
// write each other's device memory, and wait until all have raised `left` before their stream goes on. A change is
// followed by ring(): whoever waits sleeps on `bell`.
// The device may store elements in another order than the host's. A reduction in place does not mind, if it is the same
// order on all ranks; else each puts its elements right and raises `plain`, and all wait for that.

#include <hccl/hccl_types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace hccl_sim {

// Room for what travels in a post, and how much of it ranks use that all give something: copying that there takes less
// than the second meeting that it saves. Where one rank alone gives, the others take at the same time.
constexpr size_t kPayload = size_t{1} << 20;
constexpr size_t kPayloadOfAll = kPayload / 2;
constexpr size_t kChunk = 65536;  // bytes that are written before others hear of them
constexpr size_t kNote = 512;     // bytes of the text that describes an operation for errors
constexpr size_t kLetter = 4096;  // bytes of a message that need not wait for its receiver

enum class Kind : uint32_t {
  AllReduce,
  Broadcast,
  AllGather,
  ReduceScatter,
  Reduce,
  Scatter,
  AlltoAll,
  AlltoAllV,
  Barrier,
  BatchSendRecv,
  Send,
  Recv
};

// What an operation is; compared between ranks, also over sockets.
struct Post {
  uint64_t number;
  Kind kind;
  HcclDataType type;
  HcclReduceOp op;
  uint32_t root;
  uint64_t count;
  uint64_t send_offset, recv_offset;  // in the file of the rank's device
  uint64_t layout;                    // the order in which the elements lie, 0: that of the host
  uint64_t failed;                    // over a socket: the sender gives up, the note says why
  char note[kNote];
};

// A message to one rank.
struct Letter {
  std::atomic<uint64_t> posted;  // number of the last message
  uint64_t offset;
  uint64_t bytes;
  HcclDataType type;
  uint32_t inside;  // the content lies in `content`
  char note[kNote];
  alignas(64) char content[kLetter];
};

struct Slot {
  alignas(64) std::atomic<uint32_t> bell;
  std::atomic<uint32_t> sleepers;
  alignas(64) std::atomic<uint64_t> arrived;
  std::atomic<uint64_t> plain;  // the last operation before which elements were put into the host's order
  std::atomic<uint64_t> left;
  std::atomic<uint32_t> failed;
  char reason[2048];
  alignas(64) Post posts[2];
  std::atomic<uint64_t> filled[2];  // bytes of each payload that are there
  alignas(64) char payloads[2][kPayload];

  // Behind it, for n ranks: counts and displacements of both posts in bytes, the letters to each rank, and how many
  // letters of each rank have been taken.
  static size_t bytes_for(size_t n);
  uint64_t* counts(size_t parity, size_t n);
  uint64_t* displacements(size_t parity, size_t n) { return counts(parity, n) + n; }
  Letter& letter_to(size_t rank, size_t n);
  std::atomic<uint64_t>& taken_of(size_t rank, size_t n);

  // Tells who waits that something has changed.
  void ring();
  // Sleeps until the bell differs from `seen`, or for `ms` milliseconds.
  void sleep(uint32_t seen, int ms);
};

// Memory of this or another process, mapped as long as the object lives.
class Mapping {
 public:
  Mapping() = default;
  // Throws Error(HCCL_E_MEMORY). With pid 0 `file` is this process's own.
  Mapping(int pid, int file, size_t bytes);
  Mapping(Mapping&& other) noexcept;
  Mapping& operator=(Mapping&& other) noexcept;
  ~Mapping();
  char* data() const { return data_; }

 private:
  char* data_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace hccl_sim
