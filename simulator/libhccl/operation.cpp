#include "operation.h"

#include <cstring>
#include <iterator>

#include "acl_functions.h"
#include "guard.h"
#include "reduce.h"

namespace hccl_sim {
namespace {

bool point_to_point(Kind kind) { return kind == Kind::Send || kind == Kind::Recv || kind == Kind::BatchSendRecv; }

bool reduces(Kind kind) { return kind == Kind::AllReduce || kind == Kind::ReduceScatter || kind == Kind::Reduce; }

std::string text_of(Kind kind, HcclDataType type, HcclReduceOp op, uint32_t root, uint64_t count, const char* note) {
  std::string text = kind_name(kind);
  if (kind != Kind::Barrier && kind != Kind::AlltoAllV && !point_to_point(kind)) {
    text += format("(count=%llu, %s", static_cast<unsigned long long>(count), type_name(type));
    if (reduces(kind)) text += std::string(", ") + reduce_name(op);
    if (kind == Kind::Broadcast || kind == Kind::Reduce || kind == Kind::Scatter) text += format(", root=%u", root);
    text += ")";
  }
  return *note ? text + " [" + note + "]" : text;
}

// A fault on demand: the operation fails here, or never comes.
void suffer(const Operation& operation) {
  if (operation.task->fault == 2) throw Error(HCCL_E_INTERNAL, "fault on demand (ASCEND_SIM_FAULT)");
  while (operation.task->fault == 3) {
    operation.comm->own_slot().sleep(operation.comm->own_slot().bell.load(), 20);
    operation.comm->check(operation.task, operation.deadline, operation);
  }
}

}  // namespace

const char* kind_name(Kind kind) {
  static const char* const names[] = {"HcclAllReduce", "HcclBroadcast",     "HcclAllGather", "HcclReduceScatter",
                                      "HcclReduce",    "HcclScatter",       "HcclAlltoAll",  "HcclAlltoAllV",
                                      "HcclBarrier",   "HcclBatchSendRecv", "HcclSend",      "HcclRecv"};
  const auto i = static_cast<size_t>(kind);
  return i < std::size(names) ? names[i] : "an unknown operation";
}

std::string describe(const Post& post) {
  return format("operation %llu: ", static_cast<unsigned long long>(post.number)) +
         text_of(post.kind, post.type, post.op, post.root, post.count, post.note);
}

size_t Operation::element() const { return kind == Kind::Barrier ? 1 : element_size(type); }

std::string Operation::describe() const {
  const std::string text = text_of(kind, type, op, root, count, note.c_str());
  return number ? format("operation %llu: ", static_cast<unsigned long long>(number)) + text : text;
}

Range range_of(const void* pointer, uint64_t bytes, const char* what) {
  Range range{const_cast<void*>(pointer), nullptr, 0, bytes};
  if (bytes == 0) return range;
  if (!pointer) throw Error(HCCL_E_PTR, std::string("the ") + what + " is null");
  aclsimMemory memory{};
  if (aclsimFindMemory(pointer, bytes, &memory) != ACL_SUCCESS) {
    const char* why = aclGetRecentErrMsg();
    throw Error(HCCL_E_PARA, std::string("the ") + what + ": " + (why ? why : "is not memory of a device"));
  }
  if (memory.offset == UINT64_MAX)
    throw Error(HCCL_E_NOT_SUPPORT, std::string("the ") + what + " was mapped with aclrtMapMem; use aclrtMalloc");
  range.data = static_cast<char*>(memory.alias);
  range.offset = memory.offset;
  return range;
}

int32_t begin_operation(void* data) {
  auto& operation = *static_cast<Operation*>(data);
  try {
    return !point_to_point(operation.kind) && operation.comm->has_turn(operation.order) && begin_collective(operation);
  } catch (const std::exception&) {
    return 0;  // run_operation meets it again, and has somewhere to report it
  }
}

aclError run_operation(void* data, const aclsimTask* task, char* reason, size_t length) {
  const std::unique_ptr<Operation> operation(static_cast<Operation*>(data));
  Comm& comm = *operation->comm;
  if (!task) {
    comm.fail(HCCL_E_SUSPENDING, "rank " + std::to_string(comm.rank()) + " dropped " + operation->describe() +
                                     ": its stream was destroyed or its process ends");
    comm.end_turn();
    return ACL_SUCCESS;
  }
  operation->task = task;
  aclError code = ACL_SUCCESS;
  std::string text;
  HcclResult result = HCCL_E_INTERNAL;
  try {
    comm.take_turn(operation->order, task);
    operation->deadline = comm.operation_deadline();
    suffer(*operation);
    point_to_point(operation->kind) ? run_point_to_point(*operation) : run_collective(*operation);
    if (task->fault == 1 && operation->recv.bytes > 0) {
      scale(operation->type, operation->recv.data, operation->recv.bytes / operation->element(), task->scale);
    }
    comm.end_turn();
    return ACL_SUCCESS;
  } catch (const Stopped&) {
    result = HCCL_E_SUSPENDING;
    text = "the stream was aborted, or the process ends";
  } catch (const Error& error) {
    result = error.code;
    text = error.what();
  } catch (const std::exception& error) {
    text = error.what();
  }
  code = result == HCCL_E_TIMEOUT ? ACL_ERROR_RT_TASK_TIMEOUT : ACL_ERROR_RT_AICPU_EXCEPTION;
  const std::string whole = format("rank %u of %u, %s: %s: %s", comm.rank(), comm.size(), operation->describe().c_str(),
                                   code_name(result), text.c_str());
  comm.tell_remote(*operation, whole);
  comm.fail(result, whole);
  comm.end_turn();
  std::strncpy(reason, whole.c_str(), length - 1);
  return code;
}

}  // namespace hccl_sim
