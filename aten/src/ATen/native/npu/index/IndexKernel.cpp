// Indexing by tensors, by masks and along one dimension. Index values are checked by the device: one that is out of
// range fails the stream, with the index and the size in the text.

#include <ATen/ExpandUtils.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/native/IndexingUtils.h>
#include <ATen/native/npu/Compositions.h>
#include <ATen/native/npu/frame/command/DeviceOf.h>
#include <ATen/native/npu/frame/command/HostScalar.h>
#include <ATen/native/npu/frame/command/Missing.h>
#include <ATen/native/npu/frame/command/OpCommand.h>
#include <ATen/native/npu/frame/command/Rearrange.h>
#include <ATen/native/npu/frame/inference/Allocate.h>
#include <ATen/native/npu/frame/inference/Checks.h>
#include <ATen/native/npu/frame/inference/Dims.h>
#include <ATen/native/npu/frame/inference/Dtype.h>
#include <ATen/native/npu/frame/inference/Give.h>
#include <ATen/native/npu/frame/inference/Structured.h>
#include <ATen/native/npu/frame/layout/Strides.h>
#include <ATen/native/npu/index/IndexArgs.h>
#include <NPUNativeFunctions.h>

namespace at::native::npu {

namespace {

void check_same_device(const Tensor& self, const Tensor& other) {
  TORCH_CHECK(self.device() == other.device(),
              "Expected all tensors to be on the same device, but found at least two devices, ", self.device(), " and ",
              other.device(), "!");
}

// The index tensors of an indexing expression, masks turned into coordinates; a flag for each dimension of self tells
// whether it has one.
struct IndexList {
  std::vector<Tensor> tensors;
  DimVector flags;
  DimVector broadcast;  // shape of the index tensors together
  DimVector shape;      // shape of the indexed values
  DimVector source;     // the dimension of self that each of theirs is, or kIndexed
};
constexpr int64_t kIndexed = -1;

IndexList index_list(const Tensor& self, IOptTensorListRef indices) {
  at::native::checkIndexTensorTypes(indices, /*allow_int=*/true);
  IndexList list;
  std::vector<Tensor> expanded = at::native::expandTensors(self, indices, /*ensure_same_device=*/true);
  TORCH_CHECK_INDEX(static_cast<int64_t>(expanded.size()) <= self.dim(), "too many indices for tensor of dimension ",
                    self.dim(), " (got ", expanded.size(), ")");
  expanded.resize(self.dim());
  for (const Tensor& t : expanded) {
    list.flags.push_back(t.defined() ? 1 : 0);
    if (!t.defined()) continue;
    try {
      list.broadcast = list.tensors.empty() ? DimVector(t.sizes()) : infer_size_dimvector(list.broadcast, t.sizes());
    } catch (const std::exception&) {
      TORCH_CHECK_INDEX(false, "shape mismatch: indexing tensors could not be broadcast together with shapes ",
                        IntArrayRef(list.broadcast), ", ", t.sizes());
    }
    list.tensors.push_back(t);
  }
  const int64_t count = c10::multiply_integers(list.broadcast);
  const bool together = at::native::hasContiguousSubspace(expanded);
  bool placed = false;
  const auto place = [&] {
    if (!placed) {
      list.shape.append(list.broadcast.begin(), list.broadcast.end());
      list.source.append(list.broadcast.size(), kIndexed);
    }
    placed = true;
  };
  if (!together) place();
  for (int64_t d = 0; d < self.dim(); ++d) {
    if (list.flags[d] != 0) {
      TORCH_CHECK_INDEX(count == 0 || self.size(d) > 0, "index is out of bounds for dimension with size 0");
      place();
    } else {
      list.shape.push_back(self.size(d));
      list.source.push_back(d);
    }
  }
  return list;
}

// The rule of indexing: strides as if the indexed dimensions of self were expanded.
struct index_rule : TensorIteratorBase {
  void meta(const Tensor& self, const IndexList& list) {
    DimVector strides;
    for (const int64_t d : list.source) strides.push_back(d == kIndexed ? 0 : self.stride(d));
    TensorIteratorConfig config;
    config.set_check_mem_overlap(false).check_all_same_dtype(false);
    config.declare_static_dtype_and_device(self.scalar_type(), self.device());
    config.add_owned_output(Tensor()).add_owned_const_input(alias(self, list.shape, strides, self.storage_offset()));
    for (const Tensor& t : list.tensors) {
      const Tensor index = t.expand(list.broadcast);
      DimVector steps;
      size_t k = 0;
      for (const int64_t d : list.source) steps.push_back(d == kIndexed ? index.stride(k++) : 0);
      config.add_owned_const_input(alias(index, list.shape, steps, index.storage_offset()));
    }
    build(config);
  }
};

Tensor empty_indexed(const Tensor& self, const IndexList& list) {
  const auto contiguous = [](const Tensor& t) { return t.is_contiguous(); };
  if (self.is_contiguous() && std::all_of(list.tensors.begin(), list.tensors.end(), contiguous)) {
    return empty_npu(list.shape, self.scalar_type(), self.device());
  }
  Functional<index_rule, 1> op;
  op.meta(self, list);
  return op.take();
}

// Dimensions of self in the order in which the result's lie in memory, so that the operator gives them in this order;
// none if there is no such order.
DimVector indexed_order(const IndexList& list, IntArrayRef order) {
  DimVector dims;
  int64_t last = -1;  // of the result's dimensions that come from the index tensors
  for (size_t i = 0; i < order.size(); ++i) {
    const int64_t source = list.source[order[i]];
    if (source != kIndexed) {
      dims.push_back(source);
      continue;
    }
    if (last == -1) {
      for (size_t d = 0; d < list.flags.size(); ++d) {
        if (list.flags[d] != 0) dims.push_back(static_cast<int64_t>(d));
      }
    } else if (order[i] != last + 1 || order[i - 1] != last) {
      return {};
    }
    last = order[i];
  }
  return dims;
}

// Index tensors reach the operator in one shape.
void add_indices(OpCommand& cmd, const IndexList& list) {
  for (const Tensor& t : list.tensors)
    cmd.Input(t.sizes() == IntArrayRef(list.broadcast) ? t : t.expand(list.broadcast));
}

void issue_index(const Tensor& self, const IndexList& list, const Tensor& result) {
  if (result.numel() == 0) return;
  if (list.tensors.empty()) {
    copy_same_dtype(result, self);
    return;
  }
  OpCommand cmd;
  const bool turned = !result.is_contiguous() && is_dense(result);
  const DimVector order = turned ? memory_order(result.sizes(), result.strides()) : DimVector();
  const DimVector dims = turned ? indexed_order(list, order) : DimVector();
  if (dims.empty()) {
    cmd.Name("Index").Input(self).Input(list.flags).Input(list.flags);
    add_indices(cmd, list);
    cmd.Output(result).Run();
    return;
  }
  DimVector flags;
  for (const int64_t d : dims) flags.push_back(list.flags[d]);
  cmd.Name("Index").Input(self.permute(dims)).Input(flags).Input(flags);
  add_indices(cmd, list);
  cmd.Output(result.permute(order)).Run();
}

// The sum casts the mask to int64, eight times its memory: a large one is taken in parts.
int64_t count_true(const Tensor& mask) {
  constexpr int64_t kPart = int64_t{1} << 27;
  if (mask.numel() <= kPart) return mask.numel() == 0 ? 0 : at::sum(mask, kLong).item<int64_t>();
  const Tensor flat = mask.reshape({-1});
  Tensor count = at::sum(flat.slice(0, 0, kPart), kLong);
  for (int64_t from = kPart; from < flat.numel(); from += kPart) {
    count.add_(at::sum(flat.slice(0, from, std::min(from + kPart, flat.numel())), kLong));
  }
  return count.item<int64_t>();
}

void check_index_vector(const char* name, const Tensor& index) {
  TORCH_CHECK_INDEX(index.dim() <= 1, name, "(): Index is supposed to be a vector");
  TORCH_CHECK(index.scalar_type() == kLong || index.scalar_type() == kInt, name,
              "(): Expected dtype int32 or int64 for index");
}

}  // namespace

void refuse_indices(const Tensor& self, int64_t dim, const Tensor& index, bool index_error) {
  const int64_t axis = wrapped(self, dim);
  if (index.numel() == 0 || self.dim() == 0 || self.size(axis) > 0) return;
  // Only a call that fails waits for the index.
  const auto first = index.reshape({-1}).select(0, 0).item<int64_t>();
  TORCH_CHECK_INDEX(!index_error, "index ", first, " is out of bounds for dimension ", axis, " with size 0");
  TORCH_CHECK(false, "index ", first, " is out of bounds for dimension ", axis, " with size 0");
}

Tensor index(const Tensor& self, const c10::List<std::optional<Tensor>>& indices) {
  DeviceOf guard(self);
  const IndexList list = index_list(self, indices);
  const Tensor result = empty_indexed(self, list);
  issue_index(self, list, result);
  return result;
}

Tensor& index_out(const Tensor& self, const c10::List<std::optional<Tensor>>& indices, Tensor& out) {
  TORCH_CHECK(self.scalar_type() == out.scalar_type(), "index_out: self (", self.scalar_type(), ") and result (",
              out.scalar_type(), ") must have the same scalar type");
  check_same_device(self, out);
  DeviceOf guard(self);
  const IndexList list = index_list(self, indices);
  at::native::resize_output(out, list.shape);
  at::assert_no_internal_overlap(out);
  at::assert_no_overlap(out, self);
  issue_index(self, list, out);
  return out;
}

namespace {

// Into an expanded tensor: where its elements lie among the places of its memory is indexed, and the places are
// written.
Tensor& index_put_repeats(Tensor& self, const IndexList& list, const Tensor& values, bool accumulate) {
  Tensor places = without_repeats(self);
  const Tensor once = places.clone(MemoryFormat::Contiguous);
  Tensor positions = at::arange(once.numel(), self.options().dtype(kLong)).view(once.sizes());
  for (int64_t d = 0; d < self.dim(); ++d) {
    if (self.stride(d) == 0 && self.size(d) > 1) positions = positions.unsqueeze(d);
  }
  const Tensor picked = empty_npu(list.shape, kLong, self.device());
  issue_index(positions.expand(self.sizes()), list, picked);
  once.view({-1}).index_put_({picked}, values, accumulate);
  places.copy_(once);
  return self;
}

}  // namespace

Tensor& _index_put_impl_(Tensor& self, const c10::List<std::optional<Tensor>>& indices, const Tensor& values,
                         bool accumulate, bool /*unsafe*/) {
  TORCH_CHECK_INDEX(indices.size() <= static_cast<size_t>(self.dim()), "too many indices for tensor of dimension ",
                    self.dim(), " (got ", indices.size(), ")");
  TORCH_CHECK(self.scalar_type() == values.scalar_type(),
              "Index put requires the source and destination dtypes match, "
              "got ",
              self.scalar_type(), " for the destination and ", values.scalar_type(), " for the source.");
  check_dtype(self.scalar_type(), kDtypeCommon, "index_put");
  DeviceOf guard(self);
  const bool repeats = at::has_internal_overlap(self) == MemOverlap::Yes;
  if (C10_UNLIKELY(repeats)) {
    TORCH_WARN(
        "Use of index_put_ on expanded tensors is deprecated. Please clone() the tensor before performing this "
        "operation. This also applies to advanced indexing e.g. tensor[indices] = tensor");
  }
  const bool by_value = values.is_cpu() && values.dim() == 0;
  if (!by_value) check_same_device(self, values);
  // One mask and one value: no coordinates are needed.
  if (!accumulate && values.numel() == 1 && indices.size() == 1) {
    const std::optional<Tensor> mask = indices.get(0);
    if (mask.has_value() && mask->defined() && mask->scalar_type() == kBool && mask->device() == self.device() &&
        mask->dim() == self.dim()) {
      for (int64_t d = 0; d < self.dim(); ++d) {
        TORCH_CHECK_INDEX(mask->size(d) == self.size(d), "The shape of the mask ", mask->sizes(), " at index ", d,
                          " does not match the shape of the indexed tensor ", self.sizes(), " at index ", d);
      }
      if (by_value || repeats) return self.masked_fill_(*mask, values.reshape({}));
      const Tensor filled = at::where(*mask, values.reshape({}), self);
      return self.copy_(filled);
    }
  }
  at::assert_no_overlap(self, values);
  for (const std::optional<Tensor>& index : indices) {
    if (index.has_value() && index->defined()) at::assert_no_overlap(self, *index);
  }
  const IndexList list = index_list(self, indices);
  TORCH_CHECK(is_expandable_to(values.sizes(), list.shape), "shape mismatch: value tensor of shape ", values.sizes(),
              " cannot be broadcast to indexing result of shape ", IntArrayRef(list.shape));
  if (self.numel() == 0 || c10::multiply_integers(list.shape) == 0) return self;
  if (list.tensors.empty()) {
    if (accumulate) return self.add_(values);
    return self.copy_(values);
  }
  if (C10_UNLIKELY(repeats)) return index_put_repeats(self, list, values, accumulate);
  OpCommand cmd;
  cmd.Name("IndexPutV2").Input(self);
  if (by_value) {
    cmd.Input(read_cpu_scalar(values), self.scalar_type());
  } else {
    cmd.Input(values);
  }
  cmd.Input(list.flags).Input(list.flags);
  add_indices(cmd, list);
  cmd.Output(self).Attr("accumulate", accumulate).Run();
  return self;
}

Tensor index_select(const Tensor& self, int64_t dim, const Tensor& index) {
  check_same_device(self, index);
  check_index_vector("index_select", index);
  DeviceOf guard(self);
  dim = at::maybe_wrap_dim(dim, self.dim());
  // Of more dimensions whole slices are copied, whatever their dtype.
  if (self.dim() <= 1) {
    check_dtype(self.scalar_type(), ~dtype_mask(ScalarType::UInt16, ScalarType::UInt32, ScalarType::UInt64),
                "index_select");
  }
  DimVector shape(self.sizes());
  if (self.dim() > 0) {
    shape[dim] = index.numel();
  } else {
    TORCH_CHECK(index.numel() == 1, "index_select(): Index to scalar can have only 1 value, got ", index.numel(),
                " value(s)");
  }
  Tensor result = empty_npu(shape, self.scalar_type(), self.device());
  if (self.numel() == 0 && index.numel() > 0) {
    if (self.dim() == 1) refuse_indices(self, dim, index, /*index_error=*/true);
    TORCH_CHECK(self.size(dim) > 0, "index_select(): self indexing axis dim should be positive");
  }
  if (result.numel() == 0) return result;
  OpCommand cmd;
  cmd.Name("GatherV2").Input(self).Input(index).Input(IntArrayRef(dim)).Output(result).Run();
  return result;
}

Tensor& index_select_out(const Tensor& self, int64_t dim, const Tensor& index, Tensor& out) {
  TORCH_CHECK(self.scalar_type() == out.scalar_type(),
              "index_select(): self and result must have the same scalar type");
  at::assert_no_internal_overlap(out);
  at::assert_no_overlap(out, self);
  at::assert_no_overlap(out, index);
  return give(npu::index_select(self, dim, index), out);
}

namespace {

// Of an expanded tensor: every place that one of the chosen slices lies in.
Tensor& index_fill_repeats(Tensor& self, int64_t dim, const Tensor& index, const Scalar& value) {
  Tensor place = without_repeats(self), chosen = at::zeros({self.size(dim)}, self.options().dtype(kBool));
  chosen.index_fill_(0, index, 1);
  const bool shared = self.stride(dim) == 0 && self.size(dim) > 1;
  int64_t behind = 0;  // dimensions of `place` after `dim`
  for (int64_t d = dim + 1; d < self.dim(); ++d) behind += self.stride(d) == 0 && self.size(d) > 1 ? 0 : 1;
  DimVector sizes(shared ? 0 : 1 + behind, 1);
  if (!shared) sizes[0] = self.size(dim);
  place.masked_fill_(shared ? chosen.any() : chosen.view(sizes), value);
  return self;
}

}  // namespace

Tensor& index_fill_scalar_(Tensor& self, int64_t dim, const Tensor& index, const Scalar& value) {
  check_dtype(self.scalar_type(), kDtypeCommon, "index_fill");
  check_same_device(self, index);
  check_index_vector("index_fill_", index);
  TORCH_CHECK(self.is_complex() || !value.isComplex(),
              "index_fill_(): Converting complex Scalar to non-complex type is not supported");
  at::assert_no_overlap(self, index);
  if (self.numel() == 0) refuse_indices(self, dim, index);
  DeviceOf guard(self);
  if (C10_UNLIKELY(at::has_internal_overlap(self) == MemOverlap::Yes)) {
    TORCH_WARN(
        "Use of index_fill_ on expanded tensors is deprecated. Please clone() the tensor before performing this "
        "operation. This also applies to advanced indexing e.g. tensor[mask] = scalar");
    return index_fill_repeats(self, wrapped(self, dim), index, value);
  }
  if (self.numel() == 0 || index.numel() == 0) return self;
  OpCommand cmd;
  cmd.Name("IndexFill").Input(self).Input(index).Input(value, self.scalar_type()).Output(self);
  cmd.Attr("dim", wrapped(self, dim)).Run();
  return self;
}

Tensor& index_fill_tensor_(Tensor& self, int64_t dim, const Tensor& index, const Tensor& value) {
  TORCH_CHECK(value.dim() == 0, "index_fill_ only supports a 0-dimensional value tensor, but got tensor with ",
              value.dim(), " dimension(s).");
  return npu::index_fill_scalar_(self, dim, index, value.item());
}

Tensor& nonzero_out(const Tensor& self, Tensor& out) {
  TORCH_CHECK(out.scalar_type() == kLong, "nonzero: Expected out tensor to have scalar type Long but got scalar type ",
              out.scalar_type());
  check_same_device(self, out);
  DeviceOf guard(self);
  const int64_t count = count_true(self.scalar_type() == kBool ? self : self.ne(0));
  at::native::resize_output(out, {count, self.dim()});
  if (out.numel() == 0) return out;
  OpCommand cmd;
  cmd.Name("NonZero").Input(self).Output(out).Run();
  return out;
}

// One coordinate after the other in memory, as the CPU's.
Tensor nonzero(const Tensor& self) {
  DeviceOf guard(self);
  const int64_t count = count_true(self.scalar_type() == kBool ? self : self.ne(0));
  const Tensor coordinates = empty_npu({self.dim(), count}, kLong, self.device());
  if (coordinates.numel() > 0) {
    OpCommand cmd;
    cmd.Name("NonZero").Input(self).Output(coordinates).Attr("transpose", true).Run();
  }
  return coordinates.t();
}

Tensor masked_select(const Tensor& self, const Tensor& mask) {
  check_same_device(self, mask);
  TORCH_CHECK(mask.scalar_type() == kBool, "masked_select: expected BoolTensor for mask");
  DeviceOf guard(self);
  const DimVector shape = infer_size_dimvector(self.sizes(), mask.sizes());
  const Tensor chosen = mask.expand(shape);
  Tensor result = empty_npu({count_true(chosen)}, self.scalar_type(), self.device());
  if (result.numel() == 0) return result;
  OpCommand cmd;
  cmd.Name("MaskedSelect").Input(self.expand(shape)).Input(chosen).Output(result).Run();
  return result;
}

Tensor& masked_select_out(const Tensor& self, const Tensor& mask, Tensor& out) {
  TORCH_CHECK(self.scalar_type() == out.scalar_type(),
              "masked_select(): self and result must have the same scalar type");
  at::assert_no_internal_overlap(out);
  at::assert_no_overlap(out, self);
  at::assert_no_overlap(out, mask);
  return give(npu::masked_select(self, mask), out);
}

Tensor& masked_scatter_(Tensor& self, const Tensor& mask, const Tensor& source) {
  check_dtype(self.scalar_type(), kDtypeCommon & ~dtype_bit(kComplexHalf), "masked_scatter");
  check_same_device(self, mask);
  check_same_device(self, source);
  TORCH_CHECK(self.scalar_type() == source.scalar_type(),
              "masked_scatter_: expected self and source to have same "
              "dtypes but got ",
              self.scalar_type(), " and ", source.scalar_type());
  TORCH_CHECK(mask.scalar_type() == kBool, "masked_scatter_ only supports boolean masks, but got mask with dtype ",
              mask.scalar_type());
  DeviceOf guard(self);
  at::assert_no_internal_overlap(self);
  const Tensor chosen = mask.expand(self.sizes());
  if (self.numel() == 0) return self;
  OpCommand cmd;
  cmd.Name("MaskedScatter").Input(self).Input(chosen).Input(source).Output(self).Run();
  return self;
}

Tensor take(const Tensor& self, const Tensor& index) {
  check_same_device(self, index);
  TORCH_CHECK(index.scalar_type() == kLong || index.scalar_type() == kInt,
              "take(): Expected a long tensor for index, but got ", index.scalar_type());
  TORCH_CHECK_INDEX(self.numel() > 0 || index.numel() == 0, "take(): tried to take from an empty tensor");
  DeviceOf guard(self);
  Tensor result = empty_npu(index.sizes(), self.scalar_type(), self.device());
  if (result.numel() == 0) return result;
  if (lacks("Take")) return composed::take(self, index);
  OpCommand cmd;
  cmd.Name("Take").Input(self).Input(index).Output(result).Run();
  return result;
}

Tensor& take_out(const Tensor& self, const Tensor& index, Tensor& out) {
  TORCH_CHECK(self.scalar_type() == out.scalar_type(),
              "take(): self and out expected to have the same dtype, but got "
              "self.dtype = ",
              self.scalar_type(), " and out.dtype = ", out.scalar_type());
  at::assert_no_internal_overlap(out);
  at::assert_no_overlap(out, index);
  at::assert_no_overlap(out, self);
  return give(npu::take(self, index), out);
}

Tensor& put_(Tensor& self, const Tensor& index, const Tensor& source, bool accumulate) {
  check_same_device(self, index);
  check_same_device(self, source);
  check_dtype(self.scalar_type(), kDtypeCommon & ~dtype_bit(kComplexHalf), "put_");
  TORCH_CHECK(index.scalar_type() == kLong || index.scalar_type() == kInt,
              "put_(): Expected a long tensor for index, but got ", index.scalar_type());
  TORCH_CHECK(self.scalar_type() == source.scalar_type(),
              "put_(): self and source expected to have the same dtype, but "
              "got self.dtype = ",
              self.scalar_type(), " and source.dtype = ", source.scalar_type());
  TORCH_CHECK(source.numel() == index.numel(),
              "put_(): Expected source and index to have the same number of elements, "
              "but got source.numel() = ",
              source.numel(), ", index.numel() = ", index.numel());
  TORCH_CHECK_INDEX(self.numel() > 0 || index.numel() == 0, "put_(): Tried to put elements into an empty tensor");
  if (!accumulate) at::globalContext().alertNotDeterministic("put_");
  if (index.numel() == 0) return self;
  DeviceOf guard(self);
  at::assert_no_internal_overlap(self);
  at::assert_no_overlap(self, index);
  at::assert_no_overlap(self, source);
  if (lacks("Put")) return self.copy_(composed::put(self, index, source, accumulate));
  OpCommand cmd;
  cmd.Name("Put").Input(self).Input(index).Input(source).Output(self).Attr("accumulate", accumulate).Run();
  return self;
}

Tensor unfold_backward(const Tensor& grad_in, IntArrayRef input_sizes, int64_t dim, int64_t size, int64_t step) {
  DeviceOf guard(grad_in);
  Tensor result = empty_npu(input_sizes, grad_in.scalar_type(), grad_in.device());
  if (result.numel() == 0) return result;
  if (lacks("UnfoldGrad")) return composed::unfold_backward(grad_in, input_sizes, wrapped(result, dim), size, step);
  OpCommand cmd;
  cmd.Name("UnfoldGrad").Input(grad_in).Input(input_sizes).Output(result).Attr("dim", wrapped(result, dim));
  cmd.Attr("size", size).Attr("step", step).Run();
  return result;
}

Tensor trace(const Tensor& self) {
  TORCH_CHECK(self.dim() == 2, "trace: expected a matrix, but got tensor with dim ", self.dim());
  return self.diagonal().sum();
}

// The first `size` coordinates, filled up with fill_value.
Tensor nonzero_static(const Tensor& self, int64_t size, int64_t fill_value) {
  TORCH_CHECK(size >= 0, "nonzero_static: 'size' must be an non-negative integer");
  const Tensor found = self.nonzero();
  Tensor result = at::full({size, self.dim()}, fill_value, found.options());
  const int64_t count = std::min(size, found.size(0));
  result.narrow(0, 0, count).copy_(found.narrow(0, 0, count));
  return result;
}

namespace {

// The host waits for the sum, and learns on the occasion whether all are counts.
int64_t count_repeats(const Tensor& repeats) {
  if (repeats.numel() == 0) return 0;
  const Tensor facts = at::stack({repeats.min().to(kLong), at::sum(repeats, kLong)}).cpu();
  const int64_t* numbers = facts.const_data_ptr<int64_t>();
  TORCH_CHECK(numbers[0] >= 0, "repeats can not be negative");
  return numbers[1];
}

}  // namespace

Tensor repeat_interleave(const Tensor& repeats, std::optional<int64_t> output_size) {
  TORCH_CHECK(repeats.dim() == 1, "repeat_interleave only accept 1D vector as repeat");
  TORCH_CHECK(repeats.scalar_type() == kLong || repeats.scalar_type() == kInt, "repeats has to be Long or Int tensor");
  DeviceOf guard(repeats);
  const int64_t count = output_size.has_value() ? *output_size : count_repeats(repeats);
  Tensor result = empty_npu({count}, repeats.scalar_type(), repeats.device());
  if (count == 0) return result;
  OpCommand cmd;
  cmd.Name("RepeatInterleave").Input(at::arange(repeats.numel(), repeats.options())).Input(repeats).Output(result);
  cmd.Attr("axis", 0).Run();
  return result;
}

}  // namespace at::native::npu
