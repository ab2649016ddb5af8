#pragma once
// Heads and blocks of queries over the threads. Tasks take turns, since a causal mask makes them differ in length.

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <atomic>
#include <type_traits>
#include <vector>

#include "ops/attention/flash.h"

namespace acl_sim {

// The rows of a head from position `first` on, in fp32 tensor (batch, heads, positions, width).
template <class T>
Rows<T> flash_rows(const at::Tensor& t, int64_t batch, int64_t head, int64_t first = 0) {
  const int64_t place = batch * t.stride(0) + head * t.stride(1) + first * t.stride(2);
  if constexpr (std::is_const_v<T>) {
    return {t.const_data_ptr<float>() + place, t.stride(2), t.size(3)};
  } else {
    return {t.mutable_data_ptr<float>() + place, t.stride(2), t.size(3)};
  }
}

// Calls task(0) to task(count - 1), on all threads or in their order.
template <class Task>
void flash_tasks(int64_t count, bool in_order, const Task& task) {
  if (in_order || count == 1) {
    for (int64_t i = 0; i < count; ++i) task(i);
    return;
  }
  std::atomic<int64_t> next{0};
  at::parallel_for(0, std::min<int64_t>(count, at::get_num_threads()), 1, [&](int64_t, int64_t) {
    for (int64_t i = next++; i < count; i = next++) task(i);
  });
}

// All heads of all sequences. `head` and `out` give a head and its rows of results; `keep` is told the statistics of
// some of its queries.
template <class Sequence, class Head, class Out, class Keep>
void flash_forward_all(const std::vector<Sequence>& sequences, int64_t heads, const Head& head, const Out& out,
                       const Keep& keep) {
  struct Block {
    size_t sequence;
    int64_t head, first;
  };
  std::vector<Block> blocks;
  for (size_t s = 0; s < sequences.size(); ++s) {
    for (int64_t h = 0; h < heads; ++h) {
      for (int64_t first = 0; first < sequences[s].queries; first += kFlashQueries) blocks.push_back({s, h, first});
    }
  }
  flash_tasks(static_cast<int64_t>(blocks.size()), false, [&](int64_t i) {
    const Block& b = blocks[static_cast<size_t>(i)];
    const Sequence& s = sequences[b.sequence];
    float max[kFlashQueries], sum[kFlashQueries];
    flash_forward(head(s, b.head), b.first, out(s, b.head), {max, sum});
    keep(s, b.head, b.first, std::min(kFlashQueries, s.queries - b.first), max, sum);
  });
}

}  // namespace acl_sim
