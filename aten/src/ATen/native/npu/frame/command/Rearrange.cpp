// Which one IR operator makes a view contiguous, and how a result gets into a view.

#include <ATen/native/npu/frame/command/Float8.h>
#include <ATen/native/npu/frame/command/Rearrange.h>

#include <ATen/MemoryOverlap.h>
#include <ATen/native/npu/frame/command/OpCommand.h>
#include <ATen/native/npu/frame/command/PlainLaunch.h>
#include <ATen/native/npu/frame/inference/Allocate.h>
#include <ATen/native/npu/frame/inference/Dtype.h>
#include <ATen/native/npu/frame/layout/Strides.h>

namespace at::native::npu {

namespace {

// Writes the view (sizes, strides from base's first element) into `out`, which is contiguous with numel elements.
void gather_into(const Tensor& out, const Tensor& base, IntArrayRef sizes, IntArrayRef strides) {
  const auto rank = static_cast<int64_t>(sizes.size());
  DimVector dims(sizes);
  DimVector kept_strides(strides);
  bool expanded = false;
  for (int64_t i = 0; i < rank; ++i) {
    if (strides[i] == 0 && sizes[i] != 1) {
      dims[i] = 1;
      expanded = true;
    }
  }
  OpCommand cmd;
  if (expanded && is_contiguous_as(dims, kept_strides)) {
    cmd.Name("BroadcastTo").InputAs(alias(base, dims, c10::contiguous_strides(dims), base.storage_offset()), dims);
    cmd.Input(sizes).OutputAs(out, sizes).Run();
    return;
  }
  if (!expanded && is_dense(sizes, strides)) {
    const DimVector order = memory_order(sizes, strides);
    DimVector perm(rank), stored(rank);
    for (int64_t i = 0; i < rank; ++i) {
      stored[i] = sizes[order[i]];
      perm[order[i]] = i;
    }
    cmd.Name("Transpose").InputAs(alias(base, stored, c10::contiguous_strides(stored), base.storage_offset()), stored);
    cmd.Input(perm).OutputAs(out, sizes).Run();
    return;
  }
  cmd.Name("AsStrided").InputStorage(base, base.storage_offset(), extent(sizes, strides));
  cmd.Input(sizes).Input(strides).Input(IntArrayRef({0})).OutputAs(out, sizes).Run();
}

}  // namespace

Tensor gather_view(const Tensor& base, IntArrayRef sizes, IntArrayRef strides) {
  Tensor out = empty_npu(sizes, base.scalar_type(), base.device());
  if (out.numel() > 0) gather_into(out, base, sizes, strides);
  return out;
}

Tensor contiguous(const Tensor& tensor) {
  return tensor.is_contiguous() ? tensor : gather_view(tensor, tensor.sizes(), tensor.strides());
}

void cast_into(const Tensor& target, const Tensor& source) {
  if (target.numel() == 0) return;
  const ScalarType to = target.scalar_type(), from = source.scalar_type();
  if (C10_UNLIKELY(is_coded(from))) {
    const Tensor values = values_of_codes(source);
    return to == kFloat ? copy_same_dtype(target, values) : cast_into(target, values);
  }
  if (C10_UNLIKELY(is_coded(to))) return copy_same_dtype(target.view(kByte), codes_of_values(cast(source, kFloat), to));
  OpCommand cmd;
  cmd.Name("Cast").Elementwise().Input(source).Output(target).Attr("dst_type", int64_t{acl_dtype(to)}).Run();
}

Tensor cast(const Tensor& tensor, ScalarType dtype) {
  if (tensor.scalar_type() == dtype) return tensor;
  Tensor out = empty_preserved(tensor, dtype);
  cast_into(out, tensor);
  return out;
}

void copy_same_dtype(const Tensor& target, const Tensor& source) {
  if (target.numel() == 0) return;
  if (target.is_contiguous()) {
    if (source.is_contiguous()) {
      if (issue_plain("Identity", target, source)) return;
      OpCommand cmd;
      cmd.Name("Identity").Input(source).Output(target).Run();
    } else {
      gather_into(target, source, source.sizes(), source.strides());
    }
    return;
  }
  if (is_dense(target) && target.sizes() == source.sizes() && target.strides() == source.strides()) {
    OpCommand cmd;
    cmd.Name("Identity").Elementwise().Input(source).Output(target).Run();
    return;
  }
  if (is_dense(target)) {
    // The target's memory is that of a contiguous tensor with its dimensions in another order: the source is gathered
    // in that one.
    const DimVector order = memory_order(target.sizes(), target.strides());
    DimVector sizes(order.size()), strides(order.size());
    for (size_t i = 0; i < order.size(); ++i) {
      sizes[i] = source.size(order[i]);
      strides[i] = source.stride(order[i]);
    }
    gather_into(target, source, sizes, strides);
    return;
  }
  at::assert_no_internal_overlap(target);
  // The target is its own input: what lies between the elements of the view stays.
  const int64_t target_extent = extent(target.sizes(), target.strides());
  OpCommand cmd;
  cmd.Name("ViewCopy").InputStorage(target, target.storage_offset(), target_extent);
  cmd.Input(target.sizes()).Input(target.strides()).Input(IntArrayRef({0}));
  cmd.InputStorage(source, source.storage_offset(), extent(source.sizes(), source.strides()));
  cmd.Input(source.sizes()).Input(source.strides()).Input(IntArrayRef({0}));
  cmd.OutputStorage(target, target.storage_offset(), target_extent).Run();
}

}  // namespace at::native::npu
