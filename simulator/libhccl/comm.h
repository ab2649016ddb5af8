#pragma once
// A communicator: this rank, its peers, and the operations that wait for them.
//
// Note [Order of operations]
// The operations of a communicator run one after another in the order of the calls, whatever their streams: each waits
// for its turn. So they meet those of the other ranks in the same order, as HCCL demands of its callers.
//
// Note [Failure]
// The first failure ends a communicator: its reason is shown to the peers (in the slot, or as a post over the socket),
// operations that wait and those that come later fail with it. Streams go on behind the failed operation; the runtime
// hands the reason to whoever waits for them.

#include <acl/acl.h>
#include <acl/acl_simulator_extension.h>
#include <hccl/hccl.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "meeting.h"
#include "net.h"
#include "slot.h"

namespace hccl_sim {

struct Operation;

struct Peer {
  Member member{};
  bool local = false;  // on this host: its memory is mapped
  Mapping slot_memory, device_memory;
  Slot* slot = nullptr;
  char* base = nullptr;             // of its device memory, where this process has it
  int process = -1;                 // pidfd, readable when the process has ended
  Socket socket;                    // to a peer on another host
  uint64_t sent = 0, received = 0;  // messages between the two, by point-to-point operations
};

class Comm : public std::enable_shared_from_this<Comm> {
 public:
  static std::shared_ptr<Comm> make(uint32_t ranks, const HcclRootInfo& root, uint32_t rank);
  ~Comm();
  Comm(const Comm&) = delete;
  Comm& operator=(const Comm&) = delete;

  uint32_t rank() const { return rank_; }
  uint32_t size() const { return static_cast<uint32_t>(peers_.size()); }
  const std::string& name() const { return name_; }

  // Puts an operation on a stream.
  void launch(std::unique_ptr<Operation> operation, aclrtStream stream);
  // The text for errors of the next operation that is launched.
  void describe(const char* text);
  // Fails what runs and what is to come.
  void abort(const std::string& reason);
  // Shows peers on other hosts, which wait for this operation, why it does not come.
  void tell_remote(const Operation& operation, const std::string& reason);
  // The reason of the failure, and its code; HCCL_SUCCESS while there is none.
  HcclResult failure(std::string* reason) const;
  // One line for each rank: what it has posted and finished last.
  std::string state() const;
  // Waits for what has been launched.
  void drain();

  // ---- for the algorithms (operation.h), on the stream's thread
  Peer& peer(uint32_t rank) { return peers_[rank]; }
  Slot& own_slot() { return *peers_[rank_].slot; }
  const std::vector<uint32_t>& local_ranks() const { return local_ranks_; }    // this one among them, ascending
  const std::vector<uint32_t>& remote_ranks() const { return remote_ranks_; }  // ascending
  uint64_t next_number() { return ++number_; }
  // Whether operation `order` is the next to run; only then may it ask the following.
  bool has_turn(uint64_t order) const;
  // Whether all ranks but this one have posted the collective that has the last number.
  bool others_have_arrived() const;
  bool crowded() const { return crowded_; }
  // Whether the wait is to end: throws what ended it. `deadline` is of the operation.
  void check(const aclsimTask* task, Deadline deadline, const Operation& operation);
  // Waits until done() or throws. Looks at `whom`'s bell.
  template <class Done>
  void wait(Peer& whom, const aclsimTask* task, Deadline deadline, const Operation& operation, Done&& done);
  Deadline operation_deadline() const;

 private:
  friend aclError run_operation(void* data, const aclsimTask* task, char* reason, size_t length);
  Comm(uint32_t ranks, uint32_t rank, Settings settings);
  void connect(const HcclRootInfo& root);
  void open_peers(const std::vector<Member>& members, const Listener& listener, const Root& root);
  void take_turn(uint64_t order, const aclsimTask* task);
  void end_turn();
  void fail(HcclResult code, const std::string& reason);
  std::string missing(const Operation& operation) const;

  const uint32_t rank_;
  const Settings settings_;
  std::string name_;
  std::vector<Peer> peers_;
  std::vector<uint32_t> local_ranks_, remote_ranks_;
  bool crowded_ = false, shares_cores_ = false;
  int slot_file_ = -1;
  uint64_t number_ = 0;  // of the last collective that ran

  std::mutex launch_mutex_;  // taken before mutex_
  mutable std::mutex mutex_;
  std::condition_variable turn_;
  uint64_t launched_ = 0, finished_ = 0;
  std::string next_note_;
  std::atomic<bool> failed_{false};
  HcclResult failure_code_ = HCCL_SUCCESS;
  std::string failure_reason_;
};

// Short of an error: the process ends, the stream is aborted.
struct Stopped {};

inline void relax() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#endif
}

template <class Done>
void Comm::wait(Peer& whom, const aclsimTask* task, Deadline deadline, const Operation& operation, Done&& done) {
  // Peers of a training step come within microseconds of each other where each has a core; else the core is theirs.
  const int spins = crowded_ ? 16 : 2000;
  for (int i = 0; i < spins; ++i) {
    if (done()) return;
    relax();
  }
  for (;;) {
    const uint32_t seen = whom.slot->bell.load(std::memory_order_seq_cst);
    if (done()) return;
    whom.slot->sleep(seen, 50);
    if (done()) return;
    check(task, deadline, operation);
  }
}

// The communicator of a handle. Throws Error(HCCL_E_PARA).
std::shared_ptr<Comm> comm_of(HcclComm handle);
HcclComm register_comm(std::shared_ptr<Comm> comm);
std::shared_ptr<Comm> forget_comm(HcclComm handle);

}  // namespace hccl_sim
