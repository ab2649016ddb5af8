#pragma once
// Making graphs; capture.h has what can be done with them.

#include "core/capture.h"

namespace [[gnu::visibility("hidden")]] acl_sim {

// One that nobody else knows yet, with one reference. Throws Error when there are too many.
Graph& make_graph(Device& device);

}  // namespace acl_sim
