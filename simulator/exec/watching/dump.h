#pragma once
// Dumping operands (aclmdlInitDump, aclmdlSetDump, aclmdlFinalizeDump, the "dump" object of aclInit's file).
//
// Note [Dump]
// Whether a launch is dumped is settled when the host launches it: the launch then carries a ticket, which keeps the
// configuration of that moment. The device writes one file when it has executed the operator, in the order of its
// stream, so a file shows what the operator read and wrote although the host is long past it. Inputs that the operator
// may overwrite are copied before. A launch without a ticket pays for one test.
//
// A file: the length of the header (8 bytes, little-endian), the header (protobuf message DumpData), then the bytes of
// the inputs and of the outputs. It lies at {dump_path}/{time}/{device}/{model}/{data index} and is called
// {op_type}.{op_name}.{task}.{stream}.{time stamp in us}. tools/msaccucmp/acl_dump.py reads it.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

#include "core/json.h"
#include "core/task.h"
#include "exec/watching/kept_inputs.h"

namespace [[gnu::visibility("hidden")]] acl_sim {

class Device;
struct CompiledOp;
struct DumpTicket;
struct Stream;

namespace detail {
extern std::atomic<bool> dumping;
DumpTicket* make_ticket();
}  // namespace detail

// For the launching thread: nullptr when nothing is dumped.
inline DumpTicket* dump_ticket() {
  return __builtin_expect(detail::dumping.load(std::memory_order_relaxed), 0) ? detail::make_ticket() : nullptr;
}
void drop_ticket(DumpTicket* ticket) noexcept;
// Whether only operators that overflow are dumped ("dump_debug").
bool dumps_overflow_only(const DumpTicket& ticket);

// Starts dumping as the "dump" object of a configuration says, instead of what an earlier one said. `path` is for
// messages. Nothing changes when it throws Error, ACL_ERROR_INVALID_DUMP_CONFIG or ACL_ERROR_INVALID_FILE.
void start_dump(const std::string& path, const Json& configuration);
void end_dump();

// One operator's operands on the way to a file; made and used on the thread that executes it.
class OperandDump {
 public:
  OperandDump(const DumpTicket& ticket, const CompiledOp& op, OpLaunch& launch, Device& device);

  // Copies the inputs that share memory with an output.
  void before();
  // Writes the file. Throws Error(ACL_ERROR_WRITE_FILE) naming it.
  void after(const Stream& stream, uint64_t task);

 private:
  const DumpTicket& ticket_;
  const CompiledOp& op_;
  OpLaunch& launch_;
  Device& device_;
  KeptInputs kept_;
};

}  // namespace acl_sim
