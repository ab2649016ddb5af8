#include "ops/copy/strided.h"

#include "exec/layout/layout.h"

#include <ATen/Parallel.h>
#include <c10/util/DimVector.h>

#include <algorithm>
#include <cstdint>

#include "core/load.h"
#include "ops/multiversion.h"

namespace acl_sim {
namespace {

constexpr int64_t kLargestStep = 8;
constexpr int64_t kShortestRow = 8;
constexpr int64_t kGrain = 32768;  // elements

// n elements, `to` in steps of A, `from` in steps of B.
#define ROW(T, A, B)                                                                           \
  SIM_MULTIVERSION void row_##A##_##B(T* __restrict to, const T* __restrict from, int64_t n) { \
    for (int64_t i = 0; i < n; ++i) to[A * i] = from[B * i];                                   \
  }
ROW(uint8_t, 1, 2);
ROW(uint16_t, 1, 2);
ROW(uint32_t, 1, 2);
ROW(uint64_t, 1, 2);
ROW(uint8_t, 2, 1);
ROW(uint16_t, 2, 1);
ROW(uint32_t, 2, 1);
ROW(uint64_t, 2, 1);
#undef ROW

struct Dim {
  int64_t size, to, from;  // steps count elements
};

template <class T>
void copy_row(T* to, const T* from, const Dim& d) {
  if (d.to == 1 && d.from == 2) return row_1_2(to, from, d.size);
  if (d.to == 2 && d.from == 1) return row_2_1(to, from, d.size);
  for (int64_t i = 0; i < d.size; ++i) to[d.to * i] = from[d.from * i];
}

template <class T>
void copy_rows(void* to_data, const void* from_data, const c10::SmallVector<Dim, 5>& dims) {
  auto* to = static_cast<T*>(to_data);
  const auto* from = static_cast<const T*>(from_data);
  const Dim& inner = dims.back();
  const size_t outer = dims.size() - 1;
  int64_t rows = 1;
  for (size_t k = 0; k < outer; ++k) rows *= dims[k].size;
  const int64_t grain = std::max<int64_t>(1, grain_of_copies(kGrain) / inner.size);
  at::parallel_for(0, rows, grain, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      int64_t rest = row, to_offset = 0, from_offset = 0;
      for (size_t k = outer; k-- > 0;) {
        const int64_t index = rest % dims[k].size;
        rest /= dims[k].size;
        to_offset += index * dims[k].to;
        from_offset += index * dims[k].from;
      }
      copy_row(to + to_offset, from + from_offset, inner);
    }
  });
}

// The dimensions of both in the order of `to`, those that can be walked as one joined.
c10::SmallVector<Dim, 5> joined_dims(const at::Tensor& to, const at::Tensor& from) {
  c10::SmallVector<Dim, 5> dims;
  for (int64_t i = 0; i < to.dim(); ++i) {
    const Dim d{to.size(i), to.stride(i), from.stride(i)};
    if (d.size == 1) continue;
    if (!dims.empty() && dims.back().to == d.size * d.to && dims.back().from == d.size * d.from) {
      dims.back() = {dims.back().size * d.size, d.to, d.from};
    } else {
      dims.push_back(d);
    }
  }
  return dims;
}

}  // namespace

bool copy_turned(const at::Tensor& to, const at::Tensor& from) {
  if (to.scalar_type() != from.scalar_type() || !to.is_contiguous() || to.numel() == 0 || to.itemsize() > 16) {
    return false;
  }
  const auto dims = joined_dims(to, from);
  if (dims.size() != 2 && dims.size() != 3) return false;
  const Dim &down = dims[dims.size() - 2], &right = dims.back();
  if (down.from != 1 || right.from != down.size) return false;
  const int64_t samples = dims.size() == 3 ? dims[0].size : 1;
  if (samples > 1 && dims[0].from != down.size * right.size) return false;
  planes_to_rows(from.const_data_ptr(), to.mutable_data_ptr(), samples, right.size, down.size, to.itemsize());
  return true;
}

bool copy_in_steps(const at::Tensor& to, const at::Tensor& from) {
  if (to.scalar_type() != from.scalar_type() || to.sizes() != from.sizes() || to.numel() == 0) return false;
  const auto dims = joined_dims(to, from);
  if (dims.empty()) return false;
  const Dim& inner = dims.back();
  const auto small = [](int64_t step) { return step >= 1 && step <= kLargestStep; };
  if (!small(inner.to) || !small(inner.from) || inner.to * inner.from == 1 || inner.size < kShortestRow) return false;
  switch (to.itemsize()) {
    case 1:
      copy_rows<uint8_t>(to.data_ptr(), from.data_ptr(), dims);
      return true;
    case 2:
      copy_rows<uint16_t>(to.data_ptr(), from.data_ptr(), dims);
      return true;
    case 4:
      copy_rows<uint32_t>(to.data_ptr(), from.data_ptr(), dims);
      return true;
    case 8:
      copy_rows<uint64_t>(to.data_ptr(), from.data_ptr(), dims);
      return true;
    default:
      return false;
  }
}

}  // namespace acl_sim
