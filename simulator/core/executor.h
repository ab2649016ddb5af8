#pragma once
// What the core asks of whoever executes operators: the folder exec implements it, so that the core includes nothing of
// operators or tensors.

#include <cstddef>

#include "core/task.h"

namespace [[gnu::visibility("hidden")]] acl_sim {

struct Stream;
class Device;

// Runs one launch of a compiled operator on the calling thread. A failure marks the stream; nothing is thrown.
void run_op(Stream& stream, Task& task) noexcept;
// Frees what a launch owns; every launch ends in exactly one of run_op and drop_op.
void drop_op(Task& task) noexcept;

// For Note [Capture]. A recorded launch lends what it owns to its copies, until it is taken back; a copy is made ready
// for a run, for which faults and dumps are looked up anew.
void lend_op(Task& task) noexcept;
void take_back_op(Task& task) noexcept;
void prepare_replay(Task& task, Device& device) noexcept;

// For the profiler, see core/profile.h: the number of a launch's text, and the bytes of its operands on the device. The
// text has fields between tabs: type, AI_CORE or AI_CPU, the inputs' shapes, dtypes and formats, those of the outputs,
// attributes; shapes as "2,3;4", the others with semicolons, too.
uint32_t describe_op(const Task& task, uint64_t* bytes) noexcept;

// Told once on each worker thread, before it runs anything.
void prepare_worker_thread();
// Before the first device is opened and the process's end is watched: makes what has to outlive the workers.
void prepare_process();
// Sets how many threads the calling worker's kernels may use.
void set_team(int threads);
// From now on teams take no more than this process's share of the cores, which `processes` divide among them. What
// ASCEND_SIM_THREADS or OMP_NUM_THREADS say comes first.
void share_cores(int processes);

// Raw bytes of device memory (alias addresses) pass by the operators: what is stored there in another layout than the
// host's is put right. before_raw_write is for a range that will be overwritten as a whole.
void copy_from_device(Device& device, void* to, const void* from, size_t bytes);
// From one device's memory to another's, or within one: what is stored in a layout of the device's stays so.
void copy_between_devices(Device& target, void* to, Device& source, const void* from, size_t bytes);
void before_raw_write(Device& device, void* alias, size_t bytes);
// Puts a range right in place, for readers that know nothing of stored layouts.
void before_raw_read(Device& device, void* alias, size_t bytes);
// The order in which a range's elements lie: LayoutMap::order.
uint64_t stored_order(Device& device, const void* alias, size_t bytes);

// Copies bytes between any two readable places, with the calling thread's team if they are many.
void copy_bytes(void* to, const void* from, size_t bytes);

// Memory for passing needs of the device, such as a staged copy: Note [Scratch].
void* take_scratch(size_t bytes);
void give_scratch(void* block);

}  // namespace acl_sim
