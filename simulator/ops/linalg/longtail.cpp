// Operators whose CPU kernel leaves out a result, or gives it another size, than the device's must have.

#include "exec/definition/aten.h"
#include "ops/common.h"
#include "ops/index/index_range.h"

namespace acl_sim {
namespace {

using at::Tensor;

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

// x -> values, where each slice went, how often each occurs, how many there are
void unique_along_axis(OpContext& c) {
  const int64_t axis = c.attrs().integer("axis", 0);
  const Tensor x = c.in(0);
  const auto [values, inverse, counts] = at::unique_dim(x.dim() == 0 ? x.reshape({1}) : x, axis, true, true, true);
  Tensor target = c.out(0);
  if (x.dim() == 0) {
    target.copy_(values.reshape({}));
  } else {
    target.narrow(axis, 0, values.size(axis)).copy_(values);
  }
  c.out(1).copy_(inverse);
  c.out(2).narrow(0, 0, counts.numel()).copy_(counts);
  c.out(3).fill_(counts.numel());
}
SIM_OP(UniqueAlongAxis).inputs(1).outputs(4).dtypes(kAllTypes).attrs({"axis:int"}).run(unique_along_axis);

// a, b, rcond -> solution, residuals, rank, singular values; those that the driver does not give are empty
void least_squares(OpContext& c) {
  std::optional<double> rcond;
  if (c.has_input(2)) rcond = c.in_scalar(2).toDouble();
  const std::string driver = c.attrs().text("driver", "gelsy");
  const auto [solution, residuals, rank, singular] = at::linalg_lstsq(c.in(0), c.in(1), rcond, driver);
  c.set_out(0, solution);
  Tensor rest = c.out(1), ranks = c.out(2), values = c.out(3);
  rest.zero_();
  if (rest.numel() == residuals.numel()) rest.copy_(residuals);
  if (ranks.numel() > 0) ranks.copy_(rank);
  if (values.numel() > 0) values.copy_(singular);
}
SIM_OP(LeastSquares).inputs(3).outputs(4).dtypes(kAllTypes).attrs({"driver:str"}).run(least_squares);

}  // namespace
}  // namespace acl_sim
