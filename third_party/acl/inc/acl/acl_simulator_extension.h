#pragma once
// What the simulator's libraries ask of each other: libhccl puts work of its own into the order of libascendcl's
// streams. No CANN library has these functions, and the host calls none of them.

#include "acl_rt.h"

// For the simulator's other libraries, which put work of their own into a stream's order (libhccl).
typedef struct aclsimTask {
  void* stream;
  int32_t fault;  // 0 none, 1 the result comes out multiplied by `scale`, 2 an error, 3 a hang
  float scale;
} aclsimTask;

// Runs on the stream's thread, or on the submitting one, see aclsimReady. A failure is returned with its reason, which
// marks the stream. With a null task it only frees `data`; each launch ends in exactly one call.
typedef aclError (*aclsimFunction)(void* data, const aclsimTask* task, char* reason, size_t length);

// Called, perhaps several times, by threads of the host when all that is before the work on its stream is done. It may
// begin the work as far as that takes no waiting, and returns whether aclsimFunction would not wait either: then the
// host's thread calls that, too, which spares waking another.
typedef int32_t (*aclsimReady)(void* data);

// Where a range of device memory lies.
typedef struct aclsimMemory {
  void* alias;     // where this process reads and writes it
  int32_t device;  // number of the device in the host, whatever ASCEND_RT_VISIBLE_DEVICES shows
  int32_t file;    // this process's descriptor of the device's memory, which other processes can map
  uint64_t file_bytes;
  uint64_t offset;  // of the range in the file; UINT64_MAX where the range is not the file's own memory
} aclsimMemory;

// aclsimGetOrder tells in which order the device stores a range's elements, as a number: 0 for the host's, UINT64_MAX
// for one that other memory shares, else one that is equal where the order is.

typedef enum aclsimAccess {
  ACLSIM_READ = 0,   // the range gets the host's element order
  ACLSIM_WRITE = 1,  // the range is about to be overwritten as a whole
} aclsimAccess;
