#pragma once
// One operation between its call and its end: what the caller has asked for, and the algorithms that do it.

#include <acl/acl.h>
#include <acl/acl_simulator_extension.h>
#include <hccl/hccl.h>

#include <memory>
#include <string>
#include <vector>

#include "comm.h"
#include "slot.h"

namespace hccl_sim {

// A range of this rank's device memory.
struct Range {
  void* pointer = nullptr;  // as the caller gives it
  char* data = nullptr;     // where this process reads and writes it
  uint64_t offset = 0;      // in the device's file
  uint64_t bytes = 0;
};

// Throws Error(HCCL_E_PARA) for memory that is not a live block of a device.
Range range_of(const void* pointer, uint64_t bytes, const char* what);

struct Item {
  bool sends = false;
  uint32_t rank = 0;
  HcclDataType type = HCCL_DATA_TYPE_INT8;
  uint64_t count = 0;
  Range range;
};

struct Operation {
  std::shared_ptr<Comm> comm;
  Kind kind = Kind::Barrier;
  uint64_t order = 0;  // among the communicator's operations on this rank
  HcclDataType type = HCCL_DATA_TYPE_INT8;
  HcclReduceOp op = HCCL_REDUCE_SUM;
  uint32_t root = 0;
  uint64_t count = 0;  // as the caller gives it
  Range send, recv;
  std::vector<uint64_t> send_bytes, send_at, recv_bytes, recv_at;  // of AlltoAllV, by rank
  std::vector<Item> items;                                         // of point-to-point operations
  std::string note;

  uint64_t number = 0;  // among the collectives of all ranks, given when it runs
  bool posted = false;  // for ranks of this host to see
  bool met = false;     // peers on other hosts have this rank's post
  Deadline deadline;
  const aclsimTask* task = nullptr;

  size_t element() const;
  std::string describe() const;
};

const char* kind_name(Kind kind);
std::string describe(const Post& post);

// Run on the stream's thread; throw Error or Stopped.
void run_collective(Operation& operation);
void run_point_to_point(Operation& operation);

// Posts a collective whose turn it is. Returns whether nothing is left to wait for: all that ranks of one host give to
// it fits into their posts, so that meeting once is enough, and the others have posted it, too.
bool begin_collective(Operation& operation);

// What aclsimLaunch calls.
aclError run_operation(void* data, const aclsimTask* task, char* reason, size_t length);
int32_t begin_operation(void* data);

}  // namespace hccl_sim
