// From a call of aclop* to a task in a stream.

#include "exec/running/launch.h"

#include "core/capture.h"
#include "core/context.h"
#include "core/device.h"
#include "core/fault.h"
#include "core/stream.h"
#include "exec/compilation/compile_cache.h"
#include "exec/watching/dump.h"

#include <cstdlib>
#include <cstring>

namespace acl_sim {
namespace {

void check_call(const Description& d, const void* input_buffers, const void* output_buffers) {
  if (!d.type || !*d.type) throw Error(ACL_ERROR_INVALID_PARAM, "the operator type is null or empty");
  if (d.inputs < 0 || d.outputs < 0 || d.inputs >= (1 << 20) || d.outputs >= (1 << 20)) {
    throw Error(ACL_ERROR_INVALID_PARAM,
                format("%s: %d inputs and %d outputs are impossible", d.type, d.inputs, d.outputs));
  }
  if ((d.inputs > 0 && (!d.input || !input_buffers)) || (d.outputs > 0 && (!d.output || !output_buffers))) {
    throw Error(ACL_ERROR_INVALID_PARAM, std::string(d.type) + ": an array of descriptions or buffers is null");
  }
  if (d.attr && !d.attr->valid())
    throw Error(ACL_ERROR_INVALID_PARAM, std::string(d.type) + ": the attributes are not a live aclopAttr");
}

[[noreturn]] void bad_buffer(const CompiledOp& op, size_t i, const std::string& reason) {
  const bool input = i < op.inputs.size();
  throw Error(ACL_ERROR_INVALID_PARAM, op.describe() + ": " + (input ? "input " : "output ") +
                                           std::to_string(input ? i : i - op.inputs.size()) + " " + reason);
}

[[gnu::noinline]] void refuse_buffer(const CompiledOp& op, size_t i, const aclDataBuffer* buffer) {
  const auto& operand = op.operand(i);
  if (!buffer || !buffer->valid())
    bad_buffer(op, i, buffer ? "has a buffer that is not a live aclDataBuffer" : "has no buffer");
  if (buffer->size < operand.bytes)
    bad_buffer(op, i, format("needs %zu bytes, its buffer has %zu", operand.bytes, buffer->size));
  bad_buffer(op, i, "has a null address");
}

inline const aclDataBuffer& checked_buffer(const CompiledOp& op, const Operand& operand, size_t i,
                                           const aclDataBuffer* buffer) {
  const bool fine = buffer && buffer->valid() && buffer->size >= operand.bytes && (buffer->data || operand.bytes == 0);
  if (__builtin_expect(!fine, 0)) refuse_buffer(op, i, buffer);
  return *buffer;
}

// Host operands are copied into the launch, or into one block beside it when they are many or large.
void take_host_operands(const CompiledOp& op, OpLaunch& launch, const aclDataBuffer* const* inputs,
                        const aclTensorDesc* const* descs) {
  size_t bytes = 0;
  for (const auto& operand : op.inputs)
    bytes += operand.host && !operand.absent ? (operand.bytes + 15) & ~size_t{15} : 0;
  const size_t operands = op.inputs.size() + op.outputs.size();
  char* room = launch.values;
  if (bytes > OpLaunch::kValueBytes || operands > OpLaunch::kInline) {
    const size_t table = (sizeof(OpSpill) + operands * sizeof(void*) + 15) & ~size_t{15};
    auto* block = static_cast<char*>(std::malloc(table + bytes));
    if (!block) throw std::bad_alloc();
    launch.spill = reinterpret_cast<OpSpill*>(block);
    launch.spill->operands = reinterpret_cast<void**>(block + sizeof(OpSpill));
    room = block + table;
  }
  size_t at = 0;
  for (size_t i = 0; i < op.inputs.size(); ++i) {
    const auto& operand = op.inputs[i];
    if (!operand.host || operand.absent) continue;
    const auto& constant = descs[i]->constant;
    const void* from = constant.size() >= operand.bytes && !constant.empty()
                           ? constant.data()
                           : checked_buffer(op, operand, i, inputs[i]).data;
    if (operand.bytes) std::memcpy(room + at, from, operand.bytes);
    if (launch.spill) {
      launch.spill->operands[i] = room + at;
    } else {
      launch.host_operands |= uint32_t{1} << i;
      launch.operands[i] = reinterpret_cast<void*>(at);
    }
    at += (operand.bytes + 15) & ~size_t{15};
  }
}

// The address at which the device reaches operand i.
[[gnu::always_inline]] inline void* device_operand(const CompiledOp& op, const Operand& operand, const Device& device,
                                                   size_t i, const aclDataBuffer* buffer) {
  if (operand.absent) return nullptr;
  const auto& b = checked_buffer(op, operand, i, buffer);
  if (__builtin_expect(!device.in_window(b.data) && operand.bytes > 0, 0)) {
    bad_buffer(op, i, format("at %p is not memory of device %d", b.data, device.id));
  }
  return device.alias(b.data);
}

}  // namespace

aclError compile_only(const Description& d) {
  check_call(d, d.input, d.output);
  const Context* context = current_context_or_null();
  bool fresh = false;
  LaunchScope().find_and_keep(d, &fresh);
  if (fresh && context) context->device->counters.ops_compiled.fetch_add(1, std::memory_order_relaxed);
  return ACL_SUCCESS;
}

aclError launch(const Description& d, const aclDataBuffer* const* inputs, aclDataBuffer* const* outputs,
                aclrtStream handle, bool only_known) {
  check_call(d, inputs, outputs);
  Stream& stream = submit_stream_of(handle);
  Device& device = *stream.device;
  bool fresh = false;
  LaunchScope scope;
  const CompiledOp& op = scope.find(d, only_known, &fresh);
  if (__builtin_expect(fresh, 0)) device.counters.ops_compiled.fetch_add(1, std::memory_order_relaxed);

  Task task;
  task.kind = TaskKind::Op;
  task.tiny = op.tiny;
  task.modest = op.modest;
  task.narrow = op.narrow;
  task.brief = op.tiny_loop;
  OpLaunch& launch = task.op;
  launch.op = &op;
  launch.spill = nullptr;
  launch.host_operands = 0;
  launch.fault = OpFault::None;
  launch.lent = false;
  launch.fault_scale = 1;
  launch.dump = nullptr;
  const size_t input_count = op.inputs.size(), count = input_count + op.outputs.size();
  try {
    if (__builtin_expect(op.host_inputs || count > OpLaunch::kInline, 0))
      take_host_operands(op, launch, inputs, d.input);
    void** addresses = launch.spill ? launch.spill->operands : launch.operands;
    for (size_t i = 0; i < input_count; ++i) {
      const auto& operand = op.inputs[i];
      if (!operand.host) addresses[i] = device_operand(op, operand, device, i, inputs[i]);
    }
    for (size_t i = input_count; i < count; ++i) {
      addresses[i] = device_operand(op, op.outputs[i - input_count], device, i, outputs[i - input_count]);
    }
  } catch (...) {
    std::free(launch.spill);
    throw;
  }

  // A launch that is captured runs later, maybe often: faults and dumps are looked up then.
  if (__builtin_expect(stream.capture.load(std::memory_order_relaxed) != nullptr, 0)) {
    stream.submit(task);
    return ACL_SUCCESS;
  }
  inject_into_launch(d.type, launch, device);
  if (__builtin_expect(device.lost.load(std::memory_order_relaxed), 0)) {
    std::free(launch.spill);
    device.counters.ops_launched.fetch_add(1, std::memory_order_relaxed);
    return report(
        ACL_ERROR_RT_LOST_HEARTBEAT,
        format("%s: device %d is lost; start the process again, or reset it with aclrtResetDevice", d.type, device.id));
  }
  launch.dump = dump_ticket();
  // The host neither waits for hung hardware nor for a file.
  if (__builtin_expect(launch.fault == OpFault::Hang || launch.dump, 0)) task.tiny = task.modest = false;
  stream.submit(task);
  return ACL_SUCCESS;
}

}  // namespace acl_sim
