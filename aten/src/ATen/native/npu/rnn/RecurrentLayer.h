#pragma once
// One recurrent layer in one direction over whole sequences, with its gradient.

#include <ATen/core/Tensor.h>

#include <vector>

namespace at::native::npu {

enum class RecurrentCell : uint8_t { Lstm, Gru, Tanh, Relu };

// Undefined: c0 of a cell without one, biases that the layer has not.
struct RecurrentWeights {
  Tensor w_ih, w_hh, b_ih, b_hh;
};

struct RecurrentStates {
  Tensor y, h, c;
};

// Gates that a weight holds one after the other.
int64_t gates_of(RecurrentCell cell);

// x is (step, batch, input), or packed: (sum of sizes, input), where `sizes` has the number of sequences at each step.
// h0 and c0 are (batch, hidden). The results have x's leading dims; what runs on the device is one operator, each way.
RecurrentStates recurrent_layer(RecurrentCell cell, const Tensor& x, IntArrayRef sizes, const Tensor& h0,
                                const Tensor& c0, const RecurrentWeights& weights, bool reverse);

}  // namespace at::native::npu
