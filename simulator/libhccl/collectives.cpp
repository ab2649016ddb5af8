// The collectives: who reads what of whom. See Note [Slots] for how ranks of one host meet.
//
// Note [Slices]
// Inside a host every rank reads the others' buffers where they lie. Of a reduction each rank computes one slice over
// all inputs and writes it into all outputs: each element is read and written once, by the rank that owns its slice, so
// buffers may be input and output at once, and all ranks get the same bits. A broadcast is carried in slices likewise.
// Between hosts the owner of a slice is sent the inputs and sends the result, in rounds that bound the memory for what
// has come.

#include <acl/acl.h>
#include <acl/acl_simulator_extension.h>

#include <algorithm>
#include <cstring>
#include <map>

#include "acl_functions.h"
#include "exchange.h"
#include "guard.h"
#include "operation.h"
#include "reduce.h"

namespace hccl_sim {
namespace {

constexpr uint64_t kRound = uint64_t{1} << 20;  // bytes of a slice in one round between hosts

// Whether each rank gives a piece to each rank. Its own does not travel.
bool in_pieces(Kind kind) { return kind == Kind::ReduceScatter || kind == Kind::Scatter || kind == Kind::AlltoAll; }

// Whether what the ranks give goes into their posts, the same on all ranks.
bool fits_into_posts(const Operation& operation) {
  const uint64_t ranks = operation.comm->size(), bytes = operation.count * operation.element();
  if (!operation.comm->remote_ranks().empty()) return false;
  switch (operation.kind) {
    case Kind::AllReduce:
    case Kind::Reduce:
      // One rank adds all of what is in the posts, but a slice of what is not: more ranks, sooner.
      return ranks * bytes <= 2 * kPayloadOfAll;
    case Kind::AllGather:
      return bytes <= kPayloadOfAll;
    case Kind::ReduceScatter:
    case Kind::AlltoAll:
      return bytes * (ranks - 1) <= kPayloadOfAll;
    case Kind::Broadcast:
      return bytes <= kPayload;
    case Kind::Scatter:
      return bytes * (ranks - 1) <= kPayload;
    default:
      return operation.kind == Kind::Barrier;
  }
}

class Collective {
 public:
  explicit Collective(Operation& operation)
      : operation_(operation),
        comm_(*operation.comm),
        n_(comm_.size()),
        me_(comm_.rank()),
        element_(operation.element()),
        small_(fits_into_posts(operation)) {}

  bool begin() {
    if (!operation_.posted) post();
    return small_ && comm_.others_have_arrived();
  }

  void run() {
    if (!operation_.posted) post();
    if (!small_) keep_own();
    meet();
    compare();
    agree_on_layout();
    if (small_) {
      run_small();
      return;
    }
    run_large();
    comm_.own_slot().left.store(operation_.number, std::memory_order_release);
    comm_.own_slot().ring();
    for (const uint32_t rank : comm_.local_ranks()) {
      Slot& slot = *comm_.peer(rank).slot;
      comm_.wait(comm_.peer(rank), operation_.task, operation_.deadline, operation_,
                 [&] { return slot.left.load(std::memory_order_acquire) >= operation_.number; });
    }
  }

 private:
  // Which of the two places of a slot the operation has.
  size_t parity() const { return operation_.number % 2; }

  // ---- meeting

  void prepare_memory() const {
    const bool reads = operation_.send.bytes > 0;
    if (reads) prepare(operation_.send, ACLSIM_READ);
    const bool same = operation_.send.pointer == operation_.recv.pointer;
    if (operation_.recv.bytes > 0 && !(reads && same)) prepare(operation_.recv, ACLSIM_WRITE);
  }

  static void prepare(const Range& range, aclsimAccess access) {
    if (aclsimPrepareMemory(range.pointer, range.bytes, access) != ACL_SUCCESS)
      throw Error(HCCL_E_MEMORY, "memory of the operation was freed before it ran");
  }

  bool reduces_in_place() const {
    return operation_.kind == Kind::AllReduce && operation_.send.pointer == operation_.recv.pointer;
  }

  // 0 if the memory is, or has been put, in the host's order.
  uint64_t prepare_layout() const {
    uint64_t layout = 0;
    if (reduces_in_place() && operation_.send.bytes > 0 && !small_ && comm_.remote_ranks().empty()) {
      if (aclsimGetOrder(operation_.send.pointer, operation_.send.bytes, &layout) != ACL_SUCCESS) layout = 0;
      if (layout != 0 && layout != UINT64_MAX) return layout;
    }
    prepare_memory();
    return 0;
  }

  void agree_on_layout() {
    const uint64_t mine = post_of(me_).layout;
    bool same = true;
    for (uint32_t rank = 0; rank < n_; ++rank) same = same && post_of(rank).layout == mine;
    if (same) return;
    if (mine != 0) prepare_memory();
    comm_.own_slot().plain.store(operation_.number, std::memory_order_release);
    comm_.own_slot().ring();
    for (const uint32_t rank : comm_.local_ranks()) {
      Slot& slot = *comm_.peer(rank).slot;
      comm_.wait(comm_.peer(rank), operation_.task, operation_.deadline, operation_,
                 [&] { return slot.plain.load(std::memory_order_acquire) >= operation_.number; });
    }
  }

  void post() {
    const uint64_t layout = prepare_layout();
    operation_.number = comm_.next_number();
    Slot& slot = comm_.own_slot();
    Post& mine = slot.posts[parity()];
    mine.number = operation_.number;
    mine.kind = operation_.kind;
    mine.type = operation_.type;
    mine.op = operation_.op;
    mine.root = operation_.root;
    mine.count = operation_.count;
    mine.send_offset = operation_.send.offset;
    mine.recv_offset = operation_.recv.offset;
    mine.layout = layout;
    mine.failed = 0;
    std::strncpy(mine.note, operation_.note.c_str(), kNote - 1);
    mine.note[kNote - 1] = '\0';
    if (operation_.kind == Kind::AlltoAllV) {
      std::copy(operation_.send_bytes.begin(), operation_.send_bytes.end(), slot.counts(parity(), n_));
      std::copy(operation_.send_at.begin(), operation_.send_at.end(), slot.displacements(parity(), n_));
    }
    slot.filled[parity()].store(0, std::memory_order_relaxed);
    operation_.posted = true;
    if (!small_) return arrive(slot);
    const uint64_t bytes = payload_bytes();
    put_payload(slot, 0, std::min<uint64_t>(bytes, kChunk));
    arrive(slot);
    for (uint64_t at = kChunk; at < bytes; at += kChunk) {
      put_payload(slot, at, std::min<uint64_t>(bytes, at + kChunk));
      slot.ring();
    }
    slot.left.store(operation_.number, std::memory_order_release);
  }

  void arrive(Slot& slot) const {
    slot.arrived.store(operation_.number, std::memory_order_release);
    slot.ring();
  }

  // Bytes of a piece, 0 where ranks do not give pieces.
  uint64_t piece() const { return in_pieces(operation_.kind) ? operation_.count * element_ : 0; }
  uint64_t payload_bytes() const { return operation_.send.bytes == 0 ? 0 : operation_.send.bytes - piece(); }

  // Writes bytes [begin, end) of the payload: the input, without this rank's own piece if it has pieces.
  void put_payload(Slot& slot, uint64_t begin, uint64_t end) const {
    char* to = slot.payloads[parity()];
    const char* from = operation_.send.data;
    const uint64_t hole = piece() ? std::clamp(me_ * piece(), begin, end) : end;
    if (begin < hole) std::memcpy(to + begin, from + begin, hole - begin);
    if (hole < end) std::memcpy(to + hole, from + hole + piece(), end - hole);
    slot.filled[parity()].store(end, std::memory_order_release);
  }

  void meet() {
    if (!comm_.remote_ranks().empty()) {
      Exchange exchange(operation_);
      for (const uint32_t rank : comm_.remote_ranks()) {
        exchange.send(rank, &comm_.own_slot().posts[parity()], sizeof(Post));
        exchange.receive(rank, &remote_posts_[rank], sizeof(Post));
      }
      operation_.met = true;
      exchange.run();
    }
    for (const uint32_t rank : comm_.local_ranks()) {
      Slot& slot = *comm_.peer(rank).slot;
      comm_.wait(comm_.peer(rank), operation_.task, operation_.deadline, operation_,
                 [&] { return slot.arrived.load(std::memory_order_acquire) >= operation_.number; });
    }
  }

  const Post& post_of(uint32_t rank) {
    const Peer& peer = comm_.peer(rank);
    return peer.local ? peer.slot->posts[parity()] : remote_posts_[rank];
  }

  void compare() {
    const Post& mine = post_of(me_);
    for (uint32_t rank = 0; rank < n_; ++rank) {
      const Post& other = post_of(rank);
      if (other.failed) throw Error(HCCL_E_REMOTE, format("rank %u gave up: %s", rank, other.note));
      // A barrier and a call without a reduction leave their fields at 0.
      const bool same = other.kind == mine.kind && other.type == mine.type && other.op == mine.op &&
                        other.root == mine.root && other.count == mine.count && other.number == mine.number;
      if (same) continue;
      throw Error(HCCL_E_PARA, format("the ranks do not call the same operation: rank %u has %s, rank %u has %s", me_,
                                      describe(mine).c_str(), rank, describe(other).c_str()));
    }
  }

  // ---- where data lies

  // What a rank gives, from byte `at` on.
  const char* input_of(uint32_t rank, uint64_t at = 0) {
    if (rank == me_) return operation_.send.data + at;
    if (!small_) return comm_.peer(rank).base + post_of(rank).send_offset + at;
    return comm_.peer(rank).slot->payloads[parity()] + place_in_payload(rank, at);
  }
  uint64_t place_in_payload(uint32_t rank, uint64_t at) const { return at > rank * piece() ? at - piece() : at; }
  char* output_of(uint32_t rank) {
    return rank == me_ ? operation_.recv.data : comm_.peer(rank).base + post_of(rank).recv_offset;
  }

  // Reduces elements [at, at + count) of all local inputs and what came of remote ones (by rank) into the outputs.
  void reduce_slice(uint64_t at, uint64_t count, const std::map<uint32_t, char*>& came,
                    const std::vector<char*>& outputs) {
    if (count == 0) return;
    std::vector<const void*> in(n_);
    for (uint32_t rank = 0; rank < n_; ++rank) {
      const auto remote = came.find(rank);
      in[rank] = remote != came.end() ? remote->second : input_of(rank, at * element_);
    }
    std::vector<void*> out(outputs.begin(), outputs.end());
    reduce(operation_.type, operation_.op, in.data(), n_, out.data(), out.size(), count);
  }

  static void copy(char* to, const char* from, uint64_t bytes) {
    if (bytes > 0 && to != from) std::memmove(to, from, bytes);
  }

  // ---- small: everything is in the posts

  // Waits until bytes [at, at + bytes) of a rank's input are in its post.
  void expect(uint32_t rank, uint64_t at, uint64_t bytes) {
    if (rank == me_) return;
    const uint64_t end = place_in_payload(rank, at) + bytes;
    const auto& filled = comm_.peer(rank).slot->filled[parity()];
    comm_.wait(comm_.peer(rank), operation_.task, operation_.deadline, operation_,
               [&] { return filled.load(std::memory_order_acquire) >= end; });
  }

  // Copies from a rank's input as it comes.
  void take(char* to, uint32_t rank, uint64_t at, uint64_t bytes) {
    for (uint64_t done = 0; done < bytes; done += kChunk) {
      const uint64_t part = std::min<uint64_t>(kChunk, bytes - done);
      expect(rank, at + done, part);
      copy(to + done, input_of(rank, at + done), part);
    }
  }

  void reduce_small(uint64_t at, uint64_t count) {
    for (uint32_t rank = 0; rank < n_; ++rank) expect(rank, at * element_, count * element_);
    reduce_slice(at, count, {}, {operation_.recv.data});
  }

  void run_small() {
    const uint64_t bytes = operation_.count * element_;
    char* out = operation_.recv.data;
    switch (operation_.kind) {
      case Kind::AllReduce:
        return reduce_small(0, operation_.count);
      case Kind::Reduce:
        if (me_ == operation_.root) reduce_small(0, operation_.count);
        return;
      case Kind::ReduceScatter:
        return reduce_small(me_ * operation_.count, operation_.count);
      case Kind::AllGather:
        for (uint32_t i = 0; i < n_; ++i) take_from_next(i, 0, bytes);
        return;
      case Kind::AlltoAll:
        for (uint32_t i = 0; i < n_; ++i) take_from_next(i, me_ * bytes, bytes);
        return;
      case Kind::Broadcast:
        if (me_ != operation_.root) take(out, operation_.root, 0, bytes);
        return;
      case Kind::Scatter:
        return take(out, operation_.root, me_ * bytes, bytes);
      default:
        return;
    }
  }

  // Its own first, then each begins at another rank: the others' come meanwhile.
  void take_from_next(uint32_t i, uint64_t at, uint64_t bytes) {
    const uint32_t rank = (me_ + i) % n_;
    take(operation_.recv.data + rank * bytes, rank, at, bytes);
  }

  // ---- large, or between hosts

  void run_large() {
    switch (operation_.kind) {
      case Kind::AllReduce:
        return all_reduce();
      case Kind::Reduce:
        return reduce_to_root();
      case Kind::ReduceScatter:
        return reduce_scatter();
      case Kind::AllGather:
        return all_gather();
      case Kind::AlltoAll:
      case Kind::AlltoAllV:
        return all_to_all();
      case Kind::Broadcast:
        return broadcast();
      case Kind::Scatter:
        return scatter();
      default:
        return;
    }
  }

  // Elements [first, second) of `count` that a rank owns; borders on cache lines.
  std::pair<uint64_t, uint64_t> slice_of(uint32_t rank, uint64_t count) const {
    const uint64_t part = ((count + n_ - 1) / n_ + 63) / 64 * 64;
    return {std::min(count, rank * part), std::min(count, (rank + 1) * part)};
  }

  std::vector<char*> local_outputs(uint64_t at) {
    std::vector<char*> outputs;
    for (const uint32_t rank : comm_.local_ranks()) outputs.push_back(output_of(rank) + at * element_);
    return outputs;
  }

  // Room for what comes of each remote rank in a round.
  std::map<uint32_t, char*> make_staging(uint64_t bytes) {
    std::map<uint32_t, char*> places;
    staging_.resize(bytes * comm_.remote_ranks().size());
    uint64_t at = 0;
    for (const uint32_t rank : comm_.remote_ranks()) {
      places[rank] = staging_.data() + at;
      at += bytes;
    }
    return places;
  }

  void all_reduce() {
    const auto& remote = comm_.remote_ranks();
    if (remote.empty()) {
      const auto [begin, end] = slice_of(me_, operation_.count);
      reduce_slice(begin, end - begin, {}, local_outputs(begin));
      return;
    }
    const uint64_t round = std::max<uint64_t>(1, kRound / element_ / 64 * 64) * n_;
    const auto came = make_staging(std::min(round, operation_.count + 64) * element_);
    for (uint64_t first = 0; first < operation_.count; first += round) {
      const uint64_t count = std::min(round, operation_.count - first);
      const auto [begin, end] = slice_of(me_, count);
      Exchange inputs(operation_);
      for (const uint32_t rank : remote) {
        const auto [theirs, until] = slice_of(rank, count);
        inputs.send(rank, operation_.send.data + (first + theirs) * element_, (until - theirs) * element_);
        inputs.receive(rank, came.at(rank), (end - begin) * element_);
      }
      inputs.run();
      reduce_slice(first + begin, end - begin, came, local_outputs(first + begin));
      Exchange results(operation_);
      for (const uint32_t rank : remote) {
        const auto [theirs, until] = slice_of(rank, count);
        results.send(rank, operation_.recv.data + (first + begin) * element_, (end - begin) * element_);
        results.receive(rank, operation_.recv.data + (first + theirs) * element_, (until - theirs) * element_);
      }
      results.run();
    }
  }

  void reduce_scatter() {
    const auto& remote = comm_.remote_ranks();
    if (remote.empty()) {
      reduce_slice(me_ * operation_.count, operation_.count, {}, {operation_.recv.data});
      return;
    }
    const uint64_t round = std::max<uint64_t>(1, kRound / element_);
    const auto came = make_staging(std::min(round, operation_.count) * element_);
    for (uint64_t at = 0; at < operation_.count; at += round) {
      const uint64_t count = std::min(round, operation_.count - at);
      Exchange exchange(operation_);
      for (const uint32_t rank : remote) {
        exchange.send(rank, operation_.send.data + (rank * operation_.count + at) * element_, count * element_);
        exchange.receive(rank, came.at(rank), count * element_);
      }
      exchange.run();
      reduce_slice(me_ * operation_.count + at, count, came, {operation_.recv.data + at * element_});
    }
  }

  void reduce_to_root() {
    const uint32_t root = operation_.root;
    if (comm_.remote_ranks().empty()) {
      const auto [begin, end] = slice_of(me_, operation_.count);
      reduce_slice(begin, end - begin, {}, {output_of(root) + begin * element_});
      return;
    }
    const uint64_t round = std::max<uint64_t>(1, kRound / element_);
    std::map<uint32_t, char*> came;
    if (me_ == root) came = make_staging(std::min(round, operation_.count) * element_);
    for (uint64_t at = 0; at < operation_.count; at += round) {
      const uint64_t count = std::min(round, operation_.count - at);
      Exchange exchange(operation_);
      if (me_ == root) {
        for (const auto& [rank, place] : came) exchange.receive(rank, place, count * element_);
      } else if (!comm_.peer(root).local) {
        exchange.send(root, operation_.send.data + at * element_, count * element_);
      }
      exchange.run();
      if (me_ == root) reduce_slice(at, count, came, {operation_.recv.data + at * element_});
    }
  }

  // What it gives to itself needs nobody: copied while the others come.
  void keep_own() {
    const uint64_t bytes = operation_.count * element_;
    if (operation_.kind == Kind::AllGather) copy(operation_.recv.data + me_ * bytes, operation_.send.data, bytes);
    if (operation_.kind != Kind::AlltoAll && operation_.kind != Kind::AlltoAllV) return;
    check_piece(me_, operation_.send_bytes[me_]);
    copy(operation_.recv.data + operation_.recv_at[me_], operation_.send.data + operation_.send_at[me_],
         operation_.send_bytes[me_]);
  }

  void all_gather() {
    const uint64_t bytes = operation_.count * element_;
    Exchange exchange(operation_);
    for (const uint32_t rank : comm_.remote_ranks()) {
      exchange.send(rank, operation_.send.data, bytes);
      exchange.receive(rank, operation_.recv.data + rank * bytes, bytes);
    }
    exchange.run();
    // Each begins at another rank, so that not all read the same memory at once.
    const auto& local = comm_.local_ranks();
    for (size_t i = 0; i < local.size(); ++i) {
      const uint32_t rank = local[(i + me_) % local.size()];
      if (rank != me_) copy(operation_.recv.data + rank * bytes, input_of(rank), bytes);
    }
  }

  void broadcast() {
    const uint64_t bytes = operation_.count * element_;
    const uint32_t root = operation_.root;
    if (comm_.remote_ranks().empty()) {
      // Each carries one slice to everyone, so that the root's core works, too.
      const auto [begin, end] = slice_of(me_, operation_.count);
      const char* from = input_of(root, begin * element_);
      for (uint32_t i = 0; i < n_; ++i) {
        const uint32_t rank = (me_ + i) % n_;
        if (rank != root) copy(output_of(rank) + begin * element_, from, (end - begin) * element_);
      }
      return;
    }
    Exchange exchange(operation_);
    if (me_ == root) {
      for (const uint32_t rank : comm_.remote_ranks()) exchange.send(rank, operation_.send.data, bytes);
    } else if (comm_.peer(root).local) {
      copy(operation_.recv.data, input_of(root), bytes);
    } else {
      exchange.receive(root, operation_.recv.data, bytes);
    }
    exchange.run();
  }

  void scatter() {
    const uint64_t bytes = operation_.count * element_;
    const uint32_t root = operation_.root;
    Exchange exchange(operation_);
    if (me_ == root) {
      for (const uint32_t rank : comm_.remote_ranks()) exchange.send(rank, operation_.send.data + rank * bytes, bytes);
    }
    if (comm_.peer(root).local) {
      copy(operation_.recv.data, input_of(root, me_ * bytes), bytes);
    } else {
      exchange.receive(root, operation_.recv.data, bytes);
    }
    exchange.run();
  }

  void check_piece(uint32_t rank, uint64_t comes) const {
    if (comes == operation_.recv_bytes[rank]) return;
    throw Error(HCCL_E_PARA,
                format("rank %u sends %llu bytes to rank %u, which expects %llu: %s", rank,
                       static_cast<unsigned long long>(comes), me_,
                       static_cast<unsigned long long>(operation_.recv_bytes[rank]), operation_.describe().c_str()));
  }

  void all_to_all() {
    std::map<uint32_t, uint64_t> comes;
    Exchange exchange(operation_);
    for (const uint32_t rank : comm_.remote_ranks()) {
      exchange.send(rank, &operation_.send_bytes[rank], sizeof(uint64_t));
      exchange.receive(rank, &comes[rank], sizeof(uint64_t), [this, rank, &comes] { check_piece(rank, comes[rank]); });
      exchange.send(rank, operation_.send.data + operation_.send_at[rank], operation_.send_bytes[rank]);
      exchange.receive(rank, operation_.recv.data + operation_.recv_at[rank], operation_.recv_bytes[rank]);
    }
    exchange.run();
    const auto& local = comm_.local_ranks();
    for (size_t i = 0; i < local.size(); ++i) {
      const uint32_t rank = local[(i + me_) % local.size()];
      Slot& slot = *comm_.peer(rank).slot;
      const bool even = operation_.kind == Kind::AlltoAll;
      const uint64_t bytes = even ? operation_.count * element_ : slot.counts(parity(), n_)[me_];
      const uint64_t at = even ? me_ * bytes : slot.displacements(parity(), n_)[me_];
      if (rank == me_) continue;
      check_piece(rank, bytes);
      if (bytes > 0) copy(operation_.recv.data + operation_.recv_at[rank], input_of(rank, at), bytes);
    }
  }

  Operation& operation_;
  Comm& comm_;
  const uint32_t n_, me_;
  const uint64_t element_;
  const bool small_;
  std::map<uint32_t, Post> remote_posts_;
  std::vector<char> staging_;
};

}  // namespace

bool begin_collective(Operation& operation) { return Collective(operation).begin(); }

void run_collective(Operation& operation) { Collective(operation).run(); }

}  // namespace hccl_sim
