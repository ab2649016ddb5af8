#pragma once
// Output rules for operators that upstream has no structured meta function for; named by `output:` in the operator
// table. Each is a class with meta(arguments...), as upstream's are; further arguments are ignored.

#include <ATen/TensorIterator.h>
#include <ATen/TensorMeta.h>
#include <ATen/core/Tensor.h>

namespace at::native::npu::meta_rules {

// Same shape and dtype.
struct unary : TensorIteratorBase {
  template <class... Rest>
  void meta(const Tensor& self, const Rest&...) {
    build_borrowing_unary_op(maybe_get_output(), self);
  }
};

// Same shape; integers become the default float type.
struct unary_float : TensorIteratorBase {
  template <class... Rest>
  void meta(const Tensor& self, const Rest&...) {
    build_borrowing_unary_float_op(maybe_get_output(), self);
  }
};

// Same shape, bool result (or any dtype that an out= tensor has).
struct unary_bool : TensorIteratorBase {
  template <class... Rest>
  void meta(const Tensor& self, const Rest&...) {
    TensorIteratorConfig config;
    config.check_all_same_dtype(false);
    if (!maybe_get_output().defined()) config.declare_static_dtype_and_device(kBool, self.device());
    config.add_borrowed_output(maybe_get_output()).add_borrowed_const_input(self);
    build(config);
  }
};

struct binary : TensorIteratorBase {
  template <class... Rest>
  void meta(const Tensor& self, const Tensor& other, const Rest&...) {
    build_borrowing_binary_op(maybe_get_output(), self, other);
  }
};

struct binary_float : TensorIteratorBase {
  template <class... Rest>
  void meta(const Tensor& self, const Tensor& other, const Rest&...) {
    build_borrowing_binary_float_op(maybe_get_output(), self, other);
  }
};

struct comparison : TensorIteratorBase {
  template <class... Rest>
  void meta(const Tensor& self, const Tensor& other, const Rest&...) {
    build_borrowing_comparison_op(maybe_get_output(), self, other);
  }
};

}  // namespace at::native::npu::meta_rules
