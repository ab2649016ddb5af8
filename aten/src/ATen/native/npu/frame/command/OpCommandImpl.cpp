// Prepares a command: operands become contiguous device memory or host values, the key finds the descriptors.

#include <ATen/native/npu/frame/command/OpCommandImpl.h>

#include <ATen/native/npu/frame/command/FormatCast.h>
#include <ATen/native/npu/frame/command/HostScalar.h>
#include <ATen/native/npu/frame/command/OperandOrder.h>
#include <ATen/native/npu/frame/command/Rearrange.h>
#include <ATen/native/npu/frame/inference/Allocate.h>
#include <ATen/native/npu/frame/inference/Dtype.h>
#include <ATen/native/npu/frame/layout/Strides.h>

#include <c10/npu/NPUFunctions.h>

#include <algorithm>
#include <array>
#include <cstring>

namespace at::native::npu {

namespace {

constexpr size_t kPooled = 8;
constexpr size_t kHostBytes = 4096;

// A thread's idle commands. Handed back to the heap when the thread ends, after which there is no list any more.
struct Pool {
  std::array<OpCommandImpl*, kPooled> free;
  size_t count = 0;
};
thread_local Pool* own_pool __attribute__((tls_model("initial-exec"))) = nullptr;

Pool* make_pool() {
  struct Owner {
    Owner() { own_pool = &pool; }
    ~Owner() {
      own_pool = nullptr;
      while (pool.count > 0) delete pool.free[--pool.count];
    }
    Pool pool;
  };
  static thread_local Owner owner;
  return own_pool;
}

// Appends `bytes` of `data` to words, padded with zeros.
void append_bytes(KeyWords& words, const void* data, size_t bytes) {
  const size_t begin = words.size();
  words.resize(begin + (bytes + sizeof(int64_t) - 1) / sizeof(int64_t), 0);
  if (bytes > 0) std::memcpy(words.data() + begin, data, bytes);
}

// dims of `tensor` as a tensor of order.size() dimensions, taken in that order; strides likewise.
void in_order(const Tensor& tensor, IntArrayRef order, DimVector& sizes, DimVector& strides) {
  const auto rank = static_cast<int64_t>(order.size());
  const int64_t missing = rank - tensor.dim();
  sizes.resize(rank);
  strides.resize(rank);
  for (int64_t i = 0; i < rank; ++i) {
    const int64_t d = order[i] - missing;
    sizes[i] = d < 0 ? 1 : tensor.size(d);
    strides[i] = d < 0 ? 0 : tensor.stride(d);
  }
}

}  // namespace

OpCommandImpl* OpCommandImpl::acquire() {
  Pool* pool = C10_LIKELY(own_pool != nullptr) ? own_pool : make_pool();
  if (C10_UNLIKELY(pool == nullptr || pool->count == 0)) return new OpCommandImpl();
  return pool->free[--pool->count];
}

void OpCommandImpl::release(OpCommandImpl* impl) {
  impl->clear();
  Pool* pool = own_pool;
  if (C10_UNLIKELY(pool == nullptr || pool->count == kPooled)) {
    delete impl;
  } else {
    pool->free[pool->count++] = impl;
  }
}

std::unique_ptr<std::vector<Tensor>> OpCommandImpl::take_tensors() {
  auto tensors = std::make_unique<std::vector<Tensor>>();
  tensors->reserve(num_inputs_ + num_outputs_);
  for (size_t i = 0; i < num_inputs_; ++i) tensors->push_back(inputs_[i].tensor.take_owned());
  for (size_t i = 0; i < num_outputs_; ++i) tensors->push_back(outputs_[i].tensor.take_owned());
  return tensors;
}

void OpCommandImpl::clear() {
  for (size_t i = 0; i < num_inputs_; ++i) inputs_[i].tensor.reset();
  for (size_t i = 0; i < num_outputs_; ++i) outputs_[i].tensor.reset();
  num_inputs_ = num_outputs_ = 0;
  name = nullptr;
  elementwise = false;
  compute = ScalarType::Undefined;
  attribute_words_.clear();
  host_used_ = 0;
  aside_.clear();
}

Operand& OpCommandImpl::add_input(Operand::Kind kind) {
  if (num_inputs_ == inputs_.size()) inputs_.emplace_back();
  Operand& operand = inputs_[num_inputs_++];
  operand.kind = kind;
  operand.format = ACL_FORMAT_UNDEFINED;
  operand.dtype = ScalarType::Undefined;
  return operand;
}

Operand& OpCommandImpl::add_output(Operand::Kind kind) {
  if (num_outputs_ == outputs_.size()) outputs_.emplace_back();
  Operand& operand = outputs_[num_outputs_++];
  operand.kind = kind;
  operand.format = ACL_FORMAT_UNDEFINED;
  operand.dtype = ScalarType::Undefined;
  return operand;
}

void* OpCommandImpl::host_space(size_t bytes, int64_t& offset) {
  if (host_.empty()) host_.resize(kHostBytes);
  const size_t begin = (host_used_ + 15) & ~size_t{15};
  if (begin + bytes > host_.size()) host_.resize(2 * (begin + bytes));
  host_used_ = begin + bytes;
  offset = static_cast<int64_t>(begin);
  return host_.data() + begin;
}

void OpCommandImpl::add_host_scalar(const Scalar& value, ScalarType dtype) {
  Operand& operand = add_input(Operand::Kind::kHost);
  operand.dims.clear();
  // Half the precision would be lost before the operator computes: such scalars go as float.
  operand.dtype = dtype == kHalf || dtype == kBFloat16 ? kFloat : dtype;
  write_scalar(value, operand.dtype, host_space(16, operand.offset));
}

void OpCommandImpl::add_host_list(IntArrayRef values, ScalarType dtype) {
  Operand& operand = add_input(Operand::Kind::kHost);
  operand.dims.assign({static_cast<int64_t>(values.size())});
  operand.dtype = dtype;
  if (dtype == kLong) {
    void* space = host_space(values.size() * sizeof(int64_t), operand.offset);
    if (!values.empty()) std::memcpy(space, values.data(), values.size() * sizeof(int64_t));
    return;
  }
  TORCH_CHECK(dtype == kInt, "a host list of ", name, " is int64 or int32, not ", dtype);
  auto* space = static_cast<int32_t*>(host_space(values.size() * sizeof(int32_t), operand.offset));
  for (const int64_t value : values) *space++ = static_cast<int32_t>(value);
}

void OpCommandImpl::add_attr(const char* attr, int64_t kind, const void* data, size_t bytes) {
  attribute_words_.push_back(reinterpret_cast<int64_t>(attr));
  attribute_words_.push_back(kind | static_cast<int64_t>(bytes) << 8);
  append_bytes(attribute_words_, data, bytes);
}

// The device of the first device operand; outputs first, since every operator has one.
void OpCommandImpl::find_device() {
  for (const auto* list : {&outputs_, &inputs_}) {
    const size_t count = list == &outputs_ ? num_outputs_ : num_inputs_;
    for (size_t i = 0; i < count; ++i) {
      const Tensor& t = (*list)[i].tensor;
      if (t.defined() && t.device().is_privateuseone()) {
        device_ = t.device();
        return;
      }
    }
  }
  TORCH_CHECK(false, "operator ", name, " has no operand on an npu");
}

Tensor OpCommandImpl::plain_view(const Tensor& t) {
  const StorageImpl* storage = t.storage().unsafeGetStorageImpl();
  for (const Aside& known : plain_) {
    if (known.target.storage().unsafeGetStorageImpl() == storage) return view_over(t, known.computed);
  }
  plain_.push_back({t, plain_storage(t), true});
  return view_over(t, plain_.back().computed);
}

void OpCommandImpl::resolve_formats() {
  for (size_t i = 0; i < num_inputs_; ++i) {
    HeldTensor& t = inputs_[i].tensor;
    if (t->defined() && in_private_format(*t)) t = plain_view(*t);
  }
  // Only what this loop adds or meets is stored back, each storage once.
  for (size_t i = 0; i < num_outputs_; ++i) {
    HeldTensor& t = outputs_[i].tensor;
    if (!t->defined() || !in_private_format(*t)) continue;
    t = plain_view(*t);
    const auto same = [&](const Aside& a) { return a.is_storage && a.computed.is_alias_of(*t); };
    if (std::none_of(aside_.begin(), aside_.end(), same)) {
      for (const Aside& known : plain_) {
        if (known.computed.is_alias_of(*t)) aside_.push_back(known);
      }
    }
  }
  plain_.clear();
}

void OpCommandImpl::to_host_scalar(Operand& input) {
  const Tensor& value = *input.tensor;
  const ScalarType dtype = compute != ScalarType::Undefined ? compute : value.scalar_type();
  input.kind = Operand::Kind::kHost;
  input.dims.clear();
  input.dtype = compute != ScalarType::Undefined && (dtype == kHalf || dtype == kBFloat16) ? kFloat : dtype;
  write_cast(value, input.dtype, host_space(16, input.offset));
  input.tensor.reset();
}

void OpCommandImpl::undo_expansion() {
  if (num_inputs_ < 2 || outputs_[0].kind != Operand::Kind::kTensor) return;
  bool expanded = false;
  for (size_t i = 0; i < num_inputs_; ++i) {
    expanded = expanded ||
               (inputs_[i].kind == Operand::Kind::kTensor && is_expanded(*inputs_[i].tensor->unsafeGetTensorImpl()));
  }
  if (C10_LIKELY(!expanded) || !broadcasts(name)) return;

  // The result has the operands' common shape: a dimension may go if another operand has it in full.
  const IntArrayRef whole = outputs_[0].tensor->sizes();
  const auto rank = static_cast<int64_t>(whole.size());
  DimVector in_full(rank, 0);
  for (size_t i = 0; i < num_inputs_; ++i) {
    if (inputs_[i].kind != Operand::Kind::kTensor) continue;
    const Tensor& t = *inputs_[i].tensor;
    for (int64_t d = rank - t.dim(); d < rank; ++d) {
      const int64_t own = d - (rank - t.dim());
      if (d >= 0 && t.size(own) == whole[d] && (t.stride(own) != 0 || whole[d] == 1)) in_full[d] = 1;
    }
  }
  for (size_t i = 0; i < num_inputs_; ++i) {
    HeldTensor& held = inputs_[i].tensor;
    if (inputs_[i].kind != Operand::Kind::kTensor || !is_expanded(*held->unsafeGetTensorImpl())) continue;
    const Tensor& t = *held;
    if (!t.device().is_privateuseone() || t.is_conj() || t.is_neg() || t.dim() > rank) continue;
    DimVector sizes(t.sizes());
    for (int64_t d = 0; d < t.dim(); ++d) {
      if (t.stride(d) != 0) continue;
      // The first keeps it if nobody else has it.
      if (int64_t& known = in_full[d + rank - t.dim()]; known != 0) {
        sizes[d] = 1;
      } else {
        known = 1;
      }
    }
    held = alias(t, sizes, t.strides(), t.storage_offset());
  }
}

void OpCommandImpl::gather_in_place(IntArrayRef order) {
  Operand& input = inputs_[0];
  Operand& output = outputs_[0];
  if (num_inputs_ == 0 || input.kind != Operand::Kind::kTensor || C10_LIKELY(input.tensor->is_contiguous())) return;
  if (num_outputs_ != 1 || output.kind != Operand::Kind::kTensor || (num_inputs_ > 1 && !broadcasts(name))) return;
  const Tensor& in = *input.tensor;
  const Tensor& out = *output.tensor;
  const ScalarType dtype = out.scalar_type();
  if (in.sizes() != out.sizes() || out.numel() == 0 || in.device() != device_ || in.is_conj() || in.is_neg() ||
      in.scalar_type() != dtype || (compute != ScalarType::Undefined && compute != dtype) ||
      (output.dtype != ScalarType::Undefined && output.dtype != dtype)) {
    return;
  }
  if (order.empty() && !out.is_contiguous()) {
    Tensor computed = contiguous(in);
    aside_.push_back({out, computed});
    input.tensor = computed;
    output.tensor = std::move(computed);
    return;
  }
  DimVector sizes, strides;
  in_order(in, order, sizes, strides);
  if (!order.empty() && is_contiguous_as(sizes, strides)) return;
  for (size_t i = 0; i < num_inputs_; ++i) {
    if (inputs_[i].kind != Operand::Kind::kHost && inputs_[i].tensor->defined() && inputs_[i].tensor->is_alias_of(out))
      return;
  }
  copy_same_dtype(out, in);
  input.tensor = out;
}

void OpCommandImpl::order_axes() {
  Operand& input = inputs_[0];
  Operand& axes = inputs_[1];
  Operand& output = outputs_[0];
  if (input.tensor->device() != device_ || input.tensor->is_conj() || input.tensor->is_neg()) return;
  if (axes.kind != Operand::Kind::kHost || axes.dtype != kLong || axes.dims.empty() ||
      output.kind != Operand::Kind::kTensor || !output.tensor->is_contiguous() ||
      (output.dtype != ScalarType::Undefined && output.dtype != output.tensor->scalar_type()) || !reduces(name)) {
    return;
  }
  auto* values = reinterpret_cast<int64_t*>(host_.data() + axes.offset);
  const auto count = static_cast<size_t>(axes.dims[0]);
  OrderedReduction ordered;
  if (count == 0 ||
      !order_reduction(input.tensor, {values, count}, output.tensor->dim() == input.tensor->dim(), ordered)) {
    return;
  }
  input.tensor =
      alias(input.tensor, ordered.sizes, c10::contiguous_strides(ordered.sizes), input.tensor->storage_offset());
  std::copy(ordered.axes.begin(), ordered.axes.end(), values);
  output.kind = Operand::Kind::kTensorAs;
  output.dims.assign(ordered.result.begin(), ordered.result.end());
}

void OpCommandImpl::describe_rows() {
  const auto fits = [&](const Operand& operand) {
    return operand.kind == Operand::Kind::kTensor && operand.tensor->dim() == 4 && operand.tensor->device() == device_;
  };
  for (size_t i = 0; i < num_inputs_; ++i) {
    if (!fits(inputs_[i])) return;
  }
  for (size_t i = 0; i < num_outputs_; ++i) {
    const Operand& output = outputs_[i];
    if (!fits(output) || !output.tensor->is_contiguous(MemoryFormat::ChannelsLast)) return;
    if (output.dtype != ScalarType::Undefined && output.dtype != output.tensor->scalar_type()) return;
  }
  for (size_t i = 0; i < num_inputs_ + num_outputs_; ++i) {
    Operand& operand = i < num_inputs_ ? inputs_[i] : outputs_[i - num_inputs_];
    const Tensor rows = operand.tensor->contiguous(MemoryFormat::ChannelsLast);
    operand.dims.assign({rows.size(0), rows.size(2), rows.size(3), rows.size(1)});
    operand.kind = Operand::Kind::kTensorAs;
    operand.format = ACL_FORMAT_NHWC;
    const IntArrayRef dims(operand.dims.data(), operand.dims.size());
    operand.tensor = alias(rows, dims, c10::contiguous_strides(dims), rows.storage_offset());
  }
  constexpr const char* kRows = "NHWC";
  add_attr("data_format", 's', kRows, std::strlen(kRows) + 1);
}

void OpCommandImpl::resolve_input(Operand& input, IntArrayRef order) {
  if (input.kind != Operand::Kind::kTensor && input.kind != Operand::Kind::kTensorAs) return;
  if (C10_UNLIKELY(input.tensor->device() != device_)) {
    TORCH_CHECK(input.tensor->is_cpu() && input.tensor->dim() == 0,
                "Expected all tensors to be on the same device, but found at least two devices, ", device_, " and ",
                input.tensor->device(), "!");
    to_host_scalar(input);
    return;
  }
  // Lazy conjugation and negation reach kernels that upstream lets fall through, those of linear algebra.
  if (C10_UNLIKELY(input.tensor->is_conj())) input.tensor = at::conj_physical(input.tensor->conj());
  if (C10_UNLIKELY(input.tensor->is_neg())) input.tensor = input.tensor->_neg_view().neg();
  if (compute != ScalarType::Undefined && input.tensor->scalar_type() != compute) {
    input.tensor = cast(input.tensor, compute);
  }
  if (input.kind == Operand::Kind::kTensorAs || order.empty()) {
    if (!input.tensor->is_contiguous() && !is_strided(input)) input.tensor = contiguous(input.tensor);
    return;
  }
  DimVector sizes, strides;
  in_order(input.tensor, order, sizes, strides);
  if (!is_contiguous_as(sizes, strides)) input.tensor = gather_view(input.tensor, sizes, strides);
  input.kind = Operand::Kind::kTensorAs;
  input.dims.assign(sizes.begin(), sizes.end());
}

void OpCommandImpl::resolve_output(Operand& output, IntArrayRef order) {
  if (output.kind != Operand::Kind::kTensor) return;
  const bool cast_back = output.dtype != ScalarType::Undefined && output.dtype != output.tensor->scalar_type();
  const ScalarType dtype = cast_back ? output.dtype : output.tensor->scalar_type();
  if (order.empty()) {
    if (C10_LIKELY(!cast_back && (output.tensor->is_contiguous() || strides_stay_))) return;
    Tensor computed = empty_as(output.tensor, dtype);
    aside_.push_back({output.tensor, computed});
    output.tensor = std::move(computed);
    return;
  }
  DimVector sizes, strides;
  in_order(output.tensor, order, sizes, strides);
  output.kind = Operand::Kind::kTensorAs;
  output.dims.assign(sizes.begin(), sizes.end());
  if (cast_back || !is_contiguous_as(sizes, strides)) {
    Tensor computed = empty_npu(sizes, dtype, device_);
    aside_.push_back({alias(output.tensor, sizes, strides, output.tensor->storage_offset()), computed});
    output.tensor = std::move(computed);
  }
}

namespace {

// Where a storage begins. One that is only read is not made its tensor's own: a lazily cloned one stays shared.
inline char* begin_of(StorageImpl* storage, bool written) {
  return static_cast<char*>(written ? storage->mutable_data() : const_cast<void*>(storage->data()));
}

}  // namespace

[[gnu::flatten]] void OpCommandImpl::bind(const Operand& operand, size_t slot) {
  const bool written = slot >= num_inputs_;
  void* data = nullptr;
  size_t bytes = 0;
  const auto describe = [&](ScalarType dtype, IntArrayRef dims, bool host) {
    key_.operand(slot, operand_dtype(name, dtype), dims, host, operand.format);
  };
  switch (operand.kind) {
    case Operand::Kind::kAbsent:
      break;
    case Operand::Kind::kHost: {
      describe(operand.dtype, operand.dims, true);
      data = host_.data() + operand.offset;
      bytes = c10::elementSize(operand.dtype) * (operand.dims.empty() ? 1 : static_cast<size_t>(operand.dims[0]));
      break;
    }
    case Operand::Kind::kTensor:
    case Operand::Kind::kTensorAs: {
      const TensorImpl& t = *operand.tensor->unsafeGetTensorImpl();
      const IntArrayRef dims =
          operand.kind == Operand::Kind::kTensor ? t.sizes() : IntArrayRef(operand.dims.data(), operand.dims.size());
      describe(typeMetaToScalarType(t.dtype()), dims, false);
      bytes = t.numel() * t.itemsize();
      data = begin_of(t.unsafe_storage().unsafeGetStorageImpl(), written) + t.storage_offset() * t.itemsize();
      break;
    }
    case Operand::Kind::kStorage: {
      describe(operand.tensor->scalar_type(), operand.dims, false);
      const size_t item = operand.tensor->itemsize();
      bytes = operand.dims[0] * item;
      data = begin_of(operand.tensor->storage().unsafeGetStorageImpl(), written) + operand.offset * item;
      break;
    }
  }
  memory_[slot] = {data, bytes};
}

bool OpCommandImpl::is_strided(const Operand& operand) const {
  return strides_stay_ && operand.kind == Operand::Kind::kTensor && !operand.tensor->is_contiguous();
}

void OpCommandImpl::bind_strided(const Operand& operand, size_t slot) {
  const Tensor& t = *operand.tensor;
  key_.strided_operand(slot, acl_dtype(t.scalar_type()), t.sizes(), t.strides(), operand.format);
  memory_[slot] = {static_cast<char*>(t.storage().mutable_data()) + t.storage_offset() * t.itemsize(),
                   static_cast<size_t>(extent(t.sizes(), t.strides())) * t.itemsize()};
}

DimVector OpCommandImpl::arrange() {
  DimVector order;
  if (elementwise && num_outputs_ > 0 && outputs_[0].kind == Operand::Kind::kTensor) {
    const Tensor& out = outputs_[0].tensor;
    if (C10_UNLIKELY(!out.is_contiguous() && is_dense(out))) order = memory_order(out.sizes(), out.strides());
    undo_expansion();
    gather_in_place(order);
  } else if (num_inputs_ > 0 && inputs_[0].kind == Operand::Kind::kTensor && !inputs_[0].tensor->is_contiguous()) {
    if (num_inputs_ == 2 && num_outputs_ == 1) order_axes();
    if (is_in_rows(*inputs_[0].tensor->unsafeGetTensorImpl()) && takes_rows(name)) describe_rows();
  }
  return order;
}

Prepared& OpCommandImpl::prepare() {
  find_device();
  if (C10_UNLIKELY(stored_formats.load(std::memory_order_relaxed) != 0)) resolve_formats();
  strides_stay_ = takes_strides(name);
  const DimVector order = C10_LIKELY(!strides_stay_) ? arrange() : DimVector();
  for (size_t i = 0; i < num_inputs_; ++i) resolve_input(inputs_[i], order);
  for (size_t i = 0; i < num_outputs_; ++i) resolve_output(outputs_[i], order);

  // Before the inputs are bound, which may be the same: writing makes a lazily cloned storage the tensor's own.
  for (size_t i = 0; i < num_outputs_; ++i) {
    if (outputs_[i].kind == Operand::Kind::kAbsent) continue;
    begin_of(outputs_[i].tensor->unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl(), true);
  }
  key_.start(name, num_inputs_, num_outputs_);
  memory_.resize(num_inputs_ + num_outputs_);
  for (size_t i = 0; i < num_inputs_ + num_outputs_; ++i) {
    const Operand& operand = i < num_inputs_ ? inputs_[i] : outputs_[i - num_inputs_];
    if (C10_UNLIKELY(is_strided(operand))) {
      bind_strided(operand, i);
    } else {
      bind(operand, i);
    }
  }
  key_.attributes(attribute_words_);
  return PreparedCache::local().get(key_.words());
}

void OpCommandImpl::write_back(const std::vector<Aside>& aside) {
  // Storages last: what was computed aside goes into their plain copies.
  for (const auto& [target, computed, is_storage] : aside) {
    if (is_storage) continue;
    if (target.scalar_type() != computed.scalar_type()) {
      cast_into(target, computed);
    } else {
      copy_same_dtype(target, computed);
    }
  }
  for (const Aside& a : aside) {
    if (a.is_storage) store_back(a.target, a.computed);
  }
}

}  // namespace at::native::npu
