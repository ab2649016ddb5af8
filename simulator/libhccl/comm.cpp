#include "comm.h"

#include "acl_functions.h"
#include "guard.h"
#include "operation.h"

#include <poll.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <set>

namespace hccl_sim {
namespace {

// The first message over a connection between two ranks.
struct Greeting {
  uint8_t nonce[16];
  uint32_t rank;
};

struct Registry {
  std::mutex mutex;
  std::set<std::shared_ptr<Comm>> comms;
};

Registry& registry() {
  static auto* value = new Registry;  // threads may call in while the process ends
  return *value;
}

// Communicators with other processes of this host; the first that is made says how many share the cores.
std::atomic<int> sharing{0};

int cores() {
  cpu_set_t own;
  return ::sched_getaffinity(0, sizeof(own), &own) == 0 ? CPU_COUNT(&own) : 1;
}

void copy_text(char* to, size_t room, const std::string& text) {
  std::strncpy(to, text.c_str(), room - 1);
  to[room - 1] = '\0';
}

}  // namespace

std::shared_ptr<Comm> comm_of(HcclComm handle) {
  auto& r = registry();
  std::lock_guard<std::mutex> lock(r.mutex);
  for (const auto& comm : r.comms) {
    if (comm.get() == handle) return comm;
  }
  throw Error(handle ? HCCL_E_PARA : HCCL_E_PTR, format("%p is no communicator", handle));
}

HcclComm register_comm(std::shared_ptr<Comm> comm) {
  auto& r = registry();
  std::lock_guard<std::mutex> lock(r.mutex);
  Comm* handle = comm.get();
  r.comms.insert(std::move(comm));
  return handle;
}

std::shared_ptr<Comm> forget_comm(HcclComm handle) {
  auto comm = comm_of(handle);
  auto& r = registry();
  std::lock_guard<std::mutex> lock(r.mutex);
  r.comms.erase(comm);
  return comm;
}

// ---- making one

Comm::Comm(uint32_t ranks, uint32_t rank, Settings settings)
    : rank_(rank), settings_(std::move(settings)), peers_(ranks) {}

std::shared_ptr<Comm> Comm::make(uint32_t ranks, const HcclRootInfo& root, uint32_t rank) {
  if (ranks == 0 || ranks > 4096) throw Error(HCCL_E_PARA, format("a communicator of %u ranks is refused", ranks));
  if (rank >= ranks) throw Error(HCCL_E_PARA, format("rank %u is out of range: there are %u ranks", rank, ranks));
  std::shared_ptr<Comm> comm(new Comm(ranks, rank, read_settings()));
  comm->connect(root);
  return comm;
}

void Comm::connect(const HcclRootInfo& info) {
  const Root root = root_of(info);
  for (size_t i = 0; i < 8; ++i) name_ += format("%02x", root.nonce[i]);
  name_ = "hccl_" + name_;

  int32_t logical = 0;
  aclsimMemory memory{};
  if (aclrtGetDevice(&logical) != ACL_SUCCESS || aclsimFindDevice(logical, &memory) != ACL_SUCCESS) {
    const char* why = aclGetRecentErrMsg();
    throw Error(HCCL_E_RUNTIME, why ? why : "this thread has no device; call aclrtSetDevice first");
  }
  const size_t slot_bytes = Slot::bytes_for(peers_.size());
  slot_file_ = ::memfd_create("ascend_sim_hccl", MFD_CLOEXEC);
  if (slot_file_ < 0 || ::ftruncate(slot_file_, static_cast<off_t>(slot_bytes)) != 0)
    throw Error(HCCL_E_MEMORY, format("no memory for the communicator: %s", std::strerror(errno)));

  const Listener listener = listen_on(settings_.address);
  Member self{};
  self.rank = rank_;
  self.ranks = size();
  self.pid = ::getpid();
  self.device = memory.device;
  self.memory_file = memory.file;
  self.memory_bytes = memory.file_bytes;
  self.slot_file = slot_file_;
  self.slot_bytes = slot_bytes;
  copy_text(self.host, sizeof(self.host), settings_.host);
  copy_text(self.address, sizeof(self.address), settings_.address);
  self.port = listener.port;

  Meeting meeting;
  const auto members = meeting.join(root, self, settings_);
  try {
    open_peers(members, listener, root);
  } catch (const Error& error) {
    meeting.agree(error.what());
    throw;
  }
  peers_[rank_].base = static_cast<char*>(memory.alias);
  meeting.agree("");
}

void Comm::open_peers(const std::vector<Member>& members, const Listener& listener, const Root& root) {
  const Deadline end = Clock::now() + std::chrono::seconds(settings_.connect_timeout);
  for (uint32_t rank = 0; rank < size(); ++rank) {
    Peer& peer = peers_[rank];
    peer.member = members[rank];
    peer.local = std::strcmp(peer.member.host, members[rank_].host) == 0;
    (peer.local ? local_ranks_ : remote_ranks_).push_back(rank);
    if (peer.local) {
      peer.slot_memory = Mapping(peer.member.pid, peer.member.slot_file, peer.member.slot_bytes);
      peer.slot = reinterpret_cast<Slot*>(peer.slot_memory.data());
      if (rank == rank_) continue;
      peer.device_memory = Mapping(peer.member.pid, peer.member.memory_file, peer.member.memory_bytes);
      peer.base = peer.device_memory.data();
      if (peer.member.pid != ::getpid()) peer.process = static_cast<int>(::syscall(SYS_pidfd_open, peer.member.pid, 0));
    } else if (rank < rank_) {
      const std::string name = format("rank %u", rank);
      peer.socket = connect_to(peer.member.address, peer.member.port, end, name);
      Greeting greeting{};
      std::memcpy(greeting.nonce, root.nonce, sizeof(root.nonce));
      greeting.rank = rank_;
      peer.socket.send(&greeting, sizeof(greeting), end, name);
    }
  }
  crowded_ = static_cast<int>(local_ranks_.size()) > cores();
  std::set<int> processes;
  for (const uint32_t rank : local_ranks_) processes.insert(peers_[rank].member.pid);
  if (processes.size() > 1) {
    // Its teams, each as large as the machine, would keep each other from the cores.
    shares_cores_ = true;
    if (sharing.fetch_add(1) == 0) aclsimShareCores(static_cast<int32_t>(processes.size()));
  }
  auto missing = static_cast<size_t>(
      std::count_if(remote_ranks_.begin(), remote_ranks_.end(), [this](uint32_t rank) { return rank > rank_; }));
  while (missing > 0) {
    std::string from;
    Socket socket = accept_from(listener, end, &from);
    if (!socket)
      throw Error(HCCL_E_TIMEOUT, format("%zu ranks of other hosts did not connect to rank %u at %s within %d s "
                                         "(HCCL_CONNECT_TIMEOUT)",
                                         missing, rank_, settings_.address.c_str(), settings_.connect_timeout));
    Greeting greeting{};
    try {
      socket.receive(&greeting, sizeof(greeting), std::min(end, Clock::now() + std::chrono::seconds(5)), from);
    } catch (const Error&) {
      continue;  // a stranger
    }
    const bool good = std::memcmp(greeting.nonce, root.nonce, sizeof(root.nonce)) == 0 && greeting.rank < size() &&
                      greeting.rank > rank_ && !peers_[greeting.rank].local && !peers_[greeting.rank].socket;
    if (!good) continue;
    peers_[greeting.rank].socket = std::move(socket);
    --missing;
  }
}

Comm::~Comm() {
  if (shares_cores_ && sharing.fetch_sub(1) == 1) aclsimShareCores(1);
  for (const Peer& peer : peers_) {
    if (peer.process >= 0) ::close(peer.process);
  }
  if (slot_file_ >= 0) ::close(slot_file_);
}

// ---- operations

Deadline Comm::operation_deadline() const {
  return settings_.exec_timeout == 0 ? Deadline::max() : Clock::now() + std::chrono::seconds(settings_.exec_timeout);
}

void Comm::describe(const char* text) {
  std::lock_guard<std::mutex> lock(mutex_);
  next_note_ = text ? text : "";
}

void Comm::launch(std::unique_ptr<Operation> operation, aclrtStream stream) {
  // Held over the launch, so that operations of one stream get their numbers in its order.
  std::lock_guard<std::mutex> order(launch_mutex_);
  {
    std::lock_guard<std::mutex> lock(mutex_);
    operation->note = std::move(next_note_);
    next_note_.clear();
    if (failed_.load()) throw Error(failure_code_, "the communicator has failed before: " + failure_reason_);
    operation->order = ++launched_;
  }
  operation->comm = shared_from_this();
  Operation* data = operation.release();
  if (aclsimLaunch(kind_name(data->kind), &run_operation, &begin_operation, data, stream) == ACL_SUCCESS) return;
  operation.reset(data);
  {
    std::lock_guard<std::mutex> lock(mutex_);
    --launched_;
  }
  const char* why = aclGetRecentErrMsg();
  throw Error(HCCL_E_RUNTIME, why ? why : "the operation could not be put on its stream");
}

void Comm::take_turn(uint64_t order, const aclsimTask* task) {
  std::unique_lock<std::mutex> lock(mutex_);
  while (finished_ + 1 != order) {
    if (failed_.load()) throw Error(failure_code_, failure_reason_);
    turn_.wait_for(lock, std::chrono::milliseconds(20));
    if (aclsimMustStop(task)) throw Stopped{};
  }
  if (failed_.load()) throw Error(failure_code_, failure_reason_);
}

bool Comm::has_turn(uint64_t order) const {
  std::lock_guard<std::mutex> lock(mutex_);
  return finished_ + 1 == order && !failed_.load();
}

bool Comm::others_have_arrived() const {
  return remote_ranks_.empty() && std::all_of(local_ranks_.begin(), local_ranks_.end(), [this](uint32_t rank) {
           return rank == rank_ || peers_[rank].slot->arrived.load(std::memory_order_acquire) >= number_;
         });
}

void Comm::end_turn() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    ++finished_;
  }
  turn_.notify_all();
}

void Comm::drain() {
  std::unique_lock<std::mutex> lock(mutex_);
  turn_.wait(lock, [this] { return finished_ == launched_; });
}

// ---- failure

void Comm::fail(HcclResult code, const std::string& reason) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (failed_.load()) return;
    failure_code_ = code;
    failure_reason_ = reason;
    failed_.store(true);
  }
  turn_.notify_all();
  Slot& slot = own_slot();
  copy_text(slot.reason, sizeof(slot.reason), reason);
  slot.failed.store(1, std::memory_order_release);
  slot.ring();
  for (const uint32_t rank : remote_ranks_) peers_[rank].socket.shut();
}

void Comm::tell_remote(const Operation& operation, const std::string& reason) {
  if (operation.met || remote_ranks_.empty() || failed_.load()) return;
  Post post{};
  post.number = operation.number;
  post.kind = operation.kind;
  post.failed = 1;
  copy_text(post.note, sizeof(post.note), reason);
  for (const uint32_t rank : remote_ranks_) {
    try {
      peers_[rank].socket.send(&post, sizeof(post), Clock::now() + std::chrono::seconds(1), "");
    } catch (const Error&) {
      // It will see the connection close.
    }
  }
}

void Comm::abort(const std::string& reason) {
  fail(HCCL_E_SUSPENDING, reason.empty() ? "the communicator was aborted" : reason);
}

HcclResult Comm::failure(std::string* reason) const {
  std::lock_guard<std::mutex> lock(mutex_);
  if (failed_.load()) *reason = failure_reason_;
  return failed_.load() ? failure_code_ : HCCL_SUCCESS;
}

std::string Comm::missing(const Operation& operation) const {
  std::string text;
  for (const uint32_t rank : local_ranks_) {
    const Slot& slot = *peers_[rank].slot;
    const uint64_t arrived = slot.arrived.load(std::memory_order_acquire);
    if (rank == rank_ || operation.number == 0 || arrived >= operation.number) continue;
    text +=
        format("%srank %u (process %d) has not come to it, ", text.empty() ? "" : "; ", rank, peers_[rank].member.pid);
    text += arrived ? "its last was " + hccl_sim::describe(slot.posts[arrived % 2]) : "it has called nothing yet";
  }
  return text;
}

std::string Comm::state() const {
  std::string text;
  for (const uint32_t rank : local_ranks_) {
    const Slot& slot = *peers_[rank].slot;
    const uint64_t arrived = slot.arrived.load(std::memory_order_acquire);
    text += format("rank %u: ", rank);
    text += arrived ? hccl_sim::describe(slot.posts[arrived % 2]) : "no operation yet";
    text += slot.left.load(std::memory_order_acquire) >= arrived ? ", done" : ", under way";
    if (slot.failed.load(std::memory_order_acquire)) text += std::string("; failed: ") + slot.reason;
    text += "\n";
  }
  return text;
}

void Comm::check(const aclsimTask* task, Deadline deadline, const Operation& operation) {
  if (aclsimMustStop(task)) throw Stopped{};
  if (failed_.load()) {
    std::string reason;
    const HcclResult code = failure(&reason);
    throw Error(code, reason);
  }
  const auto concerns = [&](uint32_t rank) {
    if (operation.items.empty()) return peers_[rank].slot->left.load(std::memory_order_acquire) < operation.number;
    // A letter that lies there can be read when its sender has gone, and one that was taken is delivered.
    const bool comes =
        peers_[rank].slot->letter_to(rank_, size()).posted.load(std::memory_order_acquire) > peers_[rank].received;
    const bool delivered =
        peers_[rank].slot->taken_of(rank_, size()).load(std::memory_order_acquire) >= peers_[rank].sent;
    return std::any_of(operation.items.begin(), operation.items.end(),
                       [&](const Item& item) { return item.rank == rank && !(item.sends ? delivered : comes); });
  };
  for (const uint32_t rank : local_ranks_) {
    const Peer& peer = peers_[rank];
    if (rank == rank_) continue;
    if (peer.slot->failed.load(std::memory_order_acquire) && concerns(rank)) {
      // An operation that the peer has finished before it failed is none of its failure's business.
      throw Error(HCCL_E_REMOTE, format("rank %u gave up: %s", rank, peer.slot->reason));
    }
    pollfd process{peer.process, POLLIN, 0};
    if (peer.process >= 0 && ::poll(&process, 1, 0) > 0 && concerns(rank)) {
      const uint64_t arrived = peer.slot->arrived.load(std::memory_order_acquire);
      const std::string last =
          arrived ? "its last was " + hccl_sim::describe(peer.slot->posts[arrived % 2]) : "it had called nothing";
      throw Error(HCCL_E_REMOTE, format("rank %u (process %d) has ended; %s", rank, peer.member.pid, last.c_str()));
    }
  }
  if (Clock::now() >= deadline) {
    const std::string who = missing(operation);
    throw Error(HCCL_E_TIMEOUT, format("it was not done within %d s (HCCL_EXEC_TIMEOUT)%s%s", settings_.exec_timeout,
                                       who.empty() ? "" : ": ", who.c_str()));
  }
}

}  // namespace hccl_sim
