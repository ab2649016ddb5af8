// See operands.h.

#include "exec/running/operands.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <cstring>

namespace acl_sim {
namespace {

at::Tensor plain_alias(const OperandView& v) {
  return at::from_blob(v.data, v.dims, at::TensorOptions().dtype(v.dtype));
}

at::Tensor rows_alias(void* data, const OperandView& v) {
  return at::from_blob(data, v.dims, channels_last_strides(v.dims), at::TensorOptions().dtype(v.dtype));
}

bool overlap(const OperandView& a, const OperandView& b) {
  const char* const a0 = static_cast<const char*>(a.data);
  const char* const b0 = static_cast<const char*>(b.data);
  return a0 < b0 + b.bytes && b0 < a0 + a.bytes;
}

// A filter [O, C, H, W] whose host has it as [H * W * C, O].
Planes filter_planes(at::IntArrayRef dims) { return {1, dims[1] * dims[2] * dims[3], dims[0]}; }

bool same_image(const OperandView& a, const OperandView& b) {
  return a.data == b.data && a.bytes == b.bytes && a.dims == b.dims && a.dtype == b.dtype;
}

}  // namespace

Operands::Operands(LayoutMap& map, at::ArrayRef<OperandView> inputs, at::ArrayRef<OperandView> outputs)
    : map_(map), inputs_(inputs), outputs_(outputs) {
  in_.resize(inputs.size());
  out_.resize(outputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    const OperandView& v = inputs[i];
    const bool tagged = v.on_device && v.data != nullptr && map_.may_hold_tags(v.data, v.bytes);
    const size_t element = tagged ? c10::elementSize(v.dtype) : 0;
    switch (v.order) {
      case HostOrder::kAsDims:
        in_[i].channels_last = tagged && map_.channels_last(v.data, v.dims, element);
        in_[i].mixed = tagged && !in_[i].channels_last && map_.any(v.data, v.bytes);
        break;
      case HostOrder::kRows:
        in_[i].mixed = tagged && map_.any(v.data, v.bytes);
        in_[i].channels_last = !in_[i].mixed;
        break;
      case HostOrder::kFilterColumns:
        in_[i].channels_last = tagged && map_.turned(v.data, filter_planes(v.dims), element);
        in_[i].mixed = !in_[i].channels_last;
        break;
    }
  }
}

at::Tensor Operands::in(size_t i) {
  const OperandView& v = inputs_[i];
  Input& state = in_[i];
  if (!state.channels_last && !state.mixed) {
    return plain_alias(v);
  }
  if (v.order != HostOrder::kAsDims && !state.plain.defined()) {
    const at::Tensor rows = in_channels_last(i);
    if (LayoutMap::layout_free(v.dims)) {
      return rows.as_strided(v.dims, c10::contiguous_strides(v.dims));
    }
    state.plain = at::empty(v.dims, at::TensorOptions().dtype(v.dtype));
    rows_to_planes(rows.const_data_ptr(), state.plain.mutable_data_ptr(), v.dims[0], v.dims[1], v.dims[2] * v.dims[3],
                   c10::elementSize(v.dtype));
  }
  if (!state.plain.defined()) {
    state.plain = at::empty(v.dims, at::TensorOptions().dtype(v.dtype));
    map_.read(v.data, v.bytes, state.plain.mutable_data_ptr());
  }
  return state.plain;
}

at::Tensor Operands::in_any(size_t i) {
  return in_[i].channels_last || inputs_[i].order != HostOrder::kAsDims ? in_channels_last(i) : in(i);
}

// The channels-last copy of an operand in another order than its dims', of which the device has no such memory.
at::Tensor Operands::reordered_rows(size_t i) {
  const OperandView& v = inputs_[i];
  Input& state = in_[i];
  if (state.rows.defined()) {
    return state.rows;
  }
  const auto options = at::TensorOptions().dtype(v.dtype);
  state.rows = at::empty(v.dims, options.memory_format(at::MemoryFormat::ChannelsLast));
  if (v.order == HostOrder::kRows) {
    map_.read(v.data, v.bytes, state.rows.mutable_data_ptr());
    return state.rows;
  }
  const void* columns = v.data;
  at::Tensor copy;
  if (v.on_device && map_.any(v.data, v.bytes)) {
    copy = at::empty(v.dims, options);
    map_.read(v.data, v.bytes, copy.mutable_data_ptr());
    columns = copy.const_data_ptr();
  }
  const Planes planes = filter_planes(v.dims);
  planes_to_rows(columns, state.rows.mutable_data_ptr(), 1, planes.channels, planes.area, c10::elementSize(v.dtype));
  return state.rows;
}

at::Tensor Operands::in_channels_last(size_t i) {
  const OperandView& v = inputs_[i];
  Input& state = in_[i];
  if (state.channels_last) {
    return rows_alias(v.data, v);
  }
  if (v.order != HostOrder::kAsDims) {
    return reordered_rows(i);
  }
  if (LayoutMap::layout_free(v.dims)) {
    const at::Tensor plain = in(i);
    return plain.as_strided(v.dims, channels_last_strides(v.dims));
  }
  if (!state.rows.defined()) {
    const at::Tensor plain = in(i);
    state.rows = at::empty(v.dims, at::TensorOptions().dtype(v.dtype).memory_format(at::MemoryFormat::ChannelsLast));
    planes_to_rows(plain.const_data_ptr(), state.rows.mutable_data_ptr(), v.dims[0], v.dims[1], v.dims[2] * v.dims[3],
                   c10::elementSize(v.dtype));
  }
  return state.rows;
}

at::Tensor Operands::out_as(size_t i, const at::Tensor& like) {
  return output(i, outputs_[i].dims.size() == 4 && like.dim() == 4 && !like.is_contiguous() &&
                       like.is_contiguous(at::MemoryFormat::ChannelsLast));
}

// An output that shares memory with an input may be written in place only in the layout in which the input lies there;
// otherwise the operator would overwrite elements that it has yet to read.
bool Operands::must_go_beside(size_t i, bool channels_last) const {
  for (size_t j = 0; j < inputs_.size(); ++j) {
    const OperandView& v = inputs_[j];
    if (!v.on_device || v.data == nullptr || !overlap(v, outputs_[i])) {
      continue;
    }
    if (v.order != HostOrder::kAsDims || outputs_[i].order != HostOrder::kAsDims || in_[j].mixed ||
        in_[j].channels_last != channels_last || (channels_last && !same_image(v, outputs_[i]))) {
      return true;
    }
  }
  return false;
}

at::Tensor Operands::output(size_t i, bool channels_last) {
  const OperandView& v = outputs_[i];
  Output& state = out_[i];
  if (state.asked && state.channels_last == channels_last) {
    return state.tensor;
  }
  state.asked = true;
  state.channels_last = channels_last;
  // In another order than its dims' an output's memory takes nothing but rows.
  state.beside = must_go_beside(i, channels_last) ||
                 (v.order != HostOrder::kAsDims && !channels_last && !LayoutMap::layout_free(v.dims));
  if (state.beside) {
    at::TensorOptions options = at::TensorOptions().dtype(v.dtype);
    state.tensor = at::empty(v.dims, channels_last ? options.memory_format(at::MemoryFormat::ChannelsLast) : options);
  } else {
    state.tensor = channels_last ? rows_alias(v.data, v) : plain_alias(v);
    bool in_place = false;
    for (size_t j = 0; j < inputs_.size(); ++j) {
      in_place = in_place || (inputs_[j].on_device && inputs_[j].data != nullptr && overlap(inputs_[j], v));
    }
    // In place channels-last the tag stays; everything else replaces what was there.
    if (!(in_place && channels_last)) {
      map_.forget(v.data, v.bytes);
    }
  }
  return state.tensor;
}

void Operands::set_out(size_t i, const at::Tensor& result) {
  const OperandView& v = outputs_[i];
  if (result.const_data_ptr() == v.data && static_cast<size_t>(result.nbytes()) == v.bytes) {
    const bool plain = result.is_contiguous() && (v.order == HostOrder::kAsDims || LayoutMap::layout_free(v.dims));
    if (plain || (v.dims.size() == 4 && result.is_contiguous(at::MemoryFormat::ChannelsLast))) {
      Output& state = out_[i];
      map_.forget(v.data, v.bytes);
      state = {true, !plain, result, false};
      return;
    }
  }
  const at::Tensor target = out_as(i, result);
  if (target.const_data_ptr() != result.const_data_ptr()) {
    target.copy_(result);
  }
}

void Operands::finish() {
  for (size_t i = 0; i < outputs_.size(); ++i) {
    const OperandView& v = outputs_[i];
    Output& state = out_[i];
    if (!state.asked || v.data == nullptr) {
      continue;
    }
    const size_t element = c10::elementSize(v.dtype);
    if (state.beside) {
      map_.forget(v.data, v.bytes);
      if (v.order == HostOrder::kAsDims || state.channels_last || LayoutMap::layout_free(v.dims)) {
        std::memcpy(v.data, state.tensor.const_data_ptr(), v.bytes);
      } else {
        planes_to_rows(state.tensor.const_data_ptr(), v.data, v.dims[0], v.dims[1], v.dims[2] * v.dims[3], element);
      }
    }
    if (v.order == HostOrder::kFilterColumns) {
      map_.mark(v.data, filter_planes(v.dims), element);
    }
    if (v.order == HostOrder::kAsDims && state.channels_last && !map_.channels_last(v.data, v.dims, element)) {
      map_.mark(v.data, v.dims, element);
    }
  }
}

}  // namespace acl_sim
