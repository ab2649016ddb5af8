#include "core/error.h"

#include "core/guard.h"
#include "core/log.h"

#include <cstdio>
#include <new>

namespace acl_sim {
namespace {

struct Recent {
  std::string text;
  std::string taken;
  aclError code = ACL_SUCCESS;
  bool fresh = false;
};

Recent& recent() {
  static thread_local Recent state;
  return state;
}

}  // namespace

aclError report(aclError code, const std::string& text) {
  auto& state = recent();
  state.text = text;
  state.code = code;
  state.fresh = true;
  return code;
}

aclError fail(aclError code, const std::string& text) {
  if (log_enabled(LogLevel::Error)) log_line(LogLevel::Error, "ASCENDCL", "acl", 0, error_name(code) + ": " + text);
  return report(code, text);
}

const char* take_recent_message() {
  auto& state = recent();
  if (!state.fresh) return nullptr;
  state.fresh = false;
  state.taken = format("E%06d: ", state.code) + state.text;
  return state.taken.c_str();
}

aclError last_error(bool clear) {
  auto& state = recent();
  const aclError code = state.code;
  if (clear) state.code = ACL_SUCCESS;
  return code;
}

std::string error_name(aclError code) {
  switch (code) {
#define NAME(CODE) \
  case CODE:       \
    return #CODE;
    NAME(ACL_ERROR_INVALID_PARAM)
    NAME(ACL_ERROR_UNINITIALIZE)
    NAME(ACL_ERROR_REPEAT_INITIALIZE)
    NAME(ACL_ERROR_REPEAT_FINALIZE)
    NAME(ACL_ERROR_OP_NOT_FOUND)
    NAME(ACL_ERROR_BAD_ALLOC)
    NAME(ACL_ERROR_FEATURE_UNSUPPORTED)
    NAME(ACL_ERROR_INTERNAL_ERROR)
    NAME(ACL_ERROR_GE_FAILURE)
    NAME(ACL_ERROR_RT_PARAM_INVALID)
    NAME(ACL_ERROR_RT_INVALID_DEVICEID)
    NAME(ACL_ERROR_RT_CONTEXT_NULL)
    NAME(ACL_ERROR_RT_STREAM_CONTEXT)
    NAME(ACL_ERROR_RT_EVENT_TIMESTAMP_INVALID)
    NAME(ACL_ERROR_RT_EVENT_TIMESTAMP_REVERSAL)
    NAME(ACL_ERROR_RT_WAIT_TIMEOUT)
    NAME(ACL_ERROR_RT_TASK_TIMEOUT)
    NAME(ACL_ERROR_RT_FEATURE_NOT_SUPPORT)
    NAME(ACL_ERROR_RT_MEMORY_ALLOCATION)
    NAME(ACL_ERROR_RT_MEMORY_FREE)
    NAME(ACL_ERROR_RT_NO_DEVICE)
    NAME(ACL_ERROR_RT_STREAM_NOT_COMPLETE)
    NAME(ACL_ERROR_RT_LOST_HEARTBEAT)
    NAME(ACL_ERROR_RT_AICORE_TIMEOUT)
    NAME(ACL_ERROR_RT_AICORE_EXCEPTION)
    NAME(ACL_ERROR_RT_AICPU_EXCEPTION)
    NAME(ACL_ERROR_RT_STREAM_SYNC_TIMEOUT)
    NAME(ACL_ERROR_RT_EVENT_SYNC_TIMEOUT)
    NAME(ACL_ERROR_RT_DEV_SETUP_ERROR)
#undef NAME
    default:
      return "error " + std::to_string(code);
  }
}

aclError detail::caught(const char* function) {
  try {
    throw;
  } catch (const Error& error) {
    return fail(error.code, std::string(function) + ": " + error.what());
  } catch (const std::bad_alloc&) {
    return fail(ACL_ERROR_BAD_ALLOC, std::string(function) + ": out of host memory");
  } catch (const std::exception& error) {
    return fail(ACL_ERROR_INTERNAL_ERROR, std::string(function) + ": " + error.what());
  } catch (...) {
    return fail(ACL_ERROR_INTERNAL_ERROR, std::string(function) + ": an exception of unknown type");
  }
}

aclError detail::refuse_after_fork(const char* function) {
  return report(ACL_ERROR_RT_DEV_SETUP_ERROR,
                std::string(function) +
                    ": this process was forked after its parent had used the NPU, and the device does not follow; "
                    "start workers with the spawn method, or fork before the first use");
}

}  // namespace acl_sim
