// The exported functions of libhccl: arguments are checked here, at the call; what can only be known together with the
// other ranks is found when the operation runs.

#include <acl/acl.h>
#include <acl/acl_simulator_extension.h>
#include <hccl/hccl.h>

#include <algorithm>
#include <cstring>
#include <memory>

#include "acl_functions.h"
#include "comm.h"
#include "guard.h"
#include "hccl_api.h"
#include "meeting.h"
#include "operation.h"
#include "reduce.h"

namespace hccl_sim::api {
namespace {

std::unique_ptr<Operation> operation_of(Kind kind) {
  auto operation = std::make_unique<Operation>();
  operation->kind = kind;
  return operation;
}

// An operation on `count` elements; throws for a type or reduction that there is not.
std::unique_ptr<Operation> operation_of(Kind kind, uint64_t count, HcclDataType type) {
  auto operation = operation_of(kind);
  operation->count = count;
  operation->type = type;
  const size_t element = element_size(type);
  if (element == 0) throw Error(HCCL_E_NOT_SUPPORT, format("there is no data type %d", static_cast<int>(type)));
  if (count > (uint64_t{1} << 48) / element)
    throw Error(HCCL_E_PARA, format("a count of %llu is refused", static_cast<unsigned long long>(count)));
  return operation;
}

void set_reduction(Operation& operation, HcclReduceOp op) {
  if (op < HCCL_REDUCE_SUM || op > HCCL_REDUCE_MIN)
    throw Error(HCCL_E_PARA, format("there is no reduction %d", static_cast<int>(op)));
  if (!reducible(operation.type))
    throw Error(HCCL_E_NOT_SUPPORT, format("%s cannot be reduced", type_name(operation.type)));
  operation.op = op;
}

void check_rank(const Comm& comm, uint32_t rank, const char* what) {
  if (rank >= comm.size())
    throw Error(HCCL_E_PARA,
                format("the %s %u is out of range: the communicator has %u ranks", what, rank, comm.size()));
}

HcclResult send_or_receive(Kind kind, void* buffer, uint64_t count, HcclDataType type, uint32_t peer, HcclComm handle,
                           aclrtStream stream) {
  const auto comm = comm_of(handle);
  check_rank(*comm, peer, "peer");
  auto operation = operation_of(kind, count, type);
  operation->items.push_back(
      {kind == Kind::Send, peer, type, count, range_of(buffer, count * element_size(type), "buffer")});
  comm->launch(std::move(operation), stream);
  return HCCL_SUCCESS;
}

}  // namespace

HcclResult HcclGetRootInfo(HcclRootInfo* info) {
  if (!info) throw Error(HCCL_E_PTR, "the root info is null");
  open_meeting(info);
  return HCCL_SUCCESS;
}

HcclResult HcclCommInitRootInfo(uint32_t ranks, const HcclRootInfo* info, uint32_t rank, HcclComm* comm) {
  if (!info || !comm) throw Error(HCCL_E_PTR, "the root info or the result is null");
  *comm = register_comm(Comm::make(ranks, *info, rank));
  return HCCL_SUCCESS;
}

HcclResult HcclCommInitClusterInfo(const char* file, uint32_t, HcclComm*) {
  throw Error(HCCL_E_NOT_SUPPORT, format("a communicator by rank table (%s) is not simulated; use HcclGetRootInfo and "
                                         "HcclCommInitRootInfo",
                                         file ? file : "null"));
}

HcclResult HcclCommDestroy(HcclComm handle) {
  const auto comm = comm_of(handle);
  comm->drain();
  forget_comm(handle);
  comm->abort(format("rank %u has destroyed the communicator", comm->rank()));
  return HCCL_SUCCESS;
}

HcclResult HcclAllReduce(void* send, void* recv, uint64_t count, HcclDataType type, HcclReduceOp op, HcclComm handle,
                         aclrtStream stream) {
  const auto comm = comm_of(handle);
  auto operation = operation_of(Kind::AllReduce, count, type);
  set_reduction(*operation, op);
  operation->send = range_of(send, count * element_size(type), "send buffer");
  operation->recv = range_of(recv, count * element_size(type), "receive buffer");
  comm->launch(std::move(operation), stream);
  return HCCL_SUCCESS;
}

HcclResult HcclBroadcast(void* buffer, uint64_t count, HcclDataType type, uint32_t root, HcclComm handle,
                         aclrtStream stream) {
  const auto comm = comm_of(handle);
  check_rank(*comm, root, "root");
  auto operation = operation_of(Kind::Broadcast, count, type);
  operation->root = root;
  operation->recv = range_of(buffer, count * element_size(type), "buffer");
  if (root == comm->rank()) operation->send = operation->recv;
  comm->launch(std::move(operation), stream);
  return HCCL_SUCCESS;
}

HcclResult HcclAllGather(void* send, void* recv, uint64_t count, HcclDataType type, HcclComm handle,
                         aclrtStream stream) {
  const auto comm = comm_of(handle);
  auto operation = operation_of(Kind::AllGather, count, type);
  operation->send = range_of(send, count * element_size(type), "send buffer");
  operation->recv = range_of(recv, count * element_size(type) * comm->size(), "receive buffer");
  comm->launch(std::move(operation), stream);
  return HCCL_SUCCESS;
}

HcclResult HcclReduceScatter(void* send, void* recv, uint64_t count, HcclDataType type, HcclReduceOp op,
                             HcclComm handle, aclrtStream stream) {
  const auto comm = comm_of(handle);
  auto operation = operation_of(Kind::ReduceScatter, count, type);
  set_reduction(*operation, op);
  operation->send = range_of(send, count * element_size(type) * comm->size(), "send buffer");
  operation->recv = range_of(recv, count * element_size(type), "receive buffer");
  comm->launch(std::move(operation), stream);
  return HCCL_SUCCESS;
}

HcclResult HcclReduce(void* send, void* recv, uint64_t count, HcclDataType type, HcclReduceOp op, uint32_t root,
                      HcclComm handle, aclrtStream stream) {
  const auto comm = comm_of(handle);
  check_rank(*comm, root, "root");
  auto operation = operation_of(Kind::Reduce, count, type);
  set_reduction(*operation, op);
  operation->root = root;
  operation->send = range_of(send, count * element_size(type), "send buffer");
  if (root == comm->rank()) operation->recv = range_of(recv, count * element_size(type), "receive buffer");
  comm->launch(std::move(operation), stream);
  return HCCL_SUCCESS;
}

HcclResult HcclScatter(void* send, void* recv, uint64_t count, HcclDataType type, uint32_t root, HcclComm handle,
                       aclrtStream stream) {
  const auto comm = comm_of(handle);
  check_rank(*comm, root, "root");
  auto operation = operation_of(Kind::Scatter, count, type);
  operation->root = root;
  if (root == comm->rank()) operation->send = range_of(send, count * element_size(type) * comm->size(), "send buffer");
  operation->recv = range_of(recv, count * element_size(type), "receive buffer");
  comm->launch(std::move(operation), stream);
  return HCCL_SUCCESS;
}

HcclResult HcclSend(void* buffer, uint64_t count, HcclDataType type, uint32_t peer, HcclComm comm, aclrtStream stream) {
  return send_or_receive(Kind::Send, buffer, count, type, peer, comm, stream);
}

HcclResult HcclRecv(void* buffer, uint64_t count, HcclDataType type, uint32_t peer, HcclComm comm, aclrtStream stream) {
  return send_or_receive(Kind::Recv, buffer, count, type, peer, comm, stream);
}

HcclResult HcclAlltoAll(const void* send, uint64_t send_count, HcclDataType send_type, const void* recv,
                        uint64_t recv_count, HcclDataType recv_type, HcclComm handle, aclrtStream stream) {
  const auto comm = comm_of(handle);
  const uint64_t n = comm->size();
  auto operation = operation_of(Kind::AlltoAll, send_count, send_type);
  if (recv_count != send_count || recv_type != send_type)
    throw Error(HCCL_E_PARA, "count and data type of what is sent and received must be the same");
  const uint64_t bytes = send_count * element_size(send_type);
  operation->send = range_of(send, bytes * n, "send buffer");
  operation->recv = range_of(recv, bytes * n, "receive buffer");
  operation->send_bytes.assign(n, bytes);
  operation->recv_bytes.assign(n, bytes);
  for (uint64_t rank = 0; rank < n; ++rank) operation->send_at.push_back(rank * bytes);
  operation->recv_at = operation->send_at;
  comm->launch(std::move(operation), stream);
  return HCCL_SUCCESS;
}

HcclResult HcclAlltoAllV(const void* send, const void* send_counts, const void* send_places, HcclDataType send_type,
                         const void* recv, const void* recv_counts, const void* recv_places, HcclDataType recv_type,
                         HcclComm handle, aclrtStream stream) {
  const auto comm = comm_of(handle);
  const uint64_t n = comm->size();
  auto operation = operation_of(Kind::AlltoAllV, 0, send_type);
  if (recv_type != send_type) throw Error(HCCL_E_PARA, "the data types of what is sent and received must be the same");
  if (!send_counts || !send_places || !recv_counts || !recv_places)
    throw Error(HCCL_E_PTR, "counts or displacements are null");
  const uint64_t element = element_size(send_type);
  const auto list = [&](const void* from) {
    std::vector<uint64_t> values(static_cast<const uint64_t*>(from), static_cast<const uint64_t*>(from) + n);
    for (auto& value : values) value *= element;
    return values;
  };
  const auto extent = [&](const std::vector<uint64_t>& bytes, const std::vector<uint64_t>& at) {
    uint64_t end = 0;
    for (uint64_t rank = 0; rank < n; ++rank) {
      if (bytes[rank] > 0) end = std::max(end, at[rank] + bytes[rank]);
    }
    return end;
  };
  operation->send_bytes = list(send_counts);
  operation->send_at = list(send_places);
  operation->recv_bytes = list(recv_counts);
  operation->recv_at = list(recv_places);
  operation->send = range_of(send, extent(operation->send_bytes, operation->send_at), "send buffer");
  operation->recv = range_of(recv, extent(operation->recv_bytes, operation->recv_at), "receive buffer");
  comm->launch(std::move(operation), stream);
  return HCCL_SUCCESS;
}

HcclResult HcclBarrier(HcclComm handle, aclrtStream stream) {
  comm_of(handle)->launch(operation_of(Kind::Barrier), stream);
  return HCCL_SUCCESS;
}

HcclResult HcclBatchSendRecv(HcclSendRecvItem* items, uint32_t count, HcclComm handle, aclrtStream stream) {
  const auto comm = comm_of(handle);
  if (!items || count == 0) throw Error(HCCL_E_PTR, "there are no items");
  auto operation = operation_of(Kind::BatchSendRecv);
  for (const HcclSendRecvItem* item = items; item != items + count; ++item) {
    check_rank(*comm, item->remoteRank, "peer");
    const size_t element = element_size(item->dataType);
    if (element == 0)
      throw Error(HCCL_E_NOT_SUPPORT, format("there is no data type %d", static_cast<int>(item->dataType)));
    if (item->sendRecvType != HCCL_SEND && item->sendRecvType != HCCL_RECV)
      throw Error(HCCL_E_PARA, "an item neither sends nor receives");
    operation->items.push_back({item->sendRecvType == HCCL_SEND, item->remoteRank, item->dataType, item->count,
                                range_of(item->buf, item->count * element, "buffer")});
  }
  comm->launch(std::move(operation), stream);
  return HCCL_SUCCESS;
}

HcclResult HcclGetCommAsyncError(HcclComm handle, HcclResult* code) {
  if (!code) throw Error(HCCL_E_PTR, "the result is null");
  std::string reason;
  *code = comm_of(handle)->failure(&reason);
  if (*code != HCCL_SUCCESS) aclsimReport(ACL_ERROR_RT_AICPU_EXCEPTION, reason.c_str());
  return HCCL_SUCCESS;
}

const char* HcclGetErrorString(HcclResult code) { return code_name(code); }

HcclResult HcclGetCommName(HcclComm handle, char* name) {
  if (!name) throw Error(HCCL_E_PTR, "the result is null");
  std::strcpy(name, comm_of(handle)->name().c_str());
  return HCCL_SUCCESS;
}

HcclResult HcclGetRankId(HcclComm handle, uint32_t* rank) {
  if (!rank) throw Error(HCCL_E_PTR, "the result is null");
  *rank = comm_of(handle)->rank();
  return HCCL_SUCCESS;
}

HcclResult HcclGetRankSize(HcclComm handle, uint32_t* size) {
  if (!size) throw Error(HCCL_E_PTR, "the result is null");
  *size = comm_of(handle)->size();
  return HCCL_SUCCESS;
}

HcclResult hcclsimDescribe(HcclComm handle, const char* text) {
  comm_of(handle)->describe(text);
  return HCCL_SUCCESS;
}

HcclResult hcclsimAbort(HcclComm handle, const char* reason) {
  comm_of(handle)->abort(reason ? reason : "");
  return HCCL_SUCCESS;
}

HcclResult hcclsimGetState(HcclComm handle, char* text, size_t length) {
  if (!text || length == 0) throw Error(HCCL_E_PTR, "the text is null or has no room");
  const std::string state = comm_of(handle)->state();
  std::strncpy(text, state.c_str(), length - 1);
  text[length - 1] = '\0';
  return HCCL_SUCCESS;
}

}  // namespace hccl_sim::api
