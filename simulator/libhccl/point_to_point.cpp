// Messages between two ranks. Inside a host the sender leaves a letter in its own slot, with the content if that is
// small, else with the place of it; the receiver copies and counts it as taken. All messages of a batch move on
// together, so that batches which send to each other do not wait for each other.

#include <acl/acl.h>
#include <acl/acl_simulator_extension.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>

#include "acl_functions.h"
#include "exchange.h"
#include "guard.h"
#include "operation.h"
#include "reduce.h"

namespace hccl_sim {
namespace {

class Messages {
 public:
  explicit Messages(Operation& operation)
      : operation_(operation), comm_(*operation.comm), n_(comm_.size()), me_(comm_.rank()) {}

  void run() {
    for (const Item& item : operation_.items) {
      if (item.range.bytes == 0) continue;
      if (aclsimPrepareMemory(item.range.pointer, item.range.bytes, item.sends ? ACLSIM_READ : ACLSIM_WRITE) !=
          ACL_SUCCESS)
        throw Error(HCCL_E_MEMORY, "memory of the operation was freed before it ran");
    }
    move_remote();
    move_local();
  }

 private:
  struct State {
    const Item* item;
    uint64_t number = 0;  // of a posted letter
    bool done = false;
  };

  void check(const Item& item, HcclDataType type, uint64_t bytes, const char* note) const {
    if (type == item.type && bytes == item.range.bytes) return;
    throw Error(
        HCCL_E_PARA,
        format("rank %u sends %llu bytes of %s%s%s to rank %u, which receives %llu bytes of %s: %s", item.rank,
               static_cast<unsigned long long>(bytes), type_name(type), *note ? ": " : "", note, me_,
               static_cast<unsigned long long>(item.range.bytes), type_name(item.type), operation_.describe().c_str()));
  }

  // ---- between hosts

  void move_remote() {
    Exchange exchange(operation_);
    std::vector<std::unique_ptr<Post>> posts;
    for (const Item& item : operation_.items) {
      if (comm_.peer(item.rank).local) continue;
      posts.push_back(std::make_unique<Post>());
      Post* post = posts.back().get();
      if (item.sends) {
        *post = {};
        post->number = ++comm_.peer(item.rank).sent;
        post->kind = Kind::Send;
        post->type = item.type;
        post->count = item.range.bytes;
        std::strncpy(post->note, operation_.note.c_str(), kNote - 1);
        exchange.send(item.rank, post, sizeof(Post));
        exchange.send(item.rank, item.range.data, item.range.bytes);
      } else {
        const Item* expected = &item;
        exchange.receive(item.rank, post, sizeof(Post), [this, post, expected] {
          if (post->failed) throw Error(HCCL_E_REMOTE, format("rank %u gave up: %s", expected->rank, post->note));
          if (post->kind != Kind::Send)
            throw Error(HCCL_E_PARA, format("rank %u calls %s while rank %u waits for a message of it", expected->rank,
                                            describe(*post).c_str(), me_));
          check(*expected, post->type, post->count, post->note);
        });
        exchange.receive(item.rank, item.range.data, item.range.bytes);
      }
    }
    exchange.run();
  }

  // ---- inside a host

  void move_local() {
    std::vector<State> states;
    for (const Item& item : operation_.items) {
      if (comm_.peer(item.rank).local) states.push_back({&item});
    }
    size_t left = states.size();
    int idle = 0;
    while (left > 0) {
      const uint32_t* pending = nullptr;
      uint32_t seen = 0;
      size_t moved = 0;
      std::map<std::pair<bool, uint32_t>, bool> busy;  // an earlier message of that direction is not done
      for (State& state : states) {
        if (state.done) continue;
        auto& blocked = busy[{state.item->sends, state.item->rank}];
        if (!pending) {
          pending = &state.item->rank;
          seen = comm_.peer(*pending).slot->bell.load(std::memory_order_seq_cst);
        }
        if (!blocked && (state.item->sends ? send(state) : receive(*state.item))) {
          state.done = true;
          --left;
          ++moved;
        } else {
          blocked = true;
        }
      }
      if (moved > 0 || left == 0) {
        idle = 0;
        continue;
      }
      if (++idle < (comm_.crowded() ? 16 : 2000)) {
        relax();
        continue;
      }
      comm_.peer(*pending).slot->sleep(seen, busy.size() > 1 ? 1 : 50);
      comm_.check(operation_.task, operation_.deadline, operation_);
    }
  }

  bool send(State& state) {
    const Item& item = *state.item;
    Peer& peer = comm_.peer(item.rank);
    Slot& mine = comm_.own_slot();
    const auto& taken = peer.slot->taken_of(me_, n_);
    if (state.number == 0) {
      if (taken.load(std::memory_order_acquire) < peer.sent) return false;
      Letter& letter = mine.letter_to(item.rank, n_);
      letter.offset = item.range.offset;
      letter.bytes = item.range.bytes;
      letter.type = item.type;
      letter.inside = item.range.bytes <= kLetter;
      std::strncpy(letter.note, operation_.note.c_str(), kNote - 1);
      if (letter.inside && item.range.bytes > 0) std::memcpy(letter.content, item.range.data, item.range.bytes);
      state.number = ++peer.sent;
      letter.posted.store(state.number, std::memory_order_release);
      mine.ring();
      if (letter.inside) return true;
    }
    return taken.load(std::memory_order_acquire) >= state.number;
  }

  bool receive(const Item& item) {
    Peer& peer = comm_.peer(item.rank);
    Letter& letter = peer.slot->letter_to(me_, n_);
    if (letter.posted.load(std::memory_order_acquire) <= peer.received) return false;
    check(item, letter.type, letter.bytes, letter.note);
    if (letter.bytes > 0)
      std::memcpy(item.range.data, letter.inside ? letter.content : peer.base + letter.offset, letter.bytes);
    Slot& mine = comm_.own_slot();
    mine.taken_of(item.rank, n_).store(++peer.received, std::memory_order_release);
    mine.ring();
    return true;
  }

  Operation& operation_;
  Comm& comm_;
  const uint32_t n_, me_;
};

}  // namespace

void run_point_to_point(Operation& operation) { Messages(operation).run(); }

}  // namespace hccl_sim
