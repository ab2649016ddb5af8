// The observers of launches, and what a launch does while there are some.

#include <ATen/native/npu/frame/command/Launcher.h>

#include <c10/npu/NPUCachingAllocator.h>

#include <algorithm>
#include <mutex>
#include <vector>

namespace at::native::npu {

namespace {

struct Placed {
  LaunchPlace place;
  std::shared_ptr<LaunchObserver> observer;
};
using Observers = std::vector<Placed>;

// The list is replaced, never changed: launches under way go on with the one they began with.
struct Registry {
  std::mutex mutex;
  std::shared_ptr<const Observers> observers = std::make_shared<const Observers>();

  std::shared_ptr<const Observers> current() {
    const std::lock_guard lock(mutex);
    return observers;
  }
  // The caller holds the lock.
  void replace(Observers list) {
    detail::launches_are_observed.store(!list.empty());
    observers = std::make_shared<const Observers>(std::move(list));
  }
};

Registry& registry() {
  static auto* value = new Registry;  // the queue's thread may outlive static destruction
  return *value;
}

std::atomic<uint64_t> correlations{0};

aclError execute_from(const Observers& observers, size_t i, const Command& command, aclrtStream stream) {
  if (i == observers.size()) return command.prepared->execute(command, stream);
  return observers[i].observer->execute(command, stream,
                                        [&] { return execute_from(observers, i + 1, command, stream); });
}

}  // namespace

namespace detail {

std::atomic<bool> launches_are_observed{false};

aclError execute_observed(const Command& command, aclrtStream stream) {
  return execute_from(*registry().current(), 0, command, stream);
}

uint64_t announce(Command command, const c10::npu::NPUStream& stream) {
  command.correlation = correlations.fetch_add(1, std::memory_order_relaxed) + 1;
  const auto observers = registry().current();
  for (const auto& [place, observer] : *observers) observer->called(command, stream);
  return command.correlation;
}

c10::DataPtr scratch_memory(size_t bytes, const c10::npu::NPUStream& stream) {
  void* data = c10::npu::NPUCachingAllocator::raw_alloc_with_stream(bytes, stream);
  return {data, data, [](void* p) { c10::npu::NPUCachingAllocator::raw_delete(p); }, stream.device()};
}

}  // namespace detail

void add_launch_observer(std::shared_ptr<LaunchObserver> observer, LaunchPlace place) {
  Registry& r = registry();
  const std::lock_guard lock(r.mutex);
  Observers list = *r.observers;
  const auto is_it = [&](const Placed& p) { return p.observer == observer; };
  if (std::any_of(list.begin(), list.end(), is_it)) return;
  const auto behind = std::find_if(list.begin(), list.end(), [&](const Placed& p) { return p.place > place; });
  list.insert(behind, {place, std::move(observer)});
  r.replace(std::move(list));
}

void remove_launch_observer(const LaunchObserver* observer) {
  Registry& r = registry();
  const std::lock_guard lock(r.mutex);
  Observers list = *r.observers;
  std::erase_if(list, [&](const Placed& p) { return p.observer.get() == observer; });
  r.replace(std::move(list));
}

}  // namespace at::native::npu
