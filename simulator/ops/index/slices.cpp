// Gathering and adding slices along one dimension, for contiguous memory seen as [outer, size, inner].

#include "ops/index/slices.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "ops/multiversion.h"

namespace acl_sim {
namespace {

constexpr int64_t kGrainBytes = 128 << 10;

#define PICK(T)                                                                                                        \
  SIM_MULTIVERSION void pick(T* __restrict to, const T* __restrict from, const int64_t* __restrict index, int64_t n) { \
    for (int64_t i = 0; i < n; ++i) to[i] = from[index[i]];                                                            \
  }
PICK(uint8_t);
PICK(uint16_t);
PICK(uint32_t);
PICK(uint64_t);
#undef PICK

SIM_MULTIVERSION bool all_in_range(const int64_t* index, int64_t n, int64_t size) {
  uint64_t wrong = 0;
  for (int64_t i = 0; i < n; ++i) wrong |= static_cast<uint64_t>(index[i]) >= static_cast<uint64_t>(size) ? 1 : 0;
  return wrong == 0;
}

#define ADD(T)                                                                           \
  SIM_MULTIVERSION void add_row(T* __restrict to, const T* __restrict from, int64_t n) { \
    for (int64_t i = 0; i < n; ++i) to[i] += from[i];                                    \
  }
ADD(float);
ADD(double);
#undef ADD

template <class T>
void add_all(T* to, const T* from, const int64_t* index, int64_t n, const Slices& s) {
  const int64_t grain = std::max<int64_t>(1, kGrainBytes / std::max<int64_t>(1, n * s.inner * int64_t{sizeof(T)}));
  at::parallel_for(0, s.outer, grain, [&](int64_t begin, int64_t end) {
    for (int64_t o = begin; o < end; ++o) {
      for (int64_t i = 0; i < n; ++i) {
        add_row(to + (o * s.size + index[i]) * s.inner, from + (o * n + i) * s.inner, s.inner);
      }
    }
  });
}

}  // namespace

Slices slices_along(at::IntArrayRef sizes, int64_t axis) {
  Slices s;
  for (size_t d = 0; d < sizes.size(); ++d) {
    if (static_cast<int64_t>(d) < axis) {
      s.outer *= sizes[d];
    } else if (static_cast<int64_t>(d) == axis) {
      s.size = sizes[d];
    } else {
      s.inner *= sizes[d];
    }
  }
  return s;
}

int64_t first_out_of_range(const at::Tensor& index, int64_t size) {
  const auto* values = index.const_data_ptr<int64_t>();
  const int64_t n = index.numel();
  if (all_in_range(values, n, size)) return -1;
  return std::find_if(values, values + n, [&](int64_t i) { return i < 0 || i >= size; }) - values;
}

void gather_slices(void* to_data, const void* from_data, const at::Tensor& index, const Slices& s, size_t item) {
  const auto* places = index.const_data_ptr<int64_t>();
  const int64_t n = index.numel();
  auto* to = static_cast<char*>(to_data);
  const auto* from = static_cast<const char*>(from_data);
  const size_t slice = static_cast<size_t>(s.inner) * item;
  const auto per_outer = static_cast<int64_t>(slice) * n;
  if (s.outer == 0 || per_outer == 0) return;
  const auto whole = static_cast<size_t>(s.size) * slice;
  if (s.inner > 1 || item > sizeof(uint64_t)) {
    const int64_t grain = std::max<int64_t>(1, kGrainBytes / static_cast<int64_t>(slice));
    at::parallel_for(0, s.outer * n, grain, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        const int64_t o = row / n, i = row % n;
        std::memcpy(to + static_cast<size_t>(row) * slice,
                    from + static_cast<size_t>(o) * whole + static_cast<size_t>(places[i]) * slice, slice);
      }
    });
    return;
  }
  // Few outer ones, or one: the chosen are cut as well.
  const int64_t cut = std::max<int64_t>(1, std::min(n, kGrainBytes / static_cast<int64_t>(slice)));
  const int64_t cuts = (n + cut - 1) / cut;
  at::parallel_for(0, s.outer * cuts, std::max<int64_t>(1, cut > n / 2 ? kGrainBytes / per_outer : 1),
                   [&](int64_t begin, int64_t end) {
                     for (int64_t part = begin; part < end; ++part) {
                       const int64_t o = part / cuts, at = part % cuts * cut, count = std::min(cut, n - at);
                       char* const out = to + static_cast<size_t>(o * n + at) * slice;
                       const char* const in = from + static_cast<size_t>(o) * whole;
                       const auto run = [&](auto* typed) {
                         using T = std::remove_pointer_t<decltype(typed)>;
                         pick(typed, reinterpret_cast<const T*>(in), places + at, count);
                       };
                       switch (slice) {
                         case 1:
                           run(reinterpret_cast<uint8_t*>(out));
                           break;
                         case 2:
                           run(reinterpret_cast<uint16_t*>(out));
                           break;
                         case 4:
                           run(reinterpret_cast<uint32_t*>(out));
                           break;
                         default:
                           run(reinterpret_cast<uint64_t*>(out));
                           break;
                       }
                     }
                   });
}

bool add_slices(const at::Tensor& to, const at::Tensor& from, const at::Tensor& index, int64_t axis) {
  const at::ScalarType dtype = to.scalar_type();
  if ((dtype != at::kFloat && dtype != at::kDouble) || from.scalar_type() != dtype || to.dim() == 0) return false;
  const Slices s = slices_along(to.sizes(), axis);
  // Short rows are upstream's: it adds them without a call for each.
  if (s.inner < 16 || from.dim() != to.dim() || from.size(axis) != index.numel()) return false;
  const auto* places = index.const_data_ptr<int64_t>();
  if (dtype == at::kFloat) {
    add_all(to.mutable_data_ptr<float>(), from.const_data_ptr<float>(), places, index.numel(), s);
  } else {
    add_all(to.mutable_data_ptr<double>(), from.const_data_ptr<double>(), places, index.numel(), s);
  }
  return true;
}

}  // namespace acl_sim
