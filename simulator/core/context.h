#pragma once
// Contexts: which device and default stream a thread works with.

#include <acl/acl.h>

#include <atomic>

namespace [[gnu::visibility("hidden")]] acl_sim {

class Device;
struct Stream;

struct Context {
  std::atomic<bool> alive{false};
  Device* device = nullptr;
  Stream* default_stream = nullptr;
  bool primary = false;  // the one that aclrtSetDevice makes
};

// The calling thread's context. Throws Error(ACL_ERROR_RT_CONTEXT_NULL) when there is none, or its device was reset.
Context& current_context();
// The same without an error: nullptr.
Context* current_context_or_null();

void set_device(int logical_id);
void reset_device(int logical_id);
Context& create_context(int logical_id);
void destroy_context(aclrtContext handle);
void set_current_context(aclrtContext handle);

}  // namespace acl_sim
