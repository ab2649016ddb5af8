// Gradient of an embedding table. The forward pass is a gather and lives with the index operators.

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

}  // namespace
}  // namespace acl_sim
