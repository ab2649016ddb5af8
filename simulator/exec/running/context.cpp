#include "exec/running/context.h"

#include "exec/compilation/choice.h"
#include "exec/running/scratch.h"

#include <c10/core/TensorImpl.h>

#include <cstring>
#include <mutex>

namespace acl_sim {

struct Frame {
  std::vector<at::Tensor> tensors;  // inputs, then outputs; undefined until asked for
};

CompiledOp::~CompiledOp() { delete frame.load(); }

std::optional<int> chosen_kernel(const OpContext& c) {
  // Others run an operator in parts or again, and as its rule has it.
  const auto* run = dynamic_cast<const RunContext*>(&c);
  if (run == nullptr || run->op().kernel < 0) return std::nullopt;
  return run->op().kernel;
}

namespace {

at::Tensor make_alias(const Operand& operand) {
  const at::ScalarType type = scalar_type(operand.dtype);
  auto storage =
      c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), operand.bytes,
                                            at::DataPtr(nullptr, c10::Device(c10::DeviceType::CPU)), nullptr, false);
  at::Tensor tensor = at::detail::make_tensor<c10::TensorImpl>(
      std::move(storage), c10::DispatchKeySet(c10::DispatchKey::CPU), c10::scalarTypeToTypeMeta(type));
  tensor.unsafeGetTensorImpl()->set_sizes_contiguous(operand.dims);
  return tensor;
}

void point(const at::Tensor& tensor, void* address) {
  tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl()->set_data_ptr_noswap(
      at::DataPtr(address, c10::Device(c10::DeviceType::CPU)));
}

bool untouched(const at::Tensor& tensor, const Operand& operand) {
  const auto* impl = tensor.unsafeGetTensorImpl();
  return impl->sizes() == c10::IntArrayRef(operand.dims) && impl->is_contiguous() && impl->storage_offset() == 0;
}

template <class T>
std::vector<int64_t> widen(const at::Tensor& tensor) {
  const T* values = tensor.const_data_ptr<T>();
  return {values, values + tensor.numel()};
}

}  // namespace

at::ScalarType scalar_type(aclDataType dtype) {
  switch (dtype) {
    case ACL_FLOAT:
      return at::kFloat;
    case ACL_FLOAT16:
      return at::kHalf;
    case ACL_INT8:
      return at::kChar;
    case ACL_INT32:
      return at::kInt;
    case ACL_UINT8:
      return at::kByte;
    case ACL_INT16:
      return at::kShort;
    case ACL_UINT16:
      return at::kUInt16;
    case ACL_UINT32:
      return at::kUInt32;
    case ACL_INT64:
      return at::kLong;
    case ACL_UINT64:
      return at::kUInt64;
    case ACL_DOUBLE:
      return at::kDouble;
    case ACL_BOOL:
      return at::kBool;
    case ACL_COMPLEX32:
      return at::kComplexHalf;
    case ACL_COMPLEX64:
      return at::kComplexFloat;
    case ACL_COMPLEX128:
      return at::kComplexDouble;
    case ACL_BF16:
      return at::kBFloat16;
    case ACL_FLOAT8_E5M2:
      return at::kFloat8_e5m2;
    case ACL_FLOAT8_E4M3FN:
      return at::kFloat8_e4m3fn;
    default:
      throw OpError(ACL_ERROR_UNSUPPORTED_DATA_TYPE,
                    std::string("the simulated device does not compute with ") + dtype_name(dtype));
  }
}

at::Tensor as_seen(const at::Tensor& described, HostOrder order) {
  switch (order) {
    case HostOrder::kRows:
      return described.permute({0, 3, 1, 2});
    case HostOrder::kFilterColumns:
      return described.permute({3, 2, 0, 1});
    default:
      return described;
  }
}

LayoutMap* layout_or_null(Device& device) { return device.layout.load(std::memory_order_acquire); }

LayoutMap& layout_of(Device& device) {
  if (auto* map = layout_or_null(device)) return *map;
  static std::mutex making;
  std::lock_guard<std::mutex> lock(making);
  if (!layout_or_null(device)) device.layout.store(new LayoutMap, std::memory_order_release);
  return *layout_or_null(device);
}

std::vector<int64_t> values_of(const at::Tensor& tensor, size_t input, aclDataType dtype) {
  switch (tensor.scalar_type()) {
    case at::kLong:
      return widen<int64_t>(tensor);
    case at::kInt:
      return widen<int32_t>(tensor);
    default:
      throw OpError(
          ACL_ERROR_OP_INPUT_NOT_MATCH,
          format("input %zu holds axes or a shape and must be int32 or int64, not %s", input, dtype_name(dtype)));
  }
}

at::Scalar scalar_of(const at::Tensor& tensor, size_t input) {
  if (tensor.numel() != 1) {
    throw OpError(ACL_ERROR_OP_INPUT_NOT_MATCH,
                  format("input %zu must have one element, not %lld", input, static_cast<long long>(tensor.numel())));
  }
  return tensor.item();
}

RunContext::RunContext(const CompiledOp& op, OpLaunch& launch, Device& device)
    : op_(op), launch_(launch), device_(device), frame_(op.frame.exchange(nullptr, std::memory_order_acquire)) {
  if (!frame_) {
    frame_ = new Frame;
    frame_->tensors.resize(op.inputs.size() + op.outputs.size());
  }
  layouts_ = op.reordered;
  if (LayoutMap* map = layout_or_null(device)) {
    for (size_t i = 0; i < frame_->tensors.size() && !layouts_; ++i) {
      const auto& operand = op.operand(i);
      layouts_ = !operand.host && map->may_hold_tags(launch.operand(i), operand.bytes);
    }
    if (layouts_) {
      for (size_t i = op.inputs.size(); i < frame_->tensors.size(); ++i)
        map->free_borders(launch.operand(i), op.operand(i).bytes);
      use_ = map->use();
    }
  }
}

RunContext::~RunContext() {
  operands_.reset();
  forget_placement();
  bool keep = true;
  for (size_t i = 0; i < frame_->tensors.size() && keep; ++i) {
    if (i < 32 && !(handed_out_ >> i & 1)) continue;
    const auto& tensor = frame_->tensors[i];
    if (!tensor.defined()) continue;
    // Outputs have been looked at already if the operator came to its end.
    const bool seen = finished_ && i < 32 && i >= op_.inputs.size() && op_.operand(i).elements > 0;
    keep = tensor.use_count() == 1 && tensor.storage().use_count() == 1 && (seen || untouched(tensor, op_.operand(i)));
  }
  Frame* kept = keep ? frame_ : nullptr;
  // Another thread may have put a frame there meanwhile, which is deleted here.
  if (kept) kept = op_.frame.exchange(kept, std::memory_order_acq_rel);
  delete (keep ? kept : frame_);
}

size_t RunContext::checked_input(size_t i) const {
  if (i >= op_.inputs.size() || op_.inputs[i].absent)
    throw OpError(ACL_ERROR_OP_INPUT_NOT_MATCH, format("input %zu is not given", i));
  return i;
}

size_t RunContext::checked_output(size_t i) const {
  if (i >= op_.outputs.size() || op_.outputs[i].absent)
    throw OpError(ACL_ERROR_OP_OUTPUT_NOT_MATCH, format("output %zu is not given", i));
  return i;
}

const at::Tensor& RunContext::plain(size_t operand) {
  auto& tensor = frame_->tensors[operand];
  if (!tensor.defined()) tensor = make_alias(op_.operand(operand));
  // Large operand numbers are set again each time; they are rare.
  if (operand >= 32 || !(handed_out_ >> operand & 1)) {
    point(tensor, launch_.operand(operand));
    if (operand < 32) handed_out_ |= uint32_t{1} << operand;
  }
  return tensor;
}

Operands& RunContext::with_layouts() {
  if (operands_) return *operands_;
  const auto view = [&](size_t i) {
    const auto& operand = op_.operand(i);
    OperandView v;
    if (operand.absent) return v;
    v.data = launch_.operand(i);
    v.dims = op_.seen_dims(operand);
    v.order = operand.order;
    v.dtype = scalar_type(operand.dtype);
    v.bytes = operand.bytes;
    v.on_device = !operand.host;
    return v;
  };
  for (size_t i = 0; i < op_.inputs.size(); ++i) input_views_.push_back(view(i));
  for (size_t i = 0; i < op_.outputs.size(); ++i) output_views_.push_back(view(op_.inputs.size() + i));
  operands_.emplace(layout_of(device_), input_views_, output_views_);
  layouts_ = true;
  return *operands_;
}

at::Tensor RunContext::in(size_t i) {
  checked_input(i);
  return layouts_ ? with_layouts().in(i) : plain(i);
}

at::Tensor RunContext::in_any(size_t i) {
  checked_input(i);
  return layouts_ ? with_layouts().in_any(i) : plain(i);
}

at::Tensor RunContext::in_channels_last(size_t i) {
  checked_input(i);
  return with_layouts().in_channels_last(i);
}

std::vector<int64_t> RunContext::in_values(size_t i) { return values_of(in(i), i, op_.inputs[i].dtype); }
at::Scalar RunContext::in_scalar(size_t i) { return scalar_of(in(i), i); }

at::Tensor RunContext::out(size_t i) {
  checked_output(i);
  return layouts_ ? with_layouts().out(i) : plain(op_.inputs.size() + i);
}

at::Tensor RunContext::out_channels_last(size_t i) {
  checked_output(i);
  return with_layouts().out_channels_last(i);
}

at::Tensor RunContext::out_as(size_t i, const at::Tensor& like) {
  checked_output(i);
  if (!layouts_ && like.is_contiguous()) return plain(op_.inputs.size() + i);
  return with_layouts().out_as(i, like);
}

void RunContext::place_next_allocation(size_t i) {
  checked_output(i);
  const size_t operand = op_.inputs.size() + i;
  char* place = static_cast<char*>(launch_.operand(operand));
  const size_t bytes = op_.operand(operand).bytes;
  // A kernel that allocates its result may still read its inputs while it writes: not into memory that is one of them.
  for (size_t k = 0; k < op_.inputs.size(); ++k) {
    if (op_.inputs[k].absent || op_.inputs[k].host) continue;
    const char* input = static_cast<const char*>(launch_.operand(k));
    if (input < place + bytes && place < input + op_.inputs[k].bytes) return;
  }
  // What a stale tag says about this memory must be settled before the kernel writes there.
  if (layouts_) layout_of(device_).forget(place, bytes);
  acl_sim::place_next_allocation(place, bytes);
}

void RunContext::set_out(size_t i, const at::Tensor& result) {
  checked_output(i);
  const size_t operand = op_.inputs.size() + i;
  forget_placement();
  const std::vector<int64_t>& dims = op_.seen_dims(op_.outputs[i]);
  // A result with other strides that was placed in the output's memory would be overwritten while it is read. Unless it
  // may stay there as it is.
  const bool channels_last = result.dim() == 4 && result.is_contiguous(at::MemoryFormat::ChannelsLast) &&
                             result.sizes() == c10::IntArrayRef(dims) && result.storage_offset() == 0 &&
                             result.scalar_type() == scalar_type(op_.outputs[i].dtype);
  if (!result.is_contiguous() && !channels_last && op_.outputs[i].elements > 0 &&
      result.storage().data() == launch_.operand(operand)) {
    set_out(i, result.clone(at::MemoryFormat::Contiguous));
    return;
  }
  if (result.sizes() != c10::IntArrayRef(dims) || result.scalar_type() != scalar_type(op_.outputs[i].dtype)) {
    // Same elements under other dims (a 0-d result for a [1] output) are fine, anything else is the operator's mistake.
    if (result.numel() != op_.outputs[i].elements) {
      throw OpError(ACL_ERROR_OP_OUTPUT_NOT_MATCH,
                    format("output %zu is described with %lld elements, but the operator computes %lld", i,
                           static_cast<long long>(op_.outputs[i].elements), static_cast<long long>(result.numel())));
    }
    const at::Tensor& target = out(i);
    target.copy_(result.reshape(dims));
    return;
  }
  if (layouts_ || !result.is_contiguous()) {
    with_layouts().set_out(i, result);
    return;
  }
  if (result.const_data_ptr() != launch_.operand(operand))
    std::memcpy(launch_.operand(operand), result.const_data_ptr(), op_.outputs[i].bytes);
}

void RunContext::finish() {
  if (operands_) operands_->finish();
  for (size_t i = 0; i < op_.outputs.size(); ++i) {
    const size_t operand = op_.inputs.size() + i;
    const auto& tensor = frame_->tensors[operand];
    if (!tensor.defined() || operand >= 32 || !(handed_out_ >> operand & 1)) continue;
    if (op_.outputs[i].elements == 0 && tensor.numel() == 0) continue;  // has no address
    if (tensor.const_data_ptr() != launch_.operand(operand) || !untouched(tensor, op_.outputs[i])) {
      throw OpError(ACL_ERROR_OP_OUTPUT_NOT_MATCH,
                    format("output %zu is described as %s, but the operator computes another shape", i,
                           describe_tensor(op_.outputs[i].dtype, op_.outputs[i].dims.data(),
                                           static_cast<int>(op_.outputs[i].dims.size()), op_.outputs[i].format)
                               .c_str()));
    }
  }
  finished_ = true;
}

void RunContext::narrow_outputs() {
  for (size_t i = 0; i < op_.outputs.size(); ++i) {
    if (op_.outputs[i].absent || op_.outputs[i].dtype != ACL_FLOAT) continue;
    const at::Tensor& tensor = plain(op_.inputs.size() + i);
    tensor.copy_(tensor.to(at::kHalf));
  }
}

void RunContext::scale_outputs(double factor) {
  for (size_t i = 0; i < op_.outputs.size(); ++i) {
    const auto& operand = op_.outputs[i];
    if (operand.absent) continue;
    // Scaling is the same in any layout of the same elements.
    const at::Tensor& tensor = plain(op_.inputs.size() + i);
    if (tensor.is_floating_point() || tensor.is_complex()) tensor.mul_(factor);
  }
}

}  // namespace acl_sim
