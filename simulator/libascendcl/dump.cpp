// acl_mdl.h: the life cycle of dump sessions.

#include "exec/watching/dump.h"
#include "core/error.h"
#include "core/json.h"
#include "libascendcl/dump_state.h"
#include "sim_api.h"

#include <mutex>

namespace acl_sim {
namespace api {
namespace {

struct State {
  std::mutex mutex;
  bool ready = false;
  bool of_init = false;
};

State& state() {
  static auto* value = new State;
  return *value;
}

void check_ready(const State& s) {
  if (!s.ready) throw Error(ACL_ERROR_DUMP_NOT_RUN, "aclmdlInitDump was not called");
}

}  // namespace
}  // namespace api

void dump_is_of_init() {
  auto& s = api::state();
  std::lock_guard<std::mutex> lock(s.mutex);
  s.of_init = true;
}

namespace api {

aclError aclmdlInitDump() {
  auto& s = state();
  std::lock_guard<std::mutex> lock(s.mutex);
  if (s.ready) throw Error(ACL_ERROR_DUMP_ALREADY_RUN, "aclmdlInitDump was called before");
  if (s.of_init) throw Error(ACL_ERROR_DUMP_ALREADY_RUN, "the file that aclInit read dumps already");
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

}  // namespace api
}  // namespace acl_sim
