#include "core/external.h"

#include "core/process.h"
#include "core/stream.h"

#include <exception>

namespace acl_sim {

bool run_external(ExternalWork& work, Stream& stream, const Task& task) noexcept {
  constexpr size_t kReason = 8192;
  char reason[kReason] = "";
  const aclsimTask view{&stream, static_cast<int32_t>(work.fault), work.fault_scale};
  const aclError code = work.run(work.data, &view, reason, kReason);
  if (code == ACL_SUCCESS) return false;
  try {
    stream.set_error(code, std::string(work.name) + ": " + reason, &task);
  } catch (const std::exception&) {
    stream.set_error(code, work.name, &task);
  }
  return true;
}

void drop_external(ExternalWork& work) noexcept { work.run(work.data, nullptr, nullptr, 0); }

}  // namespace acl_sim
