#pragma once
// What the gradients of npu operators share. Forward and backward call operators through the dispatcher, so that fake
// and traced tensors take the same way.

#include <ATen/core/dispatch/Dispatcher.h>
#include <NPUCustomFunctions.h>
#include <torch/csrc/autograd/custom_function.h>

// The dispatcher's entry of an operator of the library `npu` that `function` serves.
#define NPU_CUSTOM_OP(function, name, overload)                                           \
  ([]() -> const auto& {                                                                  \
    static const auto handle = c10::Dispatcher::singleton()                               \
                                   .findSchemaOrThrow("npu::" name, overload)             \
                                   .typed<std::remove_reference_t<decltype(function)>>(); \
    return handle;                                                                        \
  }())

namespace at::native::npu {

using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

}  // namespace at::native::npu
