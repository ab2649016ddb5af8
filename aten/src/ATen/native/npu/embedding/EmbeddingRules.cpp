// What the CPU checks of bags of embeddings and upstream's meta kernel does not.

#include <ATen/native/npu/frame/registration/AtenOp.h>

namespace at::native::npu {

void check_embedding_bag(const AtenArguments& a) {
  const Tensor &indices = a.tensor("indices"), &offsets = a.tensor("offsets");
  TORCH_CHECK(indices.dim() == 1 || indices.dim() == 2,
              "input has to be a 1D or 2D Tensor, but got Tensor of dimension ", indices.dim());
  TORCH_CHECK(indices.dim() == 2 || offsets.dim() == 1, "offsets has to be a 1D Tensor, but got Tensor of dimension ",
              offsets.dim());
  TORCH_CHECK(a.tensor("weight").dim() == 2, "weight has to be a 2D Tensor, but got Tensor of dimension ",
              a.tensor("weight").dim());
  if (!a["per_sample_weights"].isTensor() || !a.tensor("per_sample_weights").defined()) return;
  TORCH_CHECK(a.tensor("weight").scalar_type() == a.tensor("per_sample_weights").scalar_type(),
              "embedding_bag: Expected tensor for argument 'weight' to have the same type as tensor for argument ",
              "'per_sample_weights'; but type ", a.tensor("weight").scalar_type(), " does not equal ",
              a.tensor("per_sample_weights").scalar_type());
}

}  // namespace at::native::npu
