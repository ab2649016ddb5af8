// Reductions over segments.

#include "exec/definition/aten.h"
#include "ops/index/index_range.h"

namespace acl_sim {
namespace {

// grad, output, data, lengths, offsets
void check_segments(OpContext& c) {
  const int64_t size = c.in(2).size(c.attrs().integer("axis", 0));
  if (c.has_input(3)) {
    check_range(c.in(3), 0, size, "length of a segment");
    check_range(c.in(3).sum(-1), 0, size, "length of all segments");
  }
  if (c.has_input(4)) check_offsets(c.in(4), size, "offset");
}

// data; lengths and offsets are absent or not.
void check_offsets_of_segments(OpContext& c) {
  const int64_t dims = c.in(0).dim(), axis = c.attrs().integer("axis", 0);
  if (c.has_input(3)) check_offsets(c.in(3), c.in(0).size(axis < 0 ? axis + dims : axis), "offset");
}

SIM_ATEN_CHECKED(SegmentReduce, "segment_reduce", check_offsets_of_segments);
SIM_ATEN_CHECKED(SegmentReduceGrad, "_segment_reduce_backward", check_segments);

}  // namespace
}  // namespace acl_sim
