#include "exchange.h"

#include "guard.h"

#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <vector>

namespace hccl_sim {
namespace {

[[noreturn]] void broken(const Comm& comm, const Peer& peer, int problem) {
  // A process that ends before it has read all that was sent resets its connections.
  const bool closed = problem == 0 || problem == ECONNRESET || problem == EPIPE;
  throw Error(HCCL_E_REMOTE, format("rank %u at %s %s (seen by rank %u)", peer.member.rank, peer.member.address,
                                    closed ? "has closed its connection: it has ended, or given up"
                                           : (std::string("cannot be reached: ") + std::strerror(problem)).c_str(),
                                    comm.rank()));
}

}  // namespace

void Exchange::send(uint32_t rank, const void* data, size_t bytes) {
  if (bytes > 0) lines_[rank].out.push_back({static_cast<char*>(const_cast<void*>(data)), bytes, nullptr});
}

void Exchange::receive(uint32_t rank, void* data, size_t bytes, std::function<void()> check) {
  if (bytes > 0) lines_[rank].in.push_back({static_cast<char*>(data), bytes, std::move(check)});
}

bool Exchange::push(uint32_t rank, std::deque<Part>& parts) {
  const Peer& peer = operation_.comm->peer(rank);
  bool moved = false;
  while (!parts.empty()) {
    Part& part = parts.front();
    const ssize_t sent = ::send(peer.socket.fd(), part.data, part.bytes, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && errno == EAGAIN) return moved;
    if (sent < 0) broken(*operation_.comm, peer, errno);
    moved = true;
    part.data += sent;
    part.bytes -= static_cast<size_t>(sent);
    if (part.bytes == 0) parts.pop_front();
  }
  return moved;
}

bool Exchange::pull(uint32_t rank, std::deque<Part>& parts) {
  const Peer& peer = operation_.comm->peer(rank);
  bool moved = false;
  while (!parts.empty()) {
    Part& part = parts.front();
    const ssize_t got = ::recv(peer.socket.fd(), part.data, part.bytes, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) return moved;
    if (got <= 0) broken(*operation_.comm, peer, got < 0 ? errno : 0);
    moved = true;
    part.data += got;
    part.bytes -= static_cast<size_t>(got);
    if (part.bytes > 0) continue;
    const auto check = std::move(part.check);
    parts.pop_front();
    if (check) check();
  }
  return moved;
}

void Exchange::run() {
  Comm& comm = *operation_.comm;
  std::vector<pollfd> waits;
  for (;;) {
    waits.clear();
    bool moved = false;
    for (auto& [rank, line] : lines_) {
      moved = push(rank, line.out) || moved;
      moved = pull(rank, line.in) || moved;
      const short wanted = static_cast<short>((line.out.empty() ? 0 : POLLOUT) | (line.in.empty() ? 0 : POLLIN));
      if (wanted) waits.push_back({comm.peer(rank).socket.fd(), wanted, 0});
    }
    if (waits.empty()) break;
    if (moved) continue;
    if (::poll(waits.data(), waits.size(), 50) == 0) comm.check(operation_.task, operation_.deadline, operation_);
  }
  lines_.clear();
}

}  // namespace hccl_sim
