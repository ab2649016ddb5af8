// Lets `.data =` and Module.to move a tensor between host and device in place: upstream's list of dense back ends,
// between which a TensorImpl may be copied shallowly, leaves PrivateUse1 out, and names this operator as the way in.

#include <ATen/core/Tensor.h>
#include <c10/core/DispatchKeySet.h>
#include <torch/library.h>

namespace at::npu {

namespace {

bool is_dense(const DispatchKeySet& keys) {
  constexpr auto kBackends =
      DispatchKeySet({BackendComponent::CPUBit, BackendComponent::CUDABit, BackendComponent::MPSBit,
                      BackendComponent::HIPBit, BackendComponent::XPUBit, BackendComponent::HPUBit,
                      BackendComponent::MTIABit, BackendComponent::PrivateUse1Bit});
  constexpr auto kDense = DispatchKeySet(DispatchKey::Dense);
  return keys.has_any(kDense) && keys.has_any(kBackends);
}

bool has_compatible_shallow_copy_type(const Tensor& self, const Tensor& from) {
  auto* impl = self.unsafeGetTensorImpl();
  return impl->has_compatible_shallow_copy_type(from.key_set()) || (is_dense(impl->key_set()) && is_dense(from.key_set()));
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_has_compatible_shallow_copy_type", has_compatible_shallow_copy_type);
}

}  // namespace
}  // namespace at::npu
