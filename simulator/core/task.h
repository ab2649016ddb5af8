#pragma once
// One piece of queued work. Tasks are copied bit by bit from the submitting call into a stream's nodes.

#include <acl/acl.h>
#include <acl/acl_simulator_extension.h>

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace [[gnu::visibility("hidden")]] acl_sim {

struct CompiledOp;
struct DumpTicket;
struct Event;
struct Graph;
struct Report;

enum class TaskKind : uint8_t { Op, Copy, Fill, Record, Wait, Reset, Callback, External, Graph };

enum class OpFault : uint8_t { None, Scale, Error, Hang };

// Operands beyond the inline room of OpLaunch, in one block from malloc: the addresses, then host values.
struct OpSpill {
  void** operands;
};

// Inputs, then outputs. Device operands are alias addresses; host operands are copied into `values` and stored as
// offsets, because a launch is moved.
struct OpLaunch {
  static constexpr size_t kInline = 12;
  static constexpr size_t kValueBytes = 64;

  const CompiledOp* op;
  OpSpill* spill;
  uint32_t host_operands;  // bit i: operand i is an offset into `values`
  OpFault fault;
  bool lent;  // `spill` belongs to a graph, see Note [Capture]
  float fault_scale;
  DumpTicket* dump;  // its operands go to a file, see exec/watching/dump.h
  void* operands[kInline];
  alignas(16) char values[kValueBytes];

  void* operand(size_t i) {
    if (__builtin_expect(spill != nullptr, 0)) return spill->operands[i];
    return host_operands >> i & 1 ? values + reinterpret_cast<size_t>(operands[i]) : operands[i];
  }
};

struct CopyWork {
  void* to;          // alias or host address
  const void* from;  // alias or host address
  size_t bytes;
  int value;      // of a Fill
  void* owned;    // a staged copy of host memory, freed afterwards
  bool pageable;  // `from` may change or go once the copy has been submitted
};

struct EventWork {
  Event* event;
  uint64_t generation;
};

struct CallbackWork {
  aclrtCallback function;
  void* data;
  Report* report;  // of the thread that runs callbacks of this stream
  bool block;
};

// Work of another library of the simulator, see aclsimLaunch.
struct ExternalWork {
  const char* name;
  aclsimFunction run;
  aclsimReady ready;  // may be null
  void* data;
  OpFault fault;
  float fault_scale;
};

// A whole graph, see Note [Capture].
struct GraphWork {
  Graph* graph;
};

struct Task {
  uint64_t id;
  uint64_t number;       // for the profiler; 0: submitted while nobody watched
  uint64_t correlation;  // the three are set with the number only
  int64_t submitted;
  uint32_t thread;
  TaskKind kind;
  bool tiny;    // may run on the thread that submits or waits
  bool modest;  // may do so on a busy machine
  bool narrow;  // an operator that one thread computes
  bool brief;   // an operator that takes no longer than handing it to another thread
  union {
    OpLaunch op;
    CopyWork copy;
    EventWork event;
    CallbackWork callback;
    ExternalWork external;
    GraphWork graph;
  };
};
static_assert(std::is_trivially_copyable_v<Task>);

}  // namespace acl_sim
