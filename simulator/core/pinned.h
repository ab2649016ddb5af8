#pragma once
// Host memory from aclrtMallocHost: what asynchronous copies may read and write after the call that asks for them.

#include <cstddef>

namespace [[gnu::visibility("hidden")]] acl_sim {

// Throws std::bad_alloc.
void* pinned_malloc(size_t size);
bool pinned_free(void* pointer);
// Whether the address lies in such memory.
bool is_pinned(const void* address);

}  // namespace acl_sim
