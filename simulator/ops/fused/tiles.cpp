#include "ops/fused/tiles.h"

#include "exec/running/context.h"

#include <c10/core/TensorImpl.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>

namespace acl_sim::fused {
namespace {

constexpr size_t kMostFrames = 8;
constexpr size_t kAlign = 64;

size_t bytes_of(aclDataType dtype) { return c10::elementSize(scalar_type(dtype)); }

at::Tensor make_tensor(aclDataType dtype, at::IntArrayRef dims) {
  const at::ScalarType type = scalar_type(dtype);
  auto storage = c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), static_cast<size_t>(kLongTile) * c10::elementSize(type),
      at::DataPtr(nullptr, c10::Device(c10::DeviceType::CPU)), nullptr, false);
  at::Tensor tensor = at::detail::make_tensor<c10::TensorImpl>(
      std::move(storage), c10::DispatchKeySet(c10::DispatchKey::CPU), c10::scalarTypeToTypeMeta(type));
  tensor.unsafeGetTensorImpl()->set_sizes_contiguous(dims);
  return tensor;
}

void point(const at::Tensor& tensor, void* address) {
  tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl()->set_data_ptr_noswap(
      at::DataPtr(address, c10::Device(c10::DeviceType::CPU)));
}

// A step's operands as its operator sees them: tensors of one dimension, and single values.
class TileContext final : public OpContext {
 public:
  TileContext(const Plan& plan, const Step& step, const Frame& frame) : plan_(plan), step_(step), frame_(frame) {}

  size_t num_inputs() const override { return step_.operands.size(); }
  size_t num_outputs() const override { return 1; }
  bool has_input(size_t i) const override { return i < step_.operands.size() && step_.operands[i] >= 0; }
  const Attrs& attrs() const override { return step_.attrs; }

  at::Tensor in(size_t i) override {
    if (!has_input(i)) throw OpError(ACL_ERROR_OP_INPUT_NOT_MATCH, "an input of a fused step is not given");
    return frame_.tensors[static_cast<size_t>(step_.operands[i])];
  }
  at::Tensor in_any(size_t i) override { return in(i); }
  at::Tensor in_channels_last(size_t /*i*/) override { refuse("channels-last images"); }
  std::vector<int64_t> in_values(size_t i) override { return values_of(in(i), i, plan_.dtype(step_.operands[i])); }
  at::Scalar in_scalar(size_t i) override { return scalar_of(in(i), i); }
  at::Tensor out(size_t /*i*/) override { return frame_.tensors[static_cast<size_t>(step_.result)]; }
  at::Tensor out_channels_last(size_t /*i*/) override { refuse("channels-last images"); }
  at::Tensor out_as(size_t i, const at::Tensor& /*like*/) override { return out(i); }
  void place_next_allocation(size_t /*i*/) override {}
  void set_out(size_t i, const at::Tensor& result) override { out(i).copy_(result); }
  std::string describe() const override { return step_.def->type + " in a fused operator"; }

 private:
  [[noreturn]] void refuse(const char* what) const {
    throw OpError(ACL_ERROR_INVALID_PARAM, describe() + " asks for " + what);
  }
  const Plan& plan_;
  const Step& step_;
  const Frame& frame_;
};

}  // namespace

Plan::Plan(std::unique_ptr<const Program> program, std::vector<aclDataType> input_dtypes, bool small)
    : program_(std::move(program)), dtypes_(std::move(input_dtypes)) {
  for (const Step& step : program_->steps) dtypes_.push_back(step.dtype);
  for (const aclDataType dtype : dtypes_) items_.push_back(bytes_of(dtype));
  for (const Step& step : program_->steps) steps_.push_back(plan_step(step, small));
  const auto loops = [](const StepPlan& step) { return step.loop != nullptr; };
  if (std::all_of(steps_.begin(), steps_.end(), loops)) tile_ = kShortTile;
  const auto by_onednn = [](const Step& step) { return step.def->type == "GeluV2" || step.def->type == "GeluGradV2"; };
  if (std::any_of(program_->steps.begin(), program_->steps.end(), by_onednn)) tile_ = kLongTile;
  // Buffers are used again once nothing reads them any more. Broadcast inputs are expanded into one each.
  struct Free {
    size_t place, bytes;
  };
  std::vector<Free> free;
  places_.assign(dtypes_.size(), SIZE_MAX);
  const auto give = [&](int slot) {
    const size_t bytes = static_cast<size_t>(tile_) * item(slot);
    // The one that was read last is the likeliest to be in the first cache.
    const auto found = std::find_if(free.rbegin(), free.rend(), [&](const Free& f) { return f.bytes == bytes; });
    if (found != free.rend()) {
      places_[static_cast<size_t>(slot)] = found->place;
      free.erase(std::next(found).base());
    } else {
      places_[static_cast<size_t>(slot)] = buffer_bytes_;
      buffer_bytes_ += bytes;
    }
  };
  for (const Broadcast& broadcast : program_->broadcasts) give(broadcast.input);
  for (size_t i = 0; i < program_->steps.size(); ++i) {
    const Step& step = program_->steps[i];
    // A loop of loops.h may write where it reads; other operators get another buffer.
    const bool in_place = steps_[i].loop != nullptr;
    if (!in_place) give(step.result);
    std::vector<int> read = step.operands;
    std::sort(read.begin(), read.end());
    read.erase(std::unique(read.begin(), read.end()), read.end());
    for (const int slot : read) {
      const bool kept = slot < program_->inputs || program_->last_use[static_cast<size_t>(slot)] != static_cast<int>(i);
      // What goes to an output from its buffer must stay to the end of the tile.
      const auto& outputs = program_->outputs;
      if (kept || std::find(outputs.begin(), outputs.end(), slot) != outputs.end()) continue;
      free.push_back({places_[static_cast<size_t>(slot)], static_cast<size_t>(tile_) * item(slot)});
    }
    if (in_place) give(step.result);
  }
}

StepPlan Plan::plan_step(const Step& step, bool small) const {
  StepPlan plan;
  const size_t count = step.operands.size();
  if (count == 0 || step.operands[0] < 0) return plan;
  std::array<Side, 3> sides{Side::kAll, Side::kAll, Side::kAll};
  aclDataType dtype = ACL_DT_UNDEFINED;  // of the operands with all elements
  const bool selects = step.def->type == "Select" && count == 3 && !is_single(step.operands[0]) &&
                       this->dtype(step.operands[0]) == ACL_BOOL;
  bool loops = count <= 3, alike = true;
  for (size_t i = 0; i < count; ++i) {
    const int slot = step.operands[i];
    if (slot < 0 || is_single(slot)) {
      alike = false;
      if (slot < 0) loops = false;
      if (i < 3) sides[i] = Side::kOne;
      continue;
    }
    if (selects && i == 0) {
      alike = false;
      continue;
    }
    if (dtype != ACL_DT_UNDEFINED && dtype != this->dtype(slot)) loops = alike = false;
    dtype = this->dtype(slot);
  }
  for (size_t i = 0; i < count && loops; ++i) {
    const int slot = step.operands[i];
    // Exact as a float: numbers come so, and elements of the dtype itself are.
    if (is_single(slot) && this->dtype(slot) != ACL_FLOAT && this->dtype(slot) != dtype) loops = false;
  }
  plan.dtype = dtype;
  if (loops) {
    plan.loop = find_loop(step.def->type, dtype, step.dtype, static_cast<int>(count), sides[0], sides[1], sides[2]);
  }
  const aclDataType tiny_result = step.def->tiny_makes_bool ? ACL_BOOL : dtype;
  if (small && alike && step.def->tiny_fn != nullptr && count <= 4 && step.dtype == tiny_result) {
    plan.tiny = step.def->tiny_fn;
  }
  return plan;
}

std::unique_ptr<Frame> Plan::take_frame() const {
  {
    const std::lock_guard lock(mutex_);
    if (!frames_.empty()) {
      auto frame = std::move(frames_.back());
      frames_.pop_back();
      return frame;
    }
  }
  auto frame = std::make_unique<Frame>();
  frame->address.assign(dtypes_.size(), nullptr);
  frame->tensors.resize(dtypes_.size());
  frame->numbers.resize(static_cast<size_t>(program_->inputs));
  frame->buffers.resize(buffer_bytes_ + kAlign);
  return frame;
}

void Plan::keep_frame(std::unique_ptr<Frame> frame) const {
  for (const at::Tensor& tensor : frame->tensors) {
    if (tensor.defined() && (tensor.use_count() != 1 || tensor.storage().use_count() != 1)) return;
  }
  const std::lock_guard lock(mutex_);
  if (frames_.size() < kMostFrames) frames_.push_back(std::move(frame));
}

void* Plan::buffer(Frame& frame, int slot) const {
  const size_t place = places_[static_cast<size_t>(slot)];
  if (place == SIZE_MAX) return nullptr;
  const auto begin = reinterpret_cast<uintptr_t>(frame.buffers.data());
  return reinterpret_cast<void*>((begin + kAlign - 1) / kAlign * kAlign + place);
}

void Plan::run_step(const Step& step, Frame& frame, int64_t elements) const {
  const auto prepare = [&](int slot) {
    if (slot < 0) return;
    at::Tensor& tensor = frame.tensors[static_cast<size_t>(slot)];
    const std::array<int64_t, 1> dims{elements};
    if (!tensor.defined()) {
      tensor = make_tensor(dtype(slot), is_single(slot) ? at::IntArrayRef() : at::IntArrayRef(dims));
    } else if (!is_single(slot) && tensor.size(0) != elements) {
      tensor.unsafeGetTensorImpl()->set_sizes_contiguous(dims);
    }
    point(tensor, frame.address[static_cast<size_t>(slot)]);
  };
  for (const int slot : step.operands) prepare(slot);
  prepare(step.result);
  TileContext context(*this, step, frame);
  step.def->run_fn(context);
}

void Plan::run(Frame& frame, int64_t elements) const {
  for (size_t i = 0; i < steps_.size(); ++i) {
    const Step& step = program_->steps[i];
    const StepPlan& plan = steps_[i];
    void* out = frame.address[static_cast<size_t>(step.result)];
    if (plan.loop != nullptr || plan.tiny != nullptr) {
      std::array<const void*, 4> in{};
      for (size_t k = 0; k < step.operands.size(); ++k) {
        const int slot = step.operands[k];
        in[k] = plan.loop != nullptr && is_single(slot) ? &frame.numbers[static_cast<size_t>(slot)]
                                                        : frame.address[static_cast<size_t>(slot)];
      }
      if (plan.loop != nullptr) {
        plan.loop(out, in.data(), elements);
        continue;
      }
      if (plan.tiny(plan.dtype, out, in.data(), elements)) continue;
    }
    run_step(step, frame, elements);
  }
}

}  // namespace acl_sim::fused
