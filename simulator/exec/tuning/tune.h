#pragma once
// Measuring what an operator leaves open (Note [Choices]).

#include <string>

namespace [[gnu::visibility("hidden")]] acl_sim {

// Tells in JSON what the operator of a graph file is called in the knowledge base, and how many ways there are to
// compute it. With a time to measure it runs each on the calling thread's device, and tells how many microseconds each
// takes and which to choose. Ways take turns, and the best of each counts: others that use the machine for a while are
// in the way of all of them. A way is chosen if it takes at least a twentieth less time than the rule's, and its
// results agree. Throws Error for a file or an operator that is refused.
std::string tune_graph(const std::string& file, int milliseconds);

}  // namespace acl_sim
