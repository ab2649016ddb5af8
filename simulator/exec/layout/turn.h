#pragma once
// Transposes a matrix in memory: the inner loop of every change of layout.

#include <cstddef>
#include <cstdint>

namespace [[gnu::visibility("hidden")]] acl_sim {

// to[c][r] = from[r][c] for the rows in [first, last) of `rows` and all columns; elements of 1, 2, 4, 8 or 16 bytes.
void turn(const void* from, void* to, int64_t rows, int64_t columns, int64_t first, int64_t last, size_t element_bytes);

}  // namespace acl_sim
