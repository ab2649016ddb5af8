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

template <class Tuple>
variable_list as_list(const Tuple& tuple) {
  return std::apply([](const auto&... t) { return variable_list{t...}; }, tuple);
}

inline std::optional<Tensor> given(const Tensor& t) { return t.defined() ? std::optional<Tensor>(t) : std::nullopt; }

inline Tensor value_of(const std::optional<Tensor>& t) { return t.value_or(Tensor()); }

template <size_t... I>
auto as_tuple(const variable_list& list, std::index_sequence<I...>) {
  return std::make_tuple(list[I]...);
}

template <size_t N>
auto as_tuple(const variable_list& list) {
  return as_tuple(list, std::make_index_sequence<N>());
}

}  // namespace at::native::npu
