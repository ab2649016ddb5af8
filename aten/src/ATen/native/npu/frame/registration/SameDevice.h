#pragma once
// Refuses operands of one call that are on several devices, as upstream's generated kernels do. The frame finds a stray
// operand when it submits it; this finds it where nothing is submitted, because a result has no elements, and before
// anything is resized or computed.
//
//   SameDevice("mm.out").written(out).read(self).read(mat2);

#include <ATen/core/IListRef.h>
#include <ATen/core/List.h>
#include <ATen/core/Tensor.h>

#include <optional>

namespace at::native::npu {

class SameDevice {
 public:
  explicit SameDevice(const char* op) : op_(op) {}

  // A 0-d tensor on the CPU is read as a number, beside tensors on any device.
  SameDevice& read(const Tensor& t) { return meet(t, false); }
  SameDevice& read(const std::optional<Tensor>& t) { return t.has_value() ? meet(*t, false) : *this; }
  SameDevice& read(TensorList list) {
    for (const Tensor& t : list) meet(t, false);
    return *this;
  }
  SameDevice& read(const ITensorListRef& list) {
    for (const Tensor& t : list) meet(t, false);
    return *this;
  }
  SameDevice& read(const c10::List<std::optional<Tensor>>& list) {
    for (const std::optional<Tensor> t : list) read(t);
    return *this;
  }

  SameDevice& written(const Tensor& t) { return meet(t, true); }
  SameDevice& written(const std::optional<Tensor>& t) { return t.has_value() ? meet(*t, true) : *this; }
  SameDevice& written(TensorList list) {
    for (const Tensor& t : list) meet(t, true);
    return *this;
  }

 private:
  SameDevice& meet(const Tensor& t, bool written) {
    if (!t.defined()) return *this;
    const Device device = t.device();
    if (C10_LIKELY(known_ && device == common_)) return *this;
    if (!written && device.is_cpu() && t.dim() == 0) return *this;
    if (C10_UNLIKELY(known_)) refuse(device);
    common_ = device;
    known_ = true;
    return *this;
  }
  [[noreturn]] void refuse(Device other) const;

  const char* op_;
  Device common_{kCPU};
  bool known_ = false;
};

}  // namespace at::native::npu
