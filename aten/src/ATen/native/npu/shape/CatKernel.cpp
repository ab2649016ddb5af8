// Concatenation, and rearrangements of whole tensors: flip, roll, shuffles of channels and pixels.

#include <ATen/MemoryOverlap.h>
#include <ATen/native/PixelShuffle.h>
#include <ATen/native/npu/frame/command/DeviceOf.h>
#include <ATen/native/npu/frame/command/OpCommand.h>
#include <ATen/native/npu/frame/inference/Allocate.h>
#include <ATen/native/npu/frame/inference/Dims.h>
#include <ATen/native/npu/frame/inference/Dtype.h>
#include <ATen/native/npu/frame/inference/Structured.h>
#include <ATen/native/npu/frame/inference/Suggested.h>
#include <ATen/native/npu/frame/layout/Strides.h>
#include <ATen/ops/cat_meta.h>
#include <NPUNativeFunctions.h>

namespace at::native::npu {

namespace {

Device device_of_list(const MaterializedITensorListRef& tensors) {
  TORCH_CHECK_VALUE(!tensors.empty(), "expected a non-empty list of Tensors");
  const Device device = tensors[0].get().device();
  for (const Tensor& t : tensors) {
    TORCH_CHECK(t.device() == device, "Expected all tensors to be on the same device, but found at least two devices, ",
                device, " and ", t.device(), "!");
  }
  return device;
}

template <class Form>
void concatenate(Form& op, const ITensorListRef& list, int64_t dim) {
  const auto tensors = list.materialize();
  DeviceOf guard(device_of_list(tensors));
  const auto facts = op.meta(list, dim);
  const Tensor& result = op.result(0);
  if (result.numel() == 0) return;
  at::assert_no_internal_overlap(result);
  for (const Tensor& t : tensors) at::assert_no_overlap(result, t);
  // A channels-last result is put together in memory order, where the dimension has another place.
  const bool reorder = !result.is_contiguous() && is_dense(result);
  const DimVector order = reorder ? memory_order(result.sizes(), result.strides()) : every_dim(result);
  int64_t axis = facts.dim;
  if (reorder) axis = std::find(order.begin(), order.end(), facts.dim) - order.begin();
  OpCommand cmd;
  cmd.Name("ConcatD").Compute(result.scalar_type());
  int64_t count = 0;
  for (const Tensor& t : tensors) {
    // A 1-D tensor without elements takes part in a concatenation of any shape, as ever.
    if (t.numel() == 0) continue;
    cmd.Input(reorder ? t.permute(order) : t);
    ++count;
  }
  cmd.Output(reorder ? result.permute(order) : result).Attr("concat_dim", axis).Attr("N", count).Run();
}

}  // namespace

Tensor cat(const ITensorListRef& tensors, int64_t dim) {
  Functional<at::meta::structured_cat, 1> op;
  concatenate(op, tensors, dim);
  return op.take();
}

Tensor& cat_out(const ITensorListRef& tensors, int64_t dim, Tensor& out) {
  Out<at::meta::structured_cat, 1> op(out);
  concatenate(op, tensors, dim);
  op.finish();
  return out;
}

namespace {

ScalarType moved_as(ScalarType type) {
  switch (type) {
    case ScalarType::UInt16:
      return kShort;
    case ScalarType::UInt32:
    case ScalarType::ComplexHalf:
      return kInt;
    case ScalarType::UInt64:
      return kLong;
    default:
      if (has_acl_dtype(type) && !isFloat8Type(type)) return type;
      return elementSize(type) == 1 ? kByte : kShort;
  }
}

// The dimensions in the order in which the elements of `t` lie, so that nothing is rearranged; `axes` become places in
// that order.
DimVector order_in_memory(const Tensor& t, DimVector& axes) {
  DimVector order = memory_order(t.sizes(), t.strides());
  for (int64_t& axis : axes) axis = std::find(order.begin(), order.end(), axis) - order.begin();
  return order;
}

}  // namespace

Tensor flip(const Tensor& self, IntArrayRef dims) {
  DimVector axes(dims);
  at::maybe_wrap_dims(axes, self.dim());
  for (size_t i = 0; i < axes.size(); ++i) {
    TORCH_CHECK(std::count(axes.begin(), axes.end(), axes[i]) == 1, "dim ", axes[i],
                " appears multiple times in the list of dims");
  }
  DeviceOf guard(self);
  Tensor result = empty_preserved(self, self.scalar_type());
  if (self.numel() == 0) return result;
  if (self.dim() == 0) axes.clear();
  const DimVector order = order_in_memory(result, axes);
  // Elements are moved, whatever they mean: what the device has no kernel for goes as an integer of its size.
  const ScalarType as = moved_as(self.scalar_type());
  OpCommand cmd;
  cmd.Name("ReverseV2").Input(self.view(as).permute(order)).Input(axes).Output(result.view(as).permute(order)).Run();
  return result;
}

Tensor roll(const Tensor& self, IntArrayRef shifts, IntArrayRef dims) {
  TORCH_CHECK(!shifts.empty(), "`shifts` required");
  TORCH_CHECK(dims.empty() ? shifts.size() == 1 : shifts.size() == dims.size(),
              "shifts and dimensions must align. shifts: ", shifts.size(), ", dims:", dims.size());
  TORCH_CHECK_INDEX(self.dim() > 0 || dims.empty(), "Dimension specified as ", dims[0],
                    " but tensor has no dimensions");
  DimVector axes(dims);
  at::maybe_wrap_dims(axes, self.dim());
  DeviceOf guard(self);
  if (self.numel() == 0) return self.clone();
  Tensor result;
  OpCommand cmd;
  cmd.Name("Roll");
  if (axes.empty()) {
    result = empty_as(self);
    cmd.Input(self).Output(result);
  } else {
    // Arranged as the CPU's, which concatenates two parts along each dimension: of an empty part it is contiguous.
    bool moves = true;
    for (size_t i = 0; i < axes.size(); ++i) moves = moves && shifts[i] % self.size(axes[i]) != 0;
    result = moves ? empty_suggested(self) : empty_as(self);
    const DimVector order = order_in_memory(result, axes);
    cmd.Input(self.permute(order)).Output(result.permute(order));
  }
  cmd.Attr("shifts", shifts).Attr("dims", axes).Run();
  return result;
}

namespace {

// For what has the values of `self` in another order: channels-last where self is, as on the CPU.
Tensor empty_shuffled(const Tensor& self, IntArrayRef sizes) {
  MemoryFormat format = self.suggest_memory_format();
  if (format == MemoryFormat::ChannelsLast3d && sizes != self.sizes()) format = MemoryFormat::Contiguous;
  return new_output(sizes, {}, self.options().memory_format(format));
}

// [..., c, r, r, h, w] as [..., c, h, r, w, r].
Tensor between_pixels(const Tensor& blocks) { return blocks.movedim({-2, -4, -1, -3}, {-4, -3, -2, -1}); }

}  // namespace

Tensor pixel_shuffle(const Tensor& self, int64_t factor) {
  check_pixel_shuffle_shapes(self, factor);
  DeviceOf guard(self);
  const int64_t channels = self.size(-3) / (factor * factor), height = self.size(-2), width = self.size(-1);
  DimVector sizes(self.sizes().begin(), self.sizes().end() - 3);
  sizes.append({channels, height * factor, width * factor});
  Tensor result = empty_shuffled(self, sizes);
  if (result.numel() == 0) return result;
  const Tensor pixels = result.unflatten(-1, {width, factor}).unflatten(-3, {height, factor});
  pixels.copy_(between_pixels(self.unflatten(-3, {channels, factor, factor})));
  return result;
}

Tensor pixel_unshuffle(const Tensor& self, int64_t factor) {
  check_pixel_unshuffle_shapes(self, factor);
  DeviceOf guard(self);
  const int64_t channels = self.size(-3), height = self.size(-2) / factor, width = self.size(-1) / factor;
  DimVector sizes(self.sizes().begin(), self.sizes().end() - 3);
  sizes.append({channels * factor * factor, height, width});
  Tensor result = empty_shuffled(self, sizes);
  if (result.numel() == 0) return result;
  const Tensor pixels = self.unflatten(-1, {width, factor}).unflatten(-3, {height, factor});
  between_pixels(result.unflatten(-3, {channels, factor, factor})).copy_(pixels);
  return result;
}

Tensor channel_shuffle(const Tensor& self, int64_t groups) {
  TORCH_CHECK(self.dim() > 2, "channel_shuffle expects input with > 2 dims, but got input with sizes ", self.sizes());
  const int64_t channels = self.size(1);
  TORCH_CHECK(groups > 0, "Number of groups to divide channels in must be positive. Value of groups:", groups);
  TORCH_CHECK(channels % groups == 0, "Number of channels must be divisible by groups. Got ", channels,
              " channels and ", groups, " groups.");
  if (self.numel() == 0) return self.alias();
  DeviceOf guard(self);
  Tensor result = empty_shuffled(self, self.sizes());
  result.unflatten(1, {channels / groups, groups})
      .copy_(self.unflatten(1, {groups, channels / groups}).transpose(1, 2));
  return result;
}

}  // namespace at::native::npu
