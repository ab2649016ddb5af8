// acl_mdl.h: the life cycle of dump sessions.

#include "exec/dump.h"
#include "runtime/error.h"
#include "runtime/json.h"
#include "sim_api.h"

#include <mutex>

namespace acl_sim::api {
namespace {

struct State {
  std::mutex mutex;
  bool ready = false;
};

State& state() {
  static auto* value = new State;
  return *value;
}

void check_ready(const State& s) {
  if (!s.ready) throw Error(ACL_ERROR_DUMP_NOT_RUN, "aclmdlInitDump was not called");
}

}  // namespace

aclError aclmdlInitDump() {
  auto& s = state();
  std::lock_guard<std::mutex> lock(s.mutex);
  if (s.ready) throw Error(ACL_ERROR_DUMP_ALREADY_RUN, "aclmdlInitDump was called before");
  s.ready = true;
  return ACL_SUCCESS;
}

aclError aclmdlSetDump(const char* path) {
  auto& s = state();
  std::lock_guard<std::mutex> lock(s.mutex);
  check_ready(s);
  if (!path || !*path) throw Error(ACL_ERROR_INVALID_PARAM, "the path of the dump configuration is null or empty");
  start_dump(path, read_json_file(path));
  return ACL_SUCCESS;
}

aclError aclmdlFinalizeDump() {
  auto& s = state();
  std::lock_guard<std::mutex> lock(s.mutex);
  check_ready(s);
  s.ready = false;
  end_dump();
  return ACL_SUCCESS;
}

}  // namespace acl_sim::api
