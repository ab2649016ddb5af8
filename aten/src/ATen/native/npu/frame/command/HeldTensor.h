#pragma once
// A tensor that a command holds until it is launched.
//
// Note [Borrowed operands]
// If only Python refers to a tensor, upstream takes Python's lock (the GIL) whenever C++ adds the first reference to it
// and whenever it drops the last one: each costs as much as a small operator. Such a tensor is an argument of the call
// that is running, and the caller keeps it until the call returns. So a command borrows it: it uses the tensor without
// counting a reference. What outlives the call (a task in the queue) must not borrow: take_owned() leaves that out.

#include <ATen/core/Tensor.h>

#include <utility>

namespace at::native::npu {

class HeldTensor {
 public:
  HeldTensor() = default;
  HeldTensor(HeldTensor&& other) noexcept
      : tensor_(std::move(other.tensor_)), borrowed_(std::exchange(other.borrowed_, false)) {}
  HeldTensor(const HeldTensor&) = delete;
  HeldTensor& operator=(const HeldTensor&) = delete;
  HeldTensor& operator=(HeldTensor&&) = delete;
  ~HeldTensor() { reset(); }

  HeldTensor& operator=(const Tensor& tensor) {
    reset();
    TensorImpl* impl = tensor.unsafeGetTensorImpl();
    if (tensor.use_count() == 1 && impl->pyobj_slot()->load_pyobj() != nullptr) {
      tensor_ = Tensor(c10::intrusive_ptr<TensorImpl, UndefinedTensorImpl>::reclaim(impl));
      borrowed_ = true;
    } else {
      tensor_ = tensor;
    }
    return *this;
  }
  HeldTensor& operator=(Tensor&& tensor) {
    reset();
    tensor_ = std::move(tensor);
    return *this;
  }

  void reset() {
    if (borrowed_) {
      tensor_.unsafeReleaseTensorImpl();
      borrowed_ = false;
    } else {
      tensor_.reset();
    }
  }
  // Leaves nothing behind; what was borrowed comes out undefined.
  Tensor take_owned() {
    if (borrowed_) reset();
    return std::move(tensor_);
  }

  const Tensor& operator*() const { return tensor_; }
  const Tensor* operator->() const { return &tensor_; }
  operator const Tensor&() const { return tensor_; }

 private:
  Tensor tensor_;
  bool borrowed_ = false;
};

}  // namespace at::native::npu
