// The part of acl_rt.h about the float status register, see Note [Float status] in exec/watching/float_status.h. Both
// functions put an operator on the stream, because the register belongs to a place in the stream's order.

#include "core/error.h"
#include "exec/compilation/compile.h"
#include "exec/running/launch.h"
#include "sim_api.h"

#include <memory>

namespace acl_sim::api {
namespace {

constexpr int64_t kWords = 16;
constexpr size_t kStatusBytes = kWords * sizeof(int32_t);

}  // namespace

aclError aclrtGetOverflowStatus(void* address, size_t size, aclrtStream stream) {
  if (!address || size < kStatusBytes)
    throw Error(ACL_ERROR_INVALID_PARAM,
                format("%zu bytes at %p cannot hold the status: it has %zu bytes", size, address, kStatusBytes));
  static const aclTensorDesc* desc = aclCreateTensorDesc(ACL_INT32, 1, &kWords, ACL_FORMAT_ND);
  const std::unique_ptr<aclDataBuffer, aclError (*)(const aclDataBuffer*)> buffer(
      aclCreateDataBuffer(address, kStatusBytes), aclDestroyDataBuffer);
  aclDataBuffer* const output = buffer.get();
  return launch({"NPUGetFloatStatusV2", 0, nullptr, 1, &desc, nullptr}, nullptr, &output, stream, false);
}

aclError aclrtResetOverflowStatus(aclrtStream stream) {
  return launch({"NPUClearFloatStatusV2", 0, nullptr, 0, nullptr, nullptr}, nullptr, nullptr, stream, false);
}

}  // namespace acl_sim::api
