// Bags of embeddings as sums of rows; the maximum of a bag is left to the CPU.

#include <ATen/ATen.h>
#include <ATen/native/npu/frame/inference/Composed.h>
#include <ATen/native/npu/frame/registration/AtenOp.h>

namespace at::native::npu {
namespace {

constexpr int64_t kMean = 1, kMax = 2;

bool given(const AtenArguments& a, const char* name) { return a[name].isTensor() && a.tensor(name).defined(); }

// Rows with a weight each; zero for those that pad.
Tensor weighted(Tensor rows, const Tensor& indices, const AtenArguments& a, const char* weights) {
  if (given(a, weights)) rows = rows * a.tensor(weights).to(rows.scalar_type()).unsqueeze(-1);
  const int64_t padding = a["padding_idx"].toInt();
  return padding < 0 ? rows : rows * indices.ne(padding).to(rows.scalar_type()).unsqueeze(-1);
}

}  // namespace

std::vector<Tensor> composed_embedding_bag(const AtenArguments& a) {
  const Tensor &weight = a.tensor("weight"), &indices = a.tensor("indices");
  const int64_t mode = a["mode"].toInt(), padding = a["padding_idx"].toInt();
  if (mode == kMax) throw MissingOperator("EmbeddingBagForward");
  Tensor offsets = a.tensor("offsets"), beyond;
  const bool with_end = a["include_last_offset"].toBool();
  if (with_end) {
    beyond = offsets.select(0, offsets.size(0) - 1);
    offsets = offsets.narrow(0, 0, offsets.size(0) - 1);
  }
  const int64_t n = indices.numel(), bags = offsets.size(0);
  const Tensor place = at::arange(n, offsets.options());
  const Tensor bag =
      (at::searchsorted(offsets, place, /*out_int32=*/false, /*right=*/true) - 1).to(offsets.scalar_type());
  Tensor counted = at::ones_like(bag);
  if (with_end) counted = place.lt(beyond).to(bag.scalar_type());
  if (padding >= 0) counted = counted * indices.ne(padding).to(bag.scalar_type());
  const Tensor size = at::zeros({bags}, bag.options()).index_add(0, bag, counted);
  Tensor rows = weighted(wide(weight.index_select(0, indices), weight.scalar_type()), indices, a, "per_sample_weights");
  if (with_end) rows = rows * place.lt(beyond).to(rows.scalar_type()).unsqueeze(-1);
  Tensor output = at::zeros({bags, weight.size(1)}, rows.options()).index_add(0, bag, rows);
  if (mode == kMean) output = output / size.clamp_min(1).to(output.scalar_type()).unsqueeze(-1);
  return {output, bag, size, size};
}

std::vector<Tensor> composed_embedding_bag_dense_backward(const AtenArguments& a) {
  const Tensor &indices = a.tensor("indices"), &bag = a.tensor("offset2bag"), &grad = a.tensor("grad");
  const int64_t mode = a["mode"].toInt();
  if (mode == kMax) throw MissingOperator("EmbeddingBagDenseGrad");
  Tensor g = wide(grad, grad.scalar_type());
  if (mode == kMean) {
    // With include_last_offset upstream announces one size more than there are bags.
    const Tensor sizes = a.tensor("bag_size").narrow(0, 0, g.size(0));
    g = g / sizes.clamp_min(1).to(g.scalar_type()).unsqueeze(-1);
  }
  const Tensor rows = weighted(g.index_select(0, bag), indices, a, "per_sample_weights");
  const int64_t count = a["num_weights"].toInt();
  Tensor shared = rows;
  if (a["scale_grad_by_freq"].toBool()) {
    const Tensor uses = at::zeros({count}, indices.options()).index_add(0, indices, at::ones_like(indices));
    shared = rows / uses.index_select(0, indices).to(rows.scalar_type()).unsqueeze(-1);
  }
  return {at::zeros({count, rows.size(1)}, rows.options()).index_add(0, indices, shared)};
}

std::vector<Tensor> composed_embedding_bag_weights_backward(const AtenArguments& a) {
  const Tensor &grad = a.tensor("grad"), &weight = a.tensor("weight"), &indices = a.tensor("indices");
  const Tensor rows = wide(weight.index_select(0, indices), weight.scalar_type());
  const Tensor by_weight = (wide(grad, grad.scalar_type()).index_select(0, a.tensor("offset2bag")) * rows).sum(-1);
  const int64_t padding = a["padding_idx"].toInt();
  return {padding < 0 ? by_weight : by_weight * indices.ne(padding).to(by_weight.scalar_type())};
}

}  // namespace at::native::npu
