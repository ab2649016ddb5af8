#include "core/report.h"

#include "core/error.h"
#include "core/process.h"
#include "core/stream.h"

#include <pthread.h>

#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>

namespace acl_sim {

struct Report {
  std::mutex mutex;
  std::condition_variable arrived, done;
  std::deque<CallbackWork> waiting;
  uint64_t queued = 0, finished = 0;
  int streams = 0;
};

namespace {

constexpr auto kSlice = std::chrono::milliseconds(20);

std::mutex table_mutex;
std::map<uint64_t, Report*>& table() {
  static auto* value = new std::map<uint64_t, Report*>;  // reports are few and stay: streams point to them
  return *value;
}

}  // namespace

void subscribe(uint64_t thread, Stream& stream) {
  std::lock_guard<std::mutex> lock(table_mutex);
  if (stream.report)
    throw Error(ACL_ERROR_REPEAT_SUBSCRIBE, format("stream %u has a subscriber already", stream.number));
  auto& report = table()[thread];
  if (!report) report = new Report;
  ++report->streams;
  stream.report = report;
}

void unsubscribe(uint64_t thread, Stream& stream) {
  std::lock_guard<std::mutex> lock(table_mutex);
  auto found = table().find(thread);
  if (found == table().end() || !stream.report || stream.report != found->second) {
    throw Error(ACL_ERROR_STREAM_NOT_SUBSCRIBE, format("stream %u is not subscribed to by that thread", stream.number));
  }
  --found->second->streams;
  stream.report = nullptr;
}

void run_callback(CallbackWork& work, Stream& stream) {
  Report& report = *work.report;
  std::unique_lock<std::mutex> lock(report.mutex);
  report.waiting.push_back(work);
  const uint64_t mine = ++report.queued;
  report.arrived.notify_one();
  while (work.block && report.finished < mine && !exiting() && !stream.aborting()) report.done.wait_for(lock, kSlice);
}

aclError process_report(int32_t timeout_ms) {
  Report* report = nullptr;
  {
    std::lock_guard<std::mutex> lock(table_mutex);
    auto found = table().find(static_cast<uint64_t>(::pthread_self()));
    if (found != table().end() && found->second->streams > 0) report = found->second;
  }
  if (!report)
    return fail(ACL_ERROR_THREAD_NOT_SUBSCRIBE,
                "this thread has subscribed to no stream; call aclrtSubscribeReport first");
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(timeout_ms < 0 ? 0 : timeout_ms);
  std::unique_lock<std::mutex> lock(report->mutex);
  while (report->waiting.empty()) {
    if (exiting() || (timeout_ms >= 0 && std::chrono::steady_clock::now() >= end)) {
      return fail(ACL_ERROR_WAIT_CALLBACK_TIMEOUT, format("no callback came within %d ms", timeout_ms));
    }
    report->arrived.wait_for(lock, kSlice);
  }
  CallbackWork work = report->waiting.front();
  report->waiting.pop_front();
  lock.unlock();
  work.function(work.data);
  lock.lock();
  ++report->finished;
  report->done.notify_all();
  return ACL_SUCCESS;
}

}  // namespace acl_sim
