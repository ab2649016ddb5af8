#include "net.h"

#include "guard.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <thread>

namespace hccl_sim {
namespace {

struct Address {
  sockaddr_storage storage{};
  socklen_t size = 0;
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
};

Address address_of(const std::string& text, uint16_t port) {
  Address address;
  auto* v4 = reinterpret_cast<sockaddr_in*>(&address.storage);
  auto* v6 = reinterpret_cast<sockaddr_in6*>(&address.storage);
  if (::inet_pton(AF_INET, text.c_str(), &v4->sin_addr) == 1) {
    v4->sin_family = AF_INET;
    v4->sin_port = htons(port);
    address.size = sizeof(sockaddr_in);
  } else if (::inet_pton(AF_INET6, text.c_str(), &v6->sin6_addr) == 1) {
    v6->sin6_family = AF_INET6;
    v6->sin6_port = htons(port);
    address.size = sizeof(sockaddr_in6);
  } else {
    throw Error(HCCL_E_PARA, format("'%s' is no IPv4 or IPv6 address", text.c_str()));
  }
  return address;
}

int milliseconds_to(Deadline end) {
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now()).count();
  return static_cast<int>(std::clamp<int64_t>(left, 0, 1000));
}

// Waits for readiness in slices of at most a second; false when the deadline has passed.
bool ready(int fd, short what, Deadline end) {
  for (;;) {
    pollfd entry{fd, what, 0};
    const int found = ::poll(&entry, 1, milliseconds_to(end));
    if (found > 0) return true;
    if (found < 0 && errno != EINTR) return true;  // the call that follows reports it
    if (Clock::now() >= end) return false;
  }
}

void make_plain(int fd) {
  ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_NONBLOCK);
  const int on = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

// The descriptors of all sockets, a bit each: a fork may come at any time, so its handler takes no lock. Descriptors
// past these are as rare as harmless: a peer then waits for the child, too.
constexpr size_t kWatched = size_t{1} << 16;
std::atomic<uint64_t> watched[kWatched / 64];

void watch(int fd, bool open) {
  if (fd < 0 || static_cast<size_t>(fd) >= kWatched) return;
  const uint64_t bit = uint64_t{1} << (fd % 64);
  if (open) {
    watched[fd / 64].fetch_or(bit);
  } else {
    watched[fd / 64].fetch_and(~bit);
  }
}

void drop_in_child() {
  const int nowhere = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  for (size_t i = 0; i < kWatched / 64; ++i) {
    for (uint64_t bits = watched[i].load(); bits != 0; bits &= bits - 1) {
      const int fd = static_cast<int>(i * 64) + __builtin_ctzll(bits);
      if (nowhere >= 0) {
        ::dup3(nowhere, fd, O_CLOEXEC);
      } else {
        ::close(fd);
      }
    }
  }
  if (nowhere >= 0) ::close(nowhere);
}

}  // namespace

Socket::Socket(int fd) : fd_(fd) {
  static const int registered = ::pthread_atfork(nullptr, nullptr, drop_in_child);
  static_cast<void>(registered);
  watch(fd, true);
}

void Socket::close() {
  if (fd_ < 0) return;
  watch(fd_, false);
  ::close(fd_);
  fd_ = -1;
}

void Socket::shut() const {
  if (fd_ >= 0) ::shutdown(fd_, SHUT_RDWR);
}

void Socket::send(const void* data, size_t bytes, Deadline end, const std::string& peer) const {
  const char* at = static_cast<const char*>(data);
  while (bytes > 0) {
    if (!ready(fd_, POLLOUT, end)) throw Error(HCCL_E_TIMEOUT, "sending to " + peer + " timed out");
    const ssize_t sent = ::send(fd_, at, bytes, MSG_NOSIGNAL);
    if (sent < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (sent <= 0)
      throw Error(HCCL_E_TCP_TRANSFER, format("sending to %s failed: %s", peer.c_str(), std::strerror(errno)));
    at += sent;
    bytes -= static_cast<size_t>(sent);
  }
}

void Socket::receive(void* data, size_t bytes, Deadline end, const std::string& peer) const {
  char* at = static_cast<char*>(data);
  while (bytes > 0) {
    if (!ready(fd_, POLLIN, end)) throw Error(HCCL_E_TIMEOUT, "nothing came from " + peer + " in time");
    const ssize_t got = ::recv(fd_, at, bytes, 0);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (got == 0) throw Error(HCCL_E_TCP_TRANSFER, peer + " has closed the connection");
    if (got < 0) throw Error(HCCL_E_TCP_TRANSFER, format("%s: %s", peer.c_str(), std::strerror(errno)));
    at += got;
    bytes -= static_cast<size_t>(got);
  }
}

Listener listen_on(const std::string& text) {
  const Address address = address_of(text, 0);
  Listener listener;
  listener.socket = Socket(::socket(address.get()->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_storage bound{};
  socklen_t size = sizeof(bound);
  const int fd = listener.socket.fd();
  if (fd < 0 || ::bind(fd, address.get(), address.size) != 0 || ::listen(fd, 1024) != 0 ||
      ::getsockname(fd, reinterpret_cast<sockaddr*>(&bound), &size) != 0) {
    throw Error(HCCL_E_TCP_CONNECT,
                format("cannot listen on %s: %s; HCCL_IF_IP or HCCL_SOCKET_IFNAME choose an address of this host",
                       text.c_str(), std::strerror(errno)));
  }
  ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_NONBLOCK);
  listener.port = ntohs(bound.ss_family == AF_INET ? reinterpret_cast<sockaddr_in*>(&bound)->sin_port
                                                   : reinterpret_cast<sockaddr_in6*>(&bound)->sin6_port);
  return listener;
}

Socket connect_to(const std::string& text, uint16_t port, Deadline end, const std::string& peer) {
  const Address address = address_of(text, port);
  int problem = 0;
  do {
    Socket socket(::socket(address.get()->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (!socket) throw Error(HCCL_E_SYSCALL, format("no socket: %s", std::strerror(errno)));
    make_plain(socket.fd());
    if (::connect(socket.fd(), address.get(), address.size) == 0) return socket;
    problem = errno;
    if (problem == EINPROGRESS) {
      if (!ready(socket.fd(), POLLOUT, end)) {
        problem = ETIMEDOUT;
        break;
      }
      socklen_t size = sizeof(problem);
      ::getsockopt(socket.fd(), SOL_SOCKET, SO_ERROR, &problem, &size);
      if (problem == 0) return socket;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  } while (Clock::now() < end);
  throw Error(HCCL_E_TCP_CONNECT,
              format("connect() to %s at %s port %u timed out or failed: %s. A firewall may block the port, or the "
                     "address may be of an interface that this host does not reach: HCCL_SOCKET_IFNAME or HCCL_IF_IP "
                     "of the other side choose another",
                     peer.c_str(), text.c_str(), port, std::strerror(problem)));
}

Socket accept_from(const Listener& listener, Deadline end, std::string* text) {
  for (;;) {
    if (!ready(listener.socket.fd(), POLLIN, end)) return Socket();
    sockaddr_storage from{};
    socklen_t size = sizeof(from);
    Socket socket(::accept4(listener.socket.fd(), reinterpret_cast<sockaddr*>(&from), &size, SOCK_CLOEXEC));
    if (!socket) {
      if (errno == EAGAIN || errno == EINTR || errno == ECONNABORTED) continue;
      throw Error(HCCL_E_SYSCALL, format("accept failed: %s", std::strerror(errno)));
    }
    make_plain(socket.fd());
    char name[INET6_ADDRSTRLEN] = "";
    if (from.ss_family == AF_INET) {
      ::inet_ntop(AF_INET, &reinterpret_cast<sockaddr_in*>(&from)->sin_addr, name, sizeof(name));
    } else {
      ::inet_ntop(AF_INET6, &reinterpret_cast<sockaddr_in6*>(&from)->sin6_addr, name, sizeof(name));
    }
    *text = name;
    return socket;
  }
}

}  // namespace hccl_sim
