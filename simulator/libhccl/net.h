#pragma once
// Sockets with bounds: every call ends by a deadline and says what went wrong with whom.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

namespace hccl_sim {

using Clock = std::chrono::steady_clock;
using Deadline = Clock::time_point;

class Socket {
 public:
  Socket() = default;
  // In a forked child a socket leads nowhere, so that the connection ends with the process that made it.
  explicit Socket(int fd);
  Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Socket() { close(); }

  int fd() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  void close();
  // Ends both directions, so that the peer and any thread that waits here notice.
  void shut() const;

  // All bytes or an Error. `peer` names the other side in texts.
  void send(const void* data, size_t bytes, Deadline end, const std::string& peer) const;
  void receive(void* data, size_t bytes, Deadline end, const std::string& peer) const;

 private:
  int fd_ = -1;
};

struct Listener {
  Socket socket;
  uint16_t port = 0;
};

Listener listen_on(const std::string& address);
Socket connect_to(const std::string& address, uint16_t port, Deadline end, const std::string& peer);
// The next connection, or an empty socket when the deadline has passed.
Socket accept_from(const Listener& listener, Deadline end, std::string* address);

}  // namespace hccl_sim
