// What the CPU checks of bags of embeddings and upstream's meta kernel does not.

#include <ATen/native/npu/frame/registration/AtenOp.h>

namespace at::native::npu {

void check_embedding_bag(const AtenArguments& a) {
  if (!a["per_sample_weights"].isTensor() || !a.tensor("per_sample_weights").defined()) return;
  TORCH_CHECK(a.tensor("weight").scalar_type() == a.tensor("per_sample_weights").scalar_type(),
              "embedding_bag: Expected tensor for argument 'weight' to have the same type as tensor for argument ",
              "'per_sample_weights'; but type ", a.tensor("weight").scalar_type(), " does not equal ",
              a.tensor("per_sample_weights").scalar_type());
}

}  // namespace at::native::npu
