#include "meeting.h"

#include "guard.h"

#include <pthread.h>
#include <signal.h>
#include <sys/random.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <thread>

namespace hccl_sim {
namespace {

constexpr uint64_t kMagic = 0x48434C53494D3031;  // this protocol, this version

struct Hello {
  uint64_t magic;
  uint8_t nonce[16];
  Member member;
};

struct Answer {
  uint32_t good;
  uint32_t members;
  char text[2048];
};

Answer answer_of(const std::string& problem, size_t members = 0) {
  Answer answer{};
  answer.good = problem.empty();
  answer.members = static_cast<uint32_t>(members);
  std::strncpy(answer.text, problem.c_str(), sizeof(answer.text) - 1);
  return answer;
}

std::string listing(const std::vector<uint32_t>& ranks) {
  std::string text;
  for (const uint32_t rank : ranks) text += (text.empty() ? "" : ", ") + std::to_string(rank);
  return text.empty() ? "none" : text;
}

class Server {
 public:
  Server(Listener listener, const Root& root, Settings settings)
      : listener_(std::move(listener)), root_(root), settings_(std::move(settings)) {}

  void run() {
    end_ = Clock::now() + std::chrono::seconds(settings_.connect_timeout);
    const std::string problem = collect();
    std::vector<Member> members;
    for (const auto& [rank, guest] : guests_) members.push_back(guest.member);
    const Answer answer = answer_of(problem, members.size());
    tell(answer, problem.empty() ? members.data() : nullptr, members.size());
    if (problem.empty()) {
      tell(answer_of(agreement()), nullptr, 0);
    } else {
      refuse_late(problem);
    }
  }

 private:
  struct Guest {
    Socket socket;
    Member member;
  };

  // Until all are here; what is wrong, if something is.
  std::string collect() {
    while (ranks_ == 0 || guests_.size() < ranks_) {
      std::string from;
      Socket socket = accept_from(listener_, end_, &from);
      if (!socket) return missing();
      Hello hello{};
      try {
        socket.receive(&hello, sizeof(hello), std::min(end_, Clock::now() + std::chrono::seconds(5)), from);
      } catch (const Error&) {
        continue;  // a stranger
      }
      if (hello.magic != kMagic || std::memcmp(hello.nonce, root_.nonce, sizeof(root_.nonce)) != 0) continue;
      const uint32_t rank = hello.member.rank;
      const std::string problem = settings_.whitelist && !settings_.allowed.count(from)
                                      ? format("rank %u connects from %s, which %s (HCCL_WHITELIST_FILE) does not list",
                                               rank, from.c_str(), settings_.whitelist_file.c_str())
                                      : check(hello.member);
      if (ranks_ == 0) ranks_ = hello.member.ranks;
      const bool twice = guests_.count(rank) > 0;
      if (!twice) guests_[rank] = {std::move(socket), hello.member};
      if (!problem.empty()) {
        if (twice) refuse(socket, problem);
        return problem;
      }
    }
    return "";
  }

  std::string check(const Member& member) {
    if (ranks_ == 0) ranks_ = member.ranks;
    if (member.ranks != ranks_)
      return format("rank %u says that there are %u ranks, others say %u", member.rank, member.ranks, ranks_);
    if (guests_.count(member.rank)) return format("two processes say that they are rank %u", member.rank);
    for (const auto& [rank, guest] : guests_) {
      if (guest.member.device == member.device && std::strcmp(guest.member.host, member.host) == 0) {
        return format(
            "ranks %u and %u use the same device, number %d of host %s: each rank of a group needs a device of its own "
            "(torch.npu.set_device(LOCAL_RANK) before the first collective; ASCEND_SIM_DEVICE_COUNT says how many "
            "simulated devices there are)",
            std::min(rank, member.rank), std::max(rank, member.rank), member.device, member.address);
      }
    }
    return "";
  }

  // Who comes later learns of it, too, instead of knocking at a closed door.
  void refuse_late(const std::string& problem) {
    for (size_t told = guests_.size(); told < ranks_; ++told) {
      std::string from;
      const Socket socket = accept_from(listener_, end_, &from);
      if (!socket) return;
      Hello hello{};
      try {
        socket.receive(&hello, sizeof(hello), Clock::now() + std::chrono::seconds(5), from);
      } catch (const Error&) {
        continue;
      }
      refuse(socket, problem);
    }
  }

  static void refuse(const Socket& socket, const std::string& problem) {
    const Answer answer = answer_of(problem);
    try {
      socket.send(&answer, sizeof(answer), Clock::now() + std::chrono::seconds(5), "");
    } catch (const Error&) {
      // It has gone already.
    }
  }

  std::string missing() {
    std::vector<uint32_t> here, gone;
    for (uint32_t rank = 0; rank < ranks_; ++rank) (guests_.count(rank) ? here : gone).push_back(rank);
    return format(
        "of %u ranks only %s came to %s port %u within %d s (HCCL_CONNECT_TIMEOUT); missing: %s. They may have "
        "failed before, or a firewall blocks the port",
        ranks_, listing(here).c_str(), root_.address, root_.port, settings_.connect_timeout, listing(gone).c_str());
  }

  void tell(const Answer& answer, const Member* members, size_t count) {
    const Deadline soon = Clock::now() + std::chrono::seconds(10);
    for (const auto& [rank, guest] : guests_) {
      try {
        guest.socket.send(&answer, sizeof(answer), soon, "");
        if (members) guest.socket.send(members, count * sizeof(Member), soon, "");
      } catch (const Error&) {
        // It has gone; the others learn that in the next round, or from the one that misses it.
      }
    }
  }

  std::string agreement() {
    std::string problem;
    for (const auto& [rank, guest] : guests_) {
      Answer answer{};
      try {
        guest.socket.receive(&answer, sizeof(answer), end_ + std::chrono::seconds(5), "rank " + std::to_string(rank));
      } catch (const Error& error) {
        std::strncpy(answer.text, error.what(), sizeof(answer.text) - 1);
      }
      if (!answer.good && problem.empty()) problem = format("rank %u: %s", rank, answer.text);
    }
    return problem;
  }

  Listener listener_;
  Root root_;
  Settings settings_;
  Deadline end_;
  uint32_t ranks_ = 0;
  std::map<uint32_t, Guest> guests_;
};

}  // namespace

void open_meeting(HcclRootInfo* info) {
  Settings settings = read_settings();
  Root root{};
  root.magic = kMagic;
  if (::getrandom(root.nonce, sizeof(root.nonce), 0) != static_cast<ssize_t>(sizeof(root.nonce)))
    throw Error(HCCL_E_SYSCALL, "the host gives no random numbers");
  Listener listener = listen_on(settings.address);
  std::strncpy(root.address, settings.address.c_str(), sizeof(root.address) - 1);
  root.port = listener.port;
  std::memset(info->internal, 0, sizeof(info->internal));
  std::memcpy(info->internal, &root, sizeof(root));

  // Signals are the host program's business.
  sigset_t all, before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  auto* server = new Server(std::move(listener), root, std::move(settings));
  std::thread([server] {
    ::pthread_setname_np(::pthread_self(), "hccl-meeting");
    try {
      server->run();
    } catch (const std::exception&) {
      // The ranks see their connections close, and say so.
    }
    delete server;
  }).detach();
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

Root root_of(const HcclRootInfo& info) {
  Root root;
  std::memcpy(&root, info.internal, sizeof(root));
  if (root.magic != kMagic)
    throw Error(HCCL_E_PARA, "the root info is not what HcclGetRootInfo of this library has given one rank");
  return root;
}

std::vector<Member> Meeting::join(const Root& root, const Member& self, const Settings& settings) {
  const auto limit = std::chrono::seconds(settings.connect_timeout);
  const std::string name = format("the root of the communicator at %s port %u", root.address, root.port);
  socket_ = connect_to(root.address, root.port, Clock::now() + limit, name);
  Hello hello{};
  hello.magic = kMagic;
  std::memcpy(hello.nonce, root.nonce, sizeof(root.nonce));
  hello.member = self;
  // The root knows more about a time-out than this rank does, so this one waits longer.
  end_ = Clock::now() + limit + std::chrono::seconds(15);
  socket_.send(&hello, sizeof(hello), end_, name);
  Answer answer{};
  socket_.receive(&answer, sizeof(answer), end_, name);
  if (!answer.good) throw Error(HCCL_E_PARA, answer.text);
  std::vector<Member> members(answer.members);
  socket_.receive(members.data(), members.size() * sizeof(Member), end_, name);
  for (const Member& member : members) {
    if (settings.whitelist && !settings.allowed.count(member.address)) {
      agree(format("rank %u at %s is not in HCCL_WHITELIST_FILE %s, and HCCL_WHITELIST_DISABLE is 0", member.rank,
                   member.address, settings.whitelist_file.c_str()));
    }
  }
  return members;
}

void Meeting::agree(const std::string& problem) {
  const Answer mine = answer_of(problem);
  socket_.send(&mine, sizeof(mine), end_, "the root of the communicator");
  Answer all{};
  socket_.receive(&all, sizeof(all), end_, "the root of the communicator");
  if (!all.good) throw Error(HCCL_E_REMOTE, all.text);
}

}  // namespace hccl_sim
