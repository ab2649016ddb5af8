#pragma once
// What the kernels of sparse tensors are made of; see Note [Sparse tensors] in SparseRegistration.cpp.

#include <ATen/core/Tensor.h>

#include <optional>
#include <tuple>

namespace at::native::npu::sparse {

// ---- Places.cpp
// For each column of `indices` (rows, n) one number: its place in a contiguous tensor of those sizes.
Tensor places(const Tensor& indices, IntArrayRef sizes);
// The same for the rows `dims` of `indices` alone.
Tensor places_along(const Tensor& indices, IntArrayRef sizes, IntArrayRef dims);
// The row of each element, from the bounds of the rows: compressed indices become plain ones. Batches stay in front.
Tensor rows_of(const Tensor& bounds, int64_t count);
// The bounds of `count` rows in sorted row numbers.
Tensor bounds_of(const Tensor& sorted_rows, int64_t count);
// (count, ...) sums of the values (n, ...) that have one place, in the values' dtype.
Tensor sum_by_place(const Tensor& values, const Tensor& place, int64_t count);

// Where each of `wanted` is in `sorted`, which has elements, and whether it is there at all.
struct Found {
  Tensor at, there;
};
Found find(const Tensor& sorted, const Tensor& wanted);
// The values (n, ...) at the found places, and zeros for what is not there.
Tensor values_at(const Tensor& values, const Found& found);

// Ranges written out: for range i the numbers start[i], start[i] + 1, ... `count[i]` of them, and i beside each. How
// many they are is read from the device.
struct Ranges {
  Tensor which, at;
};
Ranges write_out(const Tensor& start, const Tensor& count);

// ---- tensors
Tensor make_coo(IntArrayRef sizes, const Tensor& indices, const Tensor& values, bool coalesced);
// Gives `result` other contents; the values are cast to its dtype.
void put_coo(const Tensor& result, IntArrayRef sizes, const Tensor& indices, const Tensor& values, bool coalesced);

void check_devices(const char* name, at::ArrayRef<std::reference_wrapper<const Tensor>> tensors);

// ---- Products.cpp
// A matrix of m rows that is zero but for `values` (n) at (rows, columns), or blocks (n, height, width) at places of
// blocks: its product with a dense matrix. In the dtype that halves are computed in.
Tensor product(const Tensor& rows, const Tensor& columns, const Tensor& values, int64_t m, const Tensor& dense);
// A matrix of m rows stored by rows, or by columns (bounds of the columns, rows of the elements), and a dense one, by
// one operator; nothing where the device has none for these operands. In the dtype that halves are computed in.
std::optional<Tensor> compressed_product(const Tensor& bounds, const Tensor& places, const Tensor& values, int64_t m,
                                         const Tensor& dense, bool by_column);
// The elements of left @ right at the places of a matrix stored by rows; as above.
std::optional<Tensor> sampled_product(const Tensor& bounds, const Tensor& places, const Tensor& left,
                                      const Tensor& right);
// Two COO matrices: coalesced.
Tensor sparse_product(const Tensor& a, const Tensor& b);

}  // namespace at::native::npu::sparse
