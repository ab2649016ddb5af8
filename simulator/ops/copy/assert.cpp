// Assertions on the device.

#include "exec/definition/aten.h"

namespace acl_sim {
namespace {

SIM_ATEN(AssertAsync, "_assert_async");
SIM_ATEN(AssertAsyncMsg, "_assert_async.msg");

}  // namespace
}  // namespace acl_sim
