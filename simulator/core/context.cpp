#include "core/context.h"

#include "core/device.h"
#include "core/error.h"
#include "core/handles.h"
#include "core/stream.h"
#include "core/thread_local.h"

#include <mutex>

namespace acl_sim {
namespace {

HandlePool<Context, 65536>& pool() {
  static auto* value = new HandlePool<Context, 65536>;
  return *value;
}

std::mutex primary_mutex;
Context* primaries[64] = {};

SIM_THREAD_LOCAL Context* current = nullptr;

Context& make(Device& device, bool primary) {
  // Handles of destroyed contexts are never used again: threads may still hold them as their current one.
  Context* context = pool().take();
  if (!context) throw Error(ACL_ERROR_RT_RESOURCE_ALLOC_FAIL, "too many contexts");
  context->device = &device;
  context->primary = primary;
  context->default_stream = &create_stream(*context, 0, 0);
  context->alive.store(true, std::memory_order_release);
  return *context;
}

}  // namespace

Context* current_context_or_null() {
  Context* context = current;
  return context && context->alive.load(std::memory_order_acquire) ? context : nullptr;
}

Context& current_context() {
  if (Context* context = current_context_or_null()) return *context;
  throw Error(ACL_ERROR_RT_CONTEXT_NULL,
              current ? "the device of this thread's context was reset; call aclrtSetDevice again"
                      : "this thread has no context; call aclrtSetDevice first");
}

void set_device(int logical_id) {
  // The common case of a thread that switches back and forth takes no lock.
  if (Context* context = current_context_or_null(); context && context->primary && context->device->id == logical_id)
    return;
  Device& on = device(logical_id);
  std::lock_guard<std::mutex> lock(primary_mutex);
  auto& primary = primaries[logical_id];
  if (!primary || !primary->alive.load()) primary = &make(on, true);
  current = primary;
}

void reset_device(int logical_id) {
  device_count();
  Device* on = opened_device(logical_id);
  if (!on) {
    device(logical_id);  // throws for a number that does not exist
    return;
  }
  std::lock_guard<std::mutex> lock(primary_mutex);
  if (on->lost.load()) abort_device(*on);
  pool().each([&](Context& context) {
    if (context.device == on) context.alive.store(false, std::memory_order_release);
  });
  destroy_streams(*on, nullptr);
  primaries[logical_id] = nullptr;
  on->free_all();
  on->lost.store(false);
  on->watches_floats.store(false);
  on->saturates.store(false);
  on->clear_float_status();
}

Context& create_context(int logical_id) {
  Context& context = make(device(logical_id), false);
  current = &context;
  return context;
}

void destroy_context(aclrtContext handle) {
  Context* context = pool().check(handle);
  if (!context) throw Error(ACL_ERROR_RT_INVALID_HANDLE, format("%p is no context", handle));
  if (context->primary) {
    throw Error(ACL_ERROR_RT_PARAM_INVALID,
                "the default context of a device goes with aclrtResetDevice, it cannot be destroyed");
  }
  context->alive.store(false, std::memory_order_release);
  destroy_streams(*context->device, context);
  if (current == context) current = nullptr;
}

void set_current_context(aclrtContext handle) {
  Context* context = pool().check(handle);
  if (!context)
    throw Error(handle ? ACL_ERROR_RT_INVALID_HANDLE : ACL_ERROR_INVALID_PARAM, format("%p is no context", handle));
  current = context;
}

}  // namespace acl_sim
