#pragma once
// A kernel as it is registered where the device may lack its IR operator: then it runs on the CPU. See Note [What a
// card has] in Missing.h.

#include <ATen/core/boxing/KernelFunction.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/native/npu/frame/command/Missing.h>
#include <ATen/native/npu/frame/registration/Fallback.h>

namespace at::native::npu {

// `Op` is upstream's at::_ops struct of the overload, `kernel` a function with the dispatcher's signature.
template <class Op, class Signature, Signature* kernel>
struct OrCpu;

template <class Op, class Result, class... Args, Result (*kernel)(Args...)>
struct OrCpu<Op, Result(Args...), kernel> {
  static Result call(Args... args) {
    try {
      return kernel(args...);
    } catch (const MissingOperator& missing) {
      const c10::OperatorHandle op = c10::Dispatcher::singleton().findSchemaOrThrow(Op::name, Op::overload_name);
      return on_cpu(op, missing.ir(), args...);
    }
  }

 private:
  static Result on_cpu(const c10::OperatorHandle& op, const char* ir, Args&... args) {
    return c10::impl::BoxedKernelWrapper<Result(Args...)>::call(
        c10::BoxedKernel::makeFromFunctor(std::make_unique<Boxed>(ir)), op, c10::DispatchKeySet(), args...);
  }

  class Boxed final : public c10::OperatorKernel {
   public:
    explicit Boxed(const char* ir) : ir_(ir) {}
    void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet /*keys*/, torch::jit::Stack* stack) {
      run_on_cpu(op, stack, ir_);
    }

   private:
    const char* ir_;
  };
};

}  // namespace at::native::npu
