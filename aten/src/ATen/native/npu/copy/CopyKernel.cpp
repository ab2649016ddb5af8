// Copies between tensors: on one device, between devices, from and to the host, with casts, views and broadcasts.

#include <ATen/MemoryOverlap.h>
#include <ATen/core/CachingHostAllocator.h>
#include <ATen/native/npu/frame/command/DeviceOf.h>
#include <ATen/native/npu/frame/command/FormatCast.h>
#include <ATen/native/npu/frame/command/HostScalar.h>
#include <ATen/native/npu/frame/command/OpCommand.h>
#include <ATen/native/npu/frame/command/Rearrange.h>
#include <ATen/native/npu/frame/inference/Allocate.h>
#include <ATen/native/npu/frame/inference/Dtype.h>
#include <ATen/native/npu/frame/layout/Strides.h>
#include <NPUNativeFunctions.h>
#include <c10/npu/NPUEvent.h>
#include <c10/npu/NPUTaskQueue.h>

namespace at::native::npu {

namespace {

// Note [Copies]
// A copy has at most three steps. What crosses between host and device is one block of memory in the source's dtype or,
// downwards, in the target's: casts run on the device. Views are gathered before, and scattered after, on their side.
// From pageable memory the block has left the caller's memory when memcpy_async returns, which is all that a blocking
// copy promises; only pinned memory and copies to the host make the caller wait for the stream.

void* address(const Tensor& t) {
  return static_cast<char*>(t.storage().mutable_data()) + t.storage_offset() * static_cast<int64_t>(t.itemsize());
}

// Of a tensor that is only read: a lazily cloned storage stays shared.
const void* read_address(const Tensor& t) {
  return static_cast<const char*>(t.storage().data()) + t.storage_offset() * static_cast<int64_t>(t.itemsize());
}

bool overlapping_memory(const Tensor& a, const Tensor& b) {
  if (!a.is_alias_of(b)) return false;
  const int64_t a_begin = a.storage_offset(), b_begin = b.storage_offset();
  return a_begin < b_begin + extent(b.sizes(), b.strides()) && b_begin < a_begin + extent(a.sizes(), a.strides());
}

void keep_host_block(const Tensor& host, const c10::npu::NPUStream& stream) {
  at::getHostAllocator(kPrivateUse1)
      ->record_event(const_cast<void*>(host.storage().data()), host.storage().data_ptr().get_context(),
                     stream.unwrap());
}

// Upstream has no copy of them, though it concatenates, selects and turns them.
constexpr DtypeMask kDtypeBelowByte =
    dtype_mask(ScalarType::UInt1, ScalarType::UInt2, ScalarType::UInt3, ScalarType::UInt4, ScalarType::UInt5,
               ScalarType::UInt6, ScalarType::UInt7, ScalarType::Int1, ScalarType::Int2, ScalarType::Int3,
               ScalarType::Int4, ScalarType::Int5, ScalarType::Int6, ScalarType::Int7);

void on_device(const Tensor& self, const Tensor& src) {
  check_dtype(self.scalar_type(), ~kDtypeBelowByte, "copy_");
  if (self.scalar_type() != src.scalar_type()) {
    cast_into(self, src);
  } else if (C10_UNLIKELY(overlapping_memory(self, src))) {
    if (self.strides() == src.strides() && self.storage_offset() == src.storage_offset()) return;
    const Tensor aside = empty_as(src);
    copy_same_dtype(aside, src);
    copy_same_dtype(self, aside);
  } else {
    copy_same_dtype(self, src);
  }
}

void to_device(const Tensor& self, const Tensor& src, bool non_blocking);

void between_devices(const Tensor& self, const Tensor& src) {
  if (C10_UNLIKELY(!c10::npu::enable_peer_access(src.device().index(), self.device().index()))) {
    return to_device(self, src.cpu(), false);  // devices apart: through the host
  }
  Tensor sent = plain(src.scalar_type() == self.scalar_type() ? src : cast(src, self.scalar_type()));
  if (!same_order(self, sent)) sent = contiguous(sent);
  const bool direct = same_order(self, sent) && !in_private_format(self);
  const Tensor received = direct ? self : empty_npu(sent.sizes(), self.scalar_type(), self.device());
  const auto from = c10::npu::getCurrentNPUStream(src.device().index());
  const auto to = c10::npu::getCurrentNPUStream(self.device().index());
  // The copy runs on the source's stream: after what is queued for the target, and before what follows there.
  c10::npu::NPUEvent free_to_write, written;
  free_to_write.record(to);
  free_to_write.block(from);
  c10::npu::memcpy_async(address(received), read_address(sent), sent.nbytes(), ACL_MEMCPY_DEVICE_TO_DEVICE, from);
  written.record(from);
  written.block(to);
  if (!direct) copy_same_dtype(self, received);
}

void to_device(const Tensor& self, const Tensor& src, bool non_blocking) {
  const auto stream = c10::npu::getCurrentNPUStream(self.device().index());
  const bool direct = src.scalar_type() == self.scalar_type() && is_dense(self) && !in_private_format(self);
  Tensor host = src;
  if (direct ? !same_order(self, src) : !is_dense(src)) {
    host = at::empty_strided(src.sizes(), direct ? self.strides() : IntArrayRef(c10::contiguous_strides(src.sizes())),
                             src.options().pinned_memory(false));
    host.copy_(src);
  }
  const Tensor block = direct ? self : empty_npu(host.sizes(), host.strides(), host.scalar_type(), self.device());
  if (host.is_same(src) && src.is_pinned()) {
    if (non_blocking) {
      c10::npu::memcpy_async(address(block), read_address(host), host.nbytes(), ACL_MEMCPY_HOST_TO_DEVICE, stream);
      keep_host_block(host, stream);
    } else {
      c10::npu::memcpy_and_sync(address(block), read_address(host), host.nbytes(), ACL_MEMCPY_HOST_TO_DEVICE, stream);
    }
  } else {
    c10::npu::memcpy_async(address(block), read_address(host), host.nbytes(), ACL_MEMCPY_HOST_TO_DEVICE, stream);
  }
  if (!direct) on_device(self, block);
}

void to_host(const Tensor& self, const Tensor& src, bool non_blocking) {
  const auto stream = c10::npu::getCurrentNPUStream(src.device().index());
  if (src.scalar_type() != self.scalar_type()) return to_host(self, cast(src, self.scalar_type()), non_blocking);
  if (C10_UNLIKELY(in_private_format(src))) return to_host(self, plain(src), non_blocking);
  if (!is_dense(src)) return to_host(self, contiguous(src), non_blocking);
  if (is_dense(self) && !same_order(self, src)) {
    // The device rearranges the block, so that the host only receives it.
    const Tensor arranged = empty_npu(self.sizes(), self.strides(), src.scalar_type(), src.device());
    copy_same_dtype(arranged, src);
    return to_host(self, arranged, non_blocking);
  }
  if (same_order(self, src)) {
    if (non_blocking && self.is_pinned()) {
      c10::npu::memcpy_async(address(self), read_address(src), src.nbytes(), ACL_MEMCPY_DEVICE_TO_HOST, stream);
      keep_host_block(self, stream);
    } else {
      c10::npu::memcpy_and_sync(address(self), read_address(src), src.nbytes(), ACL_MEMCPY_DEVICE_TO_HOST, stream);
    }
    return;
  }
  const Tensor host = at::empty_strided(src.sizes(), src.strides(), self.options().pinned_memory(false));
  c10::npu::memcpy_and_sync(address(host), read_address(src), src.nbytes(), ACL_MEMCPY_DEVICE_TO_HOST, stream);
  self.copy_(host);
}

}  // namespace

Tensor& copy_(Tensor& self, const Tensor& src, bool non_blocking) {
  TORCH_CHECK(self.defined(), "self is undefined");
  TORCH_CHECK(src.defined(), "src is undefined");
  if (self.is_same(src)) return self;
  TORCH_CHECK(!self._is_zerotensor(),
              "ZeroTensors are immutable. Please materialize the tensor using `.clone()`, if you want a mutable zero "
              "tensor.");
  // It has no memory.
  if (C10_UNLIKELY(src._is_zerotensor())) {
    if (self.sizes() != src.sizes()) src.expand(self.sizes());  // refuses what cannot be broadcast
    return self.zero_();
  }
  // Lazy conjugation and negation: the target's are taken off both sides, the source's are computed.
  if (C10_UNLIKELY(self.is_conj())) {
    self.conj().copy_(src.conj(), non_blocking);
    return self;
  }
  if (C10_UNLIKELY(self.is_neg())) {
    self._neg_view().copy_(src._neg_view(), non_blocking);
    return self;
  }
  if (C10_UNLIKELY(src.is_conj())) return copy_(self, at::conj_physical(src.conj()), non_blocking);
  if (C10_UNLIKELY(src.is_neg())) return copy_(self, src._neg_view().neg(), non_blocking);
  TORCH_CHECK(src.layout() == kStrided && self.layout() == kStrided, "copy_ between ", self.layout(), " and ",
              src.layout(), " tensors is not supported on npu");
  if (isComplexType(src.scalar_type()) && !isComplexType(self.scalar_type())) {
    TORCH_WARN_ONCE("Casting complex values to real discards the imaginary part");
  }
  // Borrowed: Note [Borrowed operands].
  const auto expanded = self.sizes() == src.sizes() ? c10::MaybeOwned<Tensor>::borrowed(src)
                                                    : c10::MaybeOwned<Tensor>::owned(src.expand(self.sizes()));
  const Tensor& source = *expanded;
  if (self.numel() == 0) return self;
  if (C10_UNLIKELY(!self.is_contiguous())) at::assert_no_internal_overlap(self);
  if (self.device() == source.device()) {
    at::assert_no_partial_overlap(self, source);
    DeviceOf guard(self);
    on_device(self, source);
  } else if (source.device().is_privateuseone() && self.device().is_privateuseone()) {
    between_devices(self, source);
  } else if (source.is_cpu()) {
    DeviceOf guard(self);
    to_device(self, source, non_blocking);
  } else {
    TORCH_CHECK(self.is_cpu(), "copy_ between ", source.device(), " and ", self.device(), " is not supported");
    DeviceOf guard(source);
    to_host(self, source, non_blocking);
  }
  return self;
}

Tensor _copy_from(const Tensor& self, const Tensor& dst, bool non_blocking) {
  copy_(const_cast<Tensor&>(dst), self, non_blocking);  // which only writes to what it refers to
  return dst;
}

Tensor _copy_from_and_resize(const Tensor& self, const Tensor& dst) {
  dst.resize_(self.sizes());
  Tensor target = dst;
  copy_(target, self, false);
  return dst;
}

Scalar _local_scalar_dense(const Tensor& self) {
  TORCH_CHECK(self.numel() == 1, "a Tensor with ", self.numel(), " elements cannot be converted to Scalar");
  DeviceOf guard(self);
  alignas(16) std::byte value[16];
  // No copy of a tensor that is plain already: Note [Borrowed operands].
  const Tensor converted = C10_UNLIKELY(in_private_format(self)) ? plain(self) : Tensor();
  c10::npu::memcpy_and_sync(value, read_address(converted.defined() ? converted : self), self.itemsize(),
                            ACL_MEMCPY_DEVICE_TO_HOST, c10::npu::getCurrentNPUStream(self.device().index()));
  return read_scalar(value, self.scalar_type());
}

}  // namespace at::native::npu
