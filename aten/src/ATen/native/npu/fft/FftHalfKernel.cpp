// Fourier transforms of halves. Upstream's functions take them on CUDA and refuse them for every other device; on npu
// they are computed in fp32 and rounded once. Any other dtype goes on to upstream's function.

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/native/npu/frame/inference/Give.h>
#include <torch/library.h>

#include <string>

namespace at::native::npu {
namespace {

Tensor rounded(const Tensor& t) {
  if (t.scalar_type() == kComplexFloat) return t.to(kComplexHalf);
  return t.scalar_type() == kFloat ? t.to(kHalf) : t;
}

class HalfTransform final : public c10::OperatorKernel {
 public:
  explicit HalfTransform(std::string functional) : functional_(std::move(functional)) {}

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet /*keys*/, torch::jit::Stack* stack) {
    const bool into_out = op.schema().overload_name() == "out";
    const size_t first = stack->size() - op.schema().arguments().size();
    const Tensor self = (*stack)[first].toTensor();
    if (self.scalar_type() != kHalf && self.scalar_type() != kComplexHalf) {
      // A key whose kernel is the function that upstream has for all devices.
      op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::AutogradCPU), stack);
      return;
    }
    Tensor out = into_out ? torch::jit::pop(*stack).toTensor() : Tensor();
    (*stack)[first] = self.to(self.is_complex() ? kComplexFloat : kFloat);
    c10::Dispatcher::singleton().findSchemaOrThrow(functional_.c_str(), "").callBoxed(stack);
    const Tensor result = rounded(torch::jit::pop(*stack).toTensor());
    stack->emplace_back(into_out ? give(result, out) : result);
  }

 private:
  std::string functional_;
};

void register_transforms(torch::Library& m) {
  for (const char* kind : {"fft", "ifft", "rfft", "irfft", "hfft", "ihfft"}) {
    for (const char* rank : {"", "2", "n"}) {
      const std::string name = std::string("fft_") + kind + rank;
      for (const char* form : {"", ".out"}) {
        m.impl((name + form).c_str(),
               torch::CppFunction::makeFromBoxedFunctor(std::make_unique<HalfTransform>("aten::" + name)));
      }
    }
  }
}

}  // namespace

// Gradients are those of the operators that the functions are made of.
TORCH_LIBRARY_IMPL(aten, AutogradPrivateUse1, m) { register_transforms(m); }
TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) { register_transforms(m); }

}  // namespace at::native::npu
