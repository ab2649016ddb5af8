#include "core/peers.h"

#include <array>
#include <atomic>
#include <cstdint>

namespace acl_sim {
namespace {

constexpr int kMostDevices = 64;

std::array<std::atomic<uint64_t>, kMostDevices> peers{};  // a bit for each peer

}  // namespace

void set_peer(int device, int peer, bool may_copy) {
  const uint64_t bit = uint64_t{1} << peer;
  auto& mine = peers[static_cast<size_t>(device)];
  if (may_copy) {
    mine.fetch_or(bit);
  } else {
    mine.fetch_and(~bit);
  }
}

bool are_peers(int one, int other) {
  return (peers[static_cast<size_t>(one)].load() >> other & 1) != 0 ||
         (peers[static_cast<size_t>(other)].load() >> one & 1) != 0;
}

}  // namespace acl_sim
