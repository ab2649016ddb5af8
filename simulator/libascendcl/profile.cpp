// acl_prof.h: profiling sessions that leave a result folder, ranges and marks of the host; and what this device answers
// to the host's own profiler, see core/profile.h.

#include "core/profile.h"
#include "core/device.h"
#include "core/error.h"
#include "core/profile_folder.h"
#include "core/stream.h"
#include "sim_api.h"

#include <algorithm>
#include <cstring>
#include <map>
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

// What is open: its text, and when it began.
struct Open {
  std::string message;
  int64_t started;
};

struct State {
  std::mutex mutex;
  bool ready = false;
  std::string path;
  std::set<const aclprofConfig*> configs;
  std::map<const aclprofConfig*, std::unique_ptr<ProfileFolder>> running;
  std::set<const void*> stamps;
  std::map<uint32_t, Open> ranges;
  uint32_t next_range = 1;
};

State& state() {
  static auto* value = new State;
  return *value;
}

// Ranges of this thread, the innermost last. Work that is submitted inside one is told by its number.
struct Pushed {
  Open open;
  uint64_t number, before;
};
thread_local std::vector<Pushed> pushed;

// Numbers of pushed ranges, apart from those that a host's own profiler sets.
std::atomic<uint64_t> next_pushed{uint64_t{1} << 62};

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
  std::vector<uint32_t> list(devices, devices + count);
  auto config = std::make_unique<aclprofConfig>(aclprofConfig{std::move(list), metrics, data});
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
  if (s.running.count(config))
    throw Error(ACL_ERROR_PROF_ALREADY_RUN, "profiling runs with this configuration already");
  s.running.emplace(
      config, std::make_unique<ProfileFolder>(s.path, ProfileSwitches{config->devices, config->metrics, config->data}));
  return ACL_SUCCESS;
}

aclError aclprofStop(const aclprofConfig* config) {
  auto& s = state();
  std::lock_guard<std::mutex> lock(s.mutex);
  check_ready(s);
  check_config(s, config);
  const auto found = s.running.find(config);
  if (found == s.running.end()) throw Error(ACL_ERROR_PROF_NOT_RUN, "profiling does not run with this configuration");
  const std::unique_ptr<ProfileFolder> folder = std::move(found->second);
  s.running.erase(found);
  const std::string missing = folder->finish();
  if (!missing.empty())
    throw Error(ACL_ERROR_PROFILING_FAILURE, "the results in " + folder->path() + " are not complete: " + missing);
  return ACL_SUCCESS;
}

aclError aclprofMarkEx(const char* message, size_t length, aclrtStream stream) {
  if (!message || length == 0 || length > 127)
    throw Error(ACL_ERROR_INVALID_PARAM, "the message is null, empty, or longer than 127 characters");
  stream_of(stream);
  if (profiling()) {
    const int64_t now = profile_clock();
    record_mark(ACL_SIM_RECORD_MARK, 0, now, now, std::string(message, length));
  }
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
  Pushed range;
  {
    auto& s = state();
    std::lock_guard<std::mutex> lock(s.mutex);
    range.open = {stamp_of(s, stamp).message, profile_clock()};
  }
  range.number = next_pushed.fetch_add(1, std::memory_order_relaxed);
  range.before = detail::correlation;
  detail::correlation = range.number;
  pushed.push_back(std::move(range));
  return ACL_SUCCESS;
}

aclError aclprofPop() {
  if (pushed.empty()) throw Error(ACL_ERROR_INVALID_PARAM, "nothing was pushed on this thread");
  const Pushed range = std::move(pushed.back());
  pushed.pop_back();
  detail::correlation = range.before;
  if (profiling())
    record_mark(ACL_SIM_RECORD_RANGE, range.number, range.open.started, profile_clock(), range.open.message);
  return ACL_SUCCESS;
}

aclError aclprofMark(void* stamp) {
  auto& s = state();
  std::lock_guard<std::mutex> lock(s.mutex);
  const Stamp& mine = stamp_of(s, stamp);
  if (profiling()) {
    const int64_t now = profile_clock();
    record_mark(ACL_SIM_RECORD_MARK, 0, now, now, mine.message);
  }
  return ACL_SUCCESS;
}

aclError aclprofRangeStart(void* stamp, uint32_t* range) {
  auto& s = state();
  std::lock_guard<std::mutex> lock(s.mutex);
  const Stamp& mine = stamp_of(s, stamp);
  if (!range) throw Error(ACL_ERROR_INVALID_PARAM, "rangeId is null");
  *range = s.next_range++;
  s.ranges.emplace(*range, Open{mine.message, profile_clock()});
  return ACL_SUCCESS;
}

aclError aclprofRangeStop(uint32_t range) {
  auto& s = state();
  std::lock_guard<std::mutex> lock(s.mutex);
  const auto found = s.ranges.find(range);
  if (found == s.ranges.end()) throw Error(ACL_ERROR_INVALID_PARAM, format("range %u was not started", range));
  if (profiling())
    record_mark(ACL_SIM_RECORD_RANGE, range, found->second.started, profile_clock(), found->second.message);
  s.ranges.erase(found);
  return ACL_SUCCESS;
}

// ---- the host's own profiler

aclError aclsimProfileStart(uint32_t* session) {
  if (!session) throw Error(ACL_ERROR_INVALID_PARAM, "session is null");
  *session = start_session();
  return ACL_SUCCESS;
}

aclError aclsimProfileStop(uint32_t session) {
  stop_session(session);
  return ACL_SUCCESS;
}

aclError aclsimProfileRead(uint32_t session, aclsimRecord* records, size_t room, size_t* count, uint64_t* dropped) {
  if (!records || room == 0 || !count || !dropped)
    throw Error(ACL_ERROR_INVALID_PARAM, "there is no room for records, or a result is null");
  *count = read_session(session, records, room, dropped);
  if (*count == 0 && session_has_ended(session)) release_session(session);
  return ACL_SUCCESS;
}

const char* aclsimProfileText(uint32_t text) { return text_of(text); }

aclError aclsimSetCorrelation(uint64_t correlation) {
  detail::correlation = correlation;
  return ACL_SUCCESS;
}

uint64_t aclsimGetCorrelation() { return detail::correlation; }

}  // namespace acl_sim::api
