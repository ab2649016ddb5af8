#pragma once
// Bytes to and from peers on other hosts, all connections at once: whoever only sends before it receives would wait for
// a peer that does the same.

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>

#include "operation.h"

namespace hccl_sim {

class Exchange {
 public:
  explicit Exchange(const Operation& operation) : operation_(operation) {}
  // In the order of the calls for each peer. The memory must live until run() returns.
  void send(uint32_t rank, const void* data, size_t bytes);
  // `check` is called when the bytes are there, before the next ones of that peer are taken; it may throw.
  void receive(uint32_t rank, void* data, size_t bytes, std::function<void()> check = nullptr);
  void run();

 private:
  struct Part {
    char* data;
    size_t bytes;
    std::function<void()> check;
  };
  struct Line {
    std::deque<Part> out, in;
  };
  bool push(uint32_t rank, std::deque<Part>& parts);
  bool pull(uint32_t rank, std::deque<Part>& parts);

  const Operation& operation_;
  std::map<uint32_t, Line> lines_;
};

}  // namespace hccl_sim
