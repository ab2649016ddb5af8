// acl_prof.h: the life cycle of profiling sessions and of user marks is that of CANN; no result files are written by
// this library yet, which a session's start says in the log.

#include "core/device.h"
#include "core/error.h"
#include "core/log.h"
#include "core/stream.h"
#include "sim_api.h"

#include <cstring>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include <sys/stat.h>
#include <unistd.h>

struct aclprofConfig {
  std::vector<uint32_t> devices;
  aclprofAicoreMetrics metrics;
  uint64_t data;
};

namespace acl_sim::api {
namespace {

struct Stamp {
  std::string message;
};

struct State {
  std::mutex mutex;
  bool ready = false;
  std::string path;
  std::set<const aclprofConfig*> configs, running;
  std::set<const void*> stamps;
  std::set<uint32_t> ranges;
  uint32_t next_range = 1;
};

State& state() {
  static auto* value = new State;
  return *value;
}

thread_local int pushed = 0;

void check_config(State& s, const aclprofConfig* config) {
  if (!config || !s.configs.count(config))
    throw Error(ACL_ERROR_INVALID_PARAM, "the configuration is null or not a live aclprofConfig");
}

void check_ready(State& s) {
  if (!s.ready) throw Error(ACL_ERROR_PROF_NOT_RUN, "aclprofInit was not called");
}

Stamp& stamp_of(State& s, void* stamp) {
  if (!stamp || !s.stamps.count(stamp)) throw Error(ACL_ERROR_INVALID_PARAM, "the stamp is null or not a live stamp");
  return *static_cast<Stamp*>(stamp);
}

}  // namespace

aclError aclprofInit(const char* path, size_t length) {
  if (!path || length == 0 || std::strlen(path) != length)
    throw Error(ACL_ERROR_INVALID_PARAM, "the result path is null, empty, or not of the given length");
  struct stat info;
  if (::stat(path, &info) != 0 || !S_ISDIR(info.st_mode) || ::access(path, W_OK) != 0) {
    throw Error(ACL_ERROR_INVALID_FILE, format("the result path '%s' is not a folder that can be written to", path));
  }
  auto& s = state();
  std::lock_guard<std::mutex> lock(s.mutex);
  if (s.ready) throw Error(ACL_ERROR_PROF_ALREADY_RUN, "aclprofInit was called before");
  s.ready = true;
  s.path = path;
  return ACL_SUCCESS;
}

aclError aclprofFinalize() {
  auto& s = state();
  std::lock_guard<std::mutex> lock(s.mutex);
  check_ready(s);
  if (!s.running.empty()) throw Error(ACL_ERROR_PROF_ALREADY_RUN, "profiling is still running; call aclprofStop first");
  s.ready = false;
  return ACL_SUCCESS;
}

aclprofConfig* aclprofCreateConfig(uint32_t* devices, uint32_t count, aclprofAicoreMetrics metrics,
                                   const aclprofAicoreEvents* events, uint64_t data) {
  if ((count > 0 && !devices) || events || data == 0)
    throw Error(ACL_ERROR_INVALID_PARAM, "the device list is null, events are given, or nothing is chosen");
  if (metrics != ACL_AICORE_NONE && (metrics < ACL_AICORE_ARITHMETIC_UTILIZATION || metrics > ACL_AICORE_L2_CACHE)) {
    throw Error(ACL_ERROR_INVALID_PARAM, format("there are no AI core metrics %d", static_cast<int>(metrics)));
  }
  for (uint32_t i = 0; i < count; ++i) {
    if (devices[i] >= static_cast<uint32_t>(device_count()))
      throw Error(ACL_ERROR_INVALID_DEVICE, format("there is no device %u", devices[i]));
  }
  auto config = std::make_unique<aclprofConfig>(aclprofConfig{{devices, devices + count}, metrics, data});
  auto& s = state();
  std::lock_guard<std::mutex> lock(s.mutex);
  s.configs.insert(config.get());
  return config.release();
}

aclError aclprofDestroyConfig(const aclprofConfig* config) {
  auto& s = state();
  std::lock_guard<std::mutex> lock(s.mutex);
  check_config(s, config);
  if (s.running.count(config))
    throw Error(ACL_ERROR_PROF_ALREADY_RUN, "profiling runs with this configuration; call aclprofStop first");
  s.configs.erase(config);
  delete config;
  return ACL_SUCCESS;
}

aclError aclprofStart(const aclprofConfig* config) {
  auto& s = state();
  std::lock_guard<std::mutex> lock(s.mutex);
  check_ready(s);
  check_config(s, config);
  if (!s.running.insert(config).second)
    throw Error(ACL_ERROR_PROF_ALREADY_RUN, "profiling runs with this configuration already");
  if (log_enabled(LogLevel::Warning)) {
    log_line(LogLevel::Warning, "PROFILING", __FILE__, __LINE__,
             "the simulated device writes no profiling results into " + s.path);
  }
  return ACL_SUCCESS;
}

aclError aclprofStop(const aclprofConfig* config) {
  auto& s = state();
  std::lock_guard<std::mutex> lock(s.mutex);
  check_ready(s);
  check_config(s, config);
  if (s.running.erase(config) == 0)
    throw Error(ACL_ERROR_PROF_NOT_RUN, "profiling does not run with this configuration");
  return ACL_SUCCESS;
}

aclError aclprofMarkEx(const char* message, size_t length, aclrtStream stream) {
  if (!message || length == 0 || length > 127)
    throw Error(ACL_ERROR_INVALID_PARAM, "the message is null, empty, or longer than 127 characters");
  stream_of(stream);
  return ACL_SUCCESS;
}

void* aclprofCreateStamp() {
  auto stamp = std::make_unique<Stamp>();
  auto& s = state();
  std::lock_guard<std::mutex> lock(s.mutex);
  s.stamps.insert(stamp.get());
  return stamp.release();
}

void aclprofDestroyStamp(void* stamp) {
  auto& s = state();
  std::lock_guard<std::mutex> lock(s.mutex);
  Stamp& mine = stamp_of(s, stamp);
  s.stamps.erase(stamp);
  delete &mine;
}

aclError aclprofSetStampTraceMessage(void* stamp, const char* message, uint32_t length) {
  auto& s = state();
  std::lock_guard<std::mutex> lock(s.mutex);
  Stamp& mine = stamp_of(s, stamp);
  if (!message || length > 127)
    throw Error(ACL_ERROR_INVALID_PARAM, "the message is null or longer than 127 characters");
  mine.message.assign(message, length);
  return ACL_SUCCESS;
}

aclError aclprofPush(void* stamp) {
  auto& s = state();
  std::lock_guard<std::mutex> lock(s.mutex);
  stamp_of(s, stamp);
  ++pushed;
  return ACL_SUCCESS;
}

aclError aclprofPop() {
  if (pushed == 0) throw Error(ACL_ERROR_INVALID_PARAM, "nothing was pushed on this thread");
  --pushed;
  return ACL_SUCCESS;
}

aclError aclprofMark(void* stamp) {
  auto& s = state();
  std::lock_guard<std::mutex> lock(s.mutex);
  stamp_of(s, stamp);
  return ACL_SUCCESS;
}

aclError aclprofRangeStart(void* stamp, uint32_t* range) {
  auto& s = state();
  std::lock_guard<std::mutex> lock(s.mutex);
  stamp_of(s, stamp);
  if (!range) throw Error(ACL_ERROR_INVALID_PARAM, "rangeId is null");
  *range = s.next_range++;
  s.ranges.insert(*range);
  return ACL_SUCCESS;
}

aclError aclprofRangeStop(uint32_t range) {
  auto& s = state();
  std::lock_guard<std::mutex> lock(s.mutex);
  if (s.ranges.erase(range) == 0) throw Error(ACL_ERROR_INVALID_PARAM, format("range %u was not started", range));
  return ACL_SUCCESS;
}

}  // namespace acl_sim::api
