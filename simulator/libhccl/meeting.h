#pragma once
// How the ranks of a new communicator find each other: one makes the root info and serves; every rank connects there,
// tells who it is, gets the table of all, and learns whether all have succeeded in what they do with it.

#include <hccl/hccl_types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "net.h"
#include "settings.h"

namespace hccl_sim {

// The content of an HcclRootInfo.
struct Root {
  uint64_t magic;
  uint8_t nonce[16];  // tells this meeting from any other on the same port
  char address[64];
  uint16_t port;
};

// What a rank tells the others. Sent as it lies in memory: all ranks run the same build.
struct Member {
  uint32_t rank, ranks;
  int32_t pid;
  int32_t device;       // physical number
  int32_t memory_file;  // descriptors of that process
  int32_t slot_file;
  uint64_t memory_bytes, slot_bytes;
  char host[160];
  char address[64];
  uint16_t port;
};

// Starts the server in a thread of its own, which ends with the meeting or its time-out.
void open_meeting(HcclRootInfo* info);
// Throws Error(HCCL_E_PARA) for bytes that open_meeting has not written.
Root root_of(const HcclRootInfo& info);

class Meeting {
 public:
  // Gives the members by rank, or throws what is wrong with this or any other rank.
  std::vector<Member> join(const Root& root, const Member& self, const Settings& settings);
  // All ranks call it: "" or the reason why this rank cannot go on. Throws if any cannot.
  void agree(const std::string& problem);

 private:
  Socket socket_;
  Deadline end_;
};

}  // namespace hccl_sim
