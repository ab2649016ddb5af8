#include "core/event.h"

#include "core/clock.h"
#include "core/error.h"
#include "core/handles.h"
#include "core/stream.h"

namespace acl_sim {
namespace {

using EventPool = HandlePool<Event, size_t{1} << 20>;

EventPool& pool() {
  static auto* value = new EventPool;
  return *value;
}

}  // namespace

Event* create_event(uint32_t flags) {
  Event* event = pool().take();
  if (!event) throw Error(ACL_ERROR_RT_NO_EVENT_RESOURCE, "too many events");
  event->recorded.store(0);
  event->completed.store(0);
  event->time_ns.store(0);
  event->failure.store(ACL_SUCCESS);
  event->stream.store(nullptr);
  event->capture.store(nullptr);
  event->flags = flags;
  event->references.store(1);
  event->alive.store(true, std::memory_order_release);
  return event;
}

Event& event_of(aclrtEvent handle) {
  if (Event* event = pool().check(handle)) return *event;
  throw Error(handle ? ACL_ERROR_RT_INVALID_HANDLE : ACL_ERROR_INVALID_PARAM, format("%p is no event", handle));
}

void release_event(Event* event) {
  if (event->references.fetch_sub(1, std::memory_order_acq_rel) == 1) pool().give(event);
}

void Event::take_back() {
  std::lock_guard<std::mutex> lock(mutex);
  failure.store(ACL_SUCCESS, std::memory_order_relaxed);
  completed.store(0, std::memory_order_release);
  recorded.store(0, std::memory_order_release);
}

void Event::complete_record(uint64_t generation) {
  const int64_t now = clock_ns(CLOCK_MONOTONIC);
  {
    std::lock_guard<std::mutex> lock(mutex);
    time_ns.store(now, std::memory_order_relaxed);
    if (completed.load(std::memory_order_relaxed) < generation) completed.store(generation, std::memory_order_release);
  }
  passed.notify_all();
}

}  // namespace acl_sim
