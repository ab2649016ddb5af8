#pragma once
// The functional, in-place and out= forms of a kernel around one of upstream's structured meta functions (or a rule
// of MetaRules.h): the meta function states shape and dtype, these classes provide the outputs.

#include <ATen/MemoryOverlap.h>
#include <ATen/TensorIterator.h>
#include <ATen/TensorMeta.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/Resize.h>
#include <ATen/native/npu/frame/inference/Allocate.h>

#include <array>
#include <functional>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>

namespace at::native::npu {

// What upstream requires of an out= tensor before it is resized, and of an in-place operand.
void check_inplace(const Tensor& self, IntArrayRef sizes, const TensorOptions& options);
void resize_out(const Tensor& out, IntArrayRef sizes, IntArrayRef strides, const TensorOptions& options);
// A new output; without strides it has the memory format of the options.
Tensor new_output(IntArrayRef sizes, IntArrayRef strides, const TensorOptions& options);

// Refuses an out= tensor that overlaps itself or, in part, an operand. TensorIterator does this for its operators.
template <class... T>
inline void check_overlap(const Tensor& out, const T&... operands) {
  at::assert_no_internal_overlap(out);
  (at::assert_no_partial_overlap(out, operands), ...);
}

template <class Rule>
inline constexpr bool is_iterator_rule = std::is_base_of_v<TensorIteratorBase, Rule>;

// Optional tensors and scalars reach meta functions as references, everything else as it is.
inline OptionalTensorRef meta_argument(const std::optional<Tensor>& tensor) {
  return tensor.has_value() && tensor->defined() ? OptionalTensorRef(*tensor) : OptionalTensorRef();
}
inline OptionalScalarRef meta_argument(const std::optional<Scalar>& scalar) {
  return scalar.has_value() ? OptionalScalarRef(*scalar) : OptionalScalarRef();
}
template <class T>
inline const T& meta_argument(const T& value) {
  return value;
}

// Common to the three forms. `Rule` is the class with meta(); N is the number of outputs.
template <class Rule, size_t N>
class StructuredOp : public Rule {
 public:
  const Tensor& result(size_t i) { return this->maybe_get_output(static_cast<int64_t>(i)); }

  // The dtype to compute in: what TensorIterator promoted to, else the result's.
  ScalarType compute_dtype() {
    if constexpr (is_iterator_rule<Rule>) {
      return this->maybe_common_dtype().value_or(result(0).scalar_type());
    } else {
      return result(0).scalar_type();
    }
  }

 protected:
  void set_iterator_output(int64_t i, IntArrayRef sizes, IntArrayRef strides, const TensorOptions& options) {
    if constexpr (is_iterator_rule<Rule>) Rule::set_output_raw_strided(i, sizes, strides, options);
  }
};

template <class Rule, size_t N>
class Functional final : public StructuredOp<Rule, N> {
 public:
  void set_output_strided(int64_t i, IntArrayRef sizes, IntArrayRef strides, TensorOptions options) override {
    outputs_[i] = new_output(sizes, strides, options);
    this->set_iterator_output(i, sizes, strides, options);
  }
  void set_output_raw_strided(int64_t i, IntArrayRef sizes, IntArrayRef strides, TensorOptions options) override {
    set_output_strided(i, sizes, strides, options);
  }
  const Tensor& maybe_get_output(int64_t i) override { return outputs_[i]; }

  auto take() {
    if constexpr (N == 1) {
      return std::move(outputs_[0]);
    } else {
      return std::apply([](auto&... outputs) { return std::make_tuple(std::move(outputs)...); }, outputs_);
    }
  }

 private:
  std::array<Tensor, N> outputs_;
};

// In-place and out= write to tensors of the caller; where the meta function insists on other strides, a stand-in is
// computed and copied over by finish().
template <class Rule, size_t N>
class IntoGiven : public StructuredOp<Rule, N> {
 public:
  const Tensor& maybe_get_output(int64_t i) override { return stand_ins_[i].defined() ? stand_ins_[i] : *given_[i]; }

  void finish() {
    for (size_t i = 0; i < N; ++i) {
      if (stand_ins_[i].defined()) given_[i]->copy_(stand_ins_[i]);
    }
  }

 protected:
  void stand_in_if_needed(int64_t i, IntArrayRef sizes, IntArrayRef strides) {
    if (!strides.empty() && given_[i]->strides() != strides) {
      stand_ins_[i] = empty_npu(sizes, strides, given_[i]->scalar_type(), given_[i]->device());
    }
  }
  std::array<const Tensor*, N> given_{};

 private:
  std::array<Tensor, N> stand_ins_;
};

template <class Rule, size_t N>
class Inplace final : public IntoGiven<Rule, N> {
 public:
  explicit Inplace(Tensor& self) { this->given_[0] = &self; }
  void set_output_strided(int64_t i, IntArrayRef sizes, IntArrayRef strides, TensorOptions options) override {
    check_inplace(*this->given_[i], sizes, options);
    this->stand_in_if_needed(i, sizes, strides);
    this->set_iterator_output(i, sizes, strides, options);
  }
  void set_output_raw_strided(int64_t i, IntArrayRef sizes, IntArrayRef strides, TensorOptions options) override {
    check_inplace(*this->given_[i], sizes, options);
    this->set_iterator_output(i, sizes, strides, options);
  }
};

template <class Rule, size_t N>
class Out final : public IntoGiven<Rule, N> {
 public:
  template <class... T>
  explicit Out(T&... outputs) {
    this->given_ = {&outputs...};
  }
  void set_output_strided(int64_t i, IntArrayRef sizes, IntArrayRef strides, TensorOptions options) override {
    resize_out(*this->given_[i], sizes, strides, options);
    this->stand_in_if_needed(i, sizes, strides);
    this->set_iterator_output(i, sizes, strides, options);
  }
  void set_output_raw_strided(int64_t i, IntArrayRef sizes, IntArrayRef strides, TensorOptions options) override {
    resize_out(*this->given_[i], sizes, strides, options);
    this->set_iterator_output(i, sizes, strides, options);
  }
};

}  // namespace at::native::npu
