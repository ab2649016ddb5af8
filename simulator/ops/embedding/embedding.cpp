// Gradient of an embedding table. The forward pass is a gather and lives with the index operators.

#include "exec/definition/aten.h"
#include "ops/index/index_range.h"
#include "ops/nn_util.h"

namespace acl_sim {
namespace {

// inputs grad [..., width], indices; output [num_weights, width]
void embedding_dense_grad(OpContext& c) {
  const at::Tensor dw = c.out(0);
  const at::Tensor grad = c.in(0), indices = c.in(1).to(at::kLong);
  const int64_t rows = c.attrs().integer("num_weights", dw.size(0));
  if (rows != dw.size(0)) {
    refuse("num_weights differs from the rows of the output");
  }
  check_range(indices, 0, rows - 1, "index");
  dw.copy_(at::embedding_dense_backward(grad, indices, rows, c.attrs().integer("padding_idx", -1),
                                        c.attrs().boolean("scale_grad_by_freq", false)));
}

SIM_OP(EmbeddingDenseGrad)
    .inputs(2)
    .dtypes({kFloatTypes, kIntTypes})
    .attrs({"num_weights:int", "padding_idx:int", "scale_grad_by_freq:bool"})
    .require({"num_weights"})
    .run(embedding_dense_grad);

using at::Tensor;

// grad, indices, bag of each
void check_bags(OpContext& c) {
  check_range(c.in(1), 0, c.attrs().integer("num_weights", 0) - 1, "index");
  check_range(c.in(2), 0, c.in(0).size(0) - 1, "bag");
}

// grad, weight, indices, offsets, bag of each
void check_weighted_bags(OpContext& c) {
  check_range(c.in(2), 0, c.in(1).size(0) - 1, "index");
  check_range(c.in(4), 0, c.in(0).size(0) - 1, "bag");
}

// The CPU's kernel wants indices, offsets and bags of one type; theirs may differ, and the bags' is one of the two.
void weights_grad(OpContext& c) {
  check_weighted_bags(c);
  const auto wide = [&c](size_t i) { return c.in(i).to(at::kLong); };
  c.set_out(0, at::_embedding_bag_per_sample_weights_backward(c.in(0), c.in(1), wide(2), wide(3), wide(4),
                                                              c.attrs().integer("mode", 0),
                                                              c.attrs().integer("padding_idx", -1)));
}

SIM_ATEN_CHECKED(EmbeddingBagDenseGrad, "_embedding_bag_dense_backward", check_bags);
const AtenOp weights_grad_op("EmbeddingBagWeightsGrad", "_embedding_bag_per_sample_weights_backward", weights_grad);
SIM_ATEN(EmbeddingRenorm, "embedding_renorm_");

// weight, indices, offsets, ... -> bags, the bag of each index, the size of each bag, where each maximum came from. The
// CPU's kernel leaves out what the gradient of its fast way does not need.
void embedding_bag(OpContext& c, const torch::jit::Stack& results) {
  c.set_out(0, results[0].toTensor());
  const Tensor indices = c.in(1), offsets = c.in(2).to(at::kLong);
  const Tensor bags = results[1].toTensor();
  if (bags.numel() == indices.numel()) {
    c.out(1).copy_(bags);
  } else {
    // Offsets ascend: an index belongs to the last bag that begins at or before it.
    const Tensor positions = at::arange(indices.numel(), at::kLong);
    c.out(1).copy_(at::searchsorted(offsets, positions, /*out_int32=*/false, /*right=*/true).sub_(1));
  }
  Tensor sizes = c.out(2);
  const Tensor found = results[2].toTensor();
  const int64_t given = std::min(sizes.numel(), found.numel());
  sizes.zero_();
  sizes.narrow(0, 0, given).copy_(found.narrow(0, 0, given));
  const Tensor maxima = results[3].toTensor();
  Tensor from = c.out(3);
  if (from.numel() == maxima.numel() && from.numel() > 0) from.copy_(maxima.reshape(from.sizes()));
}

const AtenOp aten_EmbeddingBag("EmbeddingBagForward", "_embedding_bag", [](OpContext& c) {
  check_range(c.in(1), 0, c.in(0).size(0) - 1, "index");
  check_offsets(c.in(2), c.in(1).numel(), "offset");
  embedding_bag(c, aten_EmbeddingBag.call(c));
});

}  // namespace
}  // namespace acl_sim
