// Indices of sparse matrices, packed and spelled out.

#include "exec/definition/aten.h"
#include "ops/index/index_range.h"

namespace acl_sim {
namespace {

void check_rows(OpContext& c) { check_range(c.in(0), 0, c.attrs().integer("size", 0) - 1, "row"); }

// row ends, columns
void check_row_ends(OpContext& c) { check_offsets(c.in(0), c.in(1).size(-1), "row end"); }

SIM_ATEN_CHECKED(CooToCsr, "_convert_indices_from_coo_to_csr.out", check_rows);
SIM_ATEN_CHECKED(CsrToCoo, "_convert_indices_from_csr_to_coo.out", check_row_ends);

}  // namespace
}  // namespace acl_sim
