#pragma once
// Attention in blocks, one head of one sequence at a time: a tile of scores is made, weighed and used before the next
// one, so that no more than a tile of them exists.
//
//   weights = softmax(scale * query key' + bias_factor * bias), hidden pairs of positions 0
//   out = dropout(weights) value
//
// A row that sees nothing gives 0, with the maximum and the sum 0.

#include <c10/core/ScalarType.h>

#include <cstdint>

namespace acl_sim {

// Rows of `width` fp32 numbers, `stride` apart.
template <class T>
struct Rows {
  T* data = nullptr;
  int64_t stride = 0, width = 0;
  T* row(int64_t i) const { return data + i * stride; }
  explicit operator bool() const { return data != nullptr; }
};

struct FlashHead {
  int64_t queries = 0, keys = 0;
  Rows<const float> query, key, value;
  float scale = 1;

  // Of key j to query i: shown while -before <= j - i - shift <= after, or j < prefix.
  int64_t before = INT64_MAX, after = INT64_MAX, shift = 0, prefix = 0;
  // Bytes, one for a pair; the one that is told apart from 0 is hidden, or shown.
  const uint8_t* mask = nullptr;
  int64_t mask_row = 0, mask_column = 0;
  bool mask_shows = false;

  // Numbers for pairs, or, by distance, a row of which the last element belongs to equal positions and those behind.
  const void* bias = nullptr;
  c10::ScalarType bias_type = c10::kFloat;
  int64_t bias_row = 0, bias_column = 0;
  bool bias_by_distance = false;
  int64_t bias_last = 0;
  float bias_factor = 1;

  // A bit for each pair, the first at `first_bit`: whether dropout keeps it.
  const uint8_t* kept = nullptr;
  int64_t first_bit = 0;
  float keep_prob = 1;

  // A score that takes its share of the sum and has no value.
  const float* sink = nullptr;

  int64_t first_key(int64_t i) const;
  int64_t end_key(int64_t i) const;
};

// Of each query of a block.
struct FlashStatistics {
  float *max = nullptr, *sum = nullptr;
};

// Rows of queries that are computed together.
constexpr int64_t kFlashQueries = 128;

// The results of queries `first` up to first + kFlashQueries.
void flash_forward(const FlashHead& head, int64_t first, Rows<float> out, FlashStatistics statistics);

struct FlashGradient {
  Rows<const float> dout, out;
  const float *max = nullptr, *sum = nullptr;
  // dq is written, the others are added to.
  Rows<float> dquery, dkey, dvalue;
  float* dbias = nullptr;  // with the strides of the bias; where that goes by distance, a row like it
  float* dsink = nullptr;
};

void flash_backward(const FlashHead& head, const FlashGradient& gradient);

}  // namespace acl_sim
