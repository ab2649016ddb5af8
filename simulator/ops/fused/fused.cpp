// The operator FusedElementwise: see Note [Fused element-wise operators].

#include "core/config.h"
#include "exec/compilation/narrow.h"
#include "exec/definition/op.h"
#include "ops/fused/tiles.h"
#include "ops/nn_util.h"

#include <ATen/Parallel.h>
#include <c10/core/InferenceMode.h>
#include <c10/util/DimVector.h>
#include <c10/util/accumulate.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <unordered_map>

namespace acl_sim {
namespace {

using at::Tensor;
using fused::Frame;
using fused::Plan;

aclDataType dtype_of(const Tensor& t) {
  switch (t.scalar_type()) {
    case at::kFloat:
      return ACL_FLOAT;
    case at::kHalf:
      return ACL_FLOAT16;
    case at::kBFloat16:
      return ACL_BF16;
    case at::kDouble:
      return ACL_DOUBLE;
    case at::kBool:
      return ACL_BOOL;
    case at::kByte:
      return ACL_UINT8;
    case at::kChar:
      return ACL_INT8;
    case at::kShort:
      return ACL_INT16;
    case at::kInt:
      return ACL_INT32;
    case at::kLong:
      return ACL_INT64;
    default:
      throw OpError(ACL_ERROR_UNSUPPORTED_DATA_TYPE, "a fused operator does not compute with this dtype");
  }
}

// Programs that were seen, with the dtypes that they were seen with. They are few: one for each chain of a network.
class Plans {
 public:
  std::shared_ptr<const Plan> find(OpContext& c, bool small) {
    const std::string text = c.attrs().text("program", "");
    std::vector<aclDataType> dtypes;
    std::string key = text;
    key.push_back(small ? 's' : 'l');
    for (size_t i = 0; i < c.num_inputs(); ++i) {
      dtypes.push_back(dtype_of(c.in_any(i)));
      key.push_back(static_cast<char>(dtypes.back()));
    }
    const std::lock_guard lock(mutex_);
    auto& plan = plans_[key];
    if (plan == nullptr) {
      if (plans_.size() > kMost) {
        plans_.clear();
        return make(c, text, std::move(dtypes), small);
      }
      plan = make(c, text, std::move(dtypes), small);
    }
    return plan;
  }

 private:
  static constexpr size_t kMost = 4096;
  static std::shared_ptr<const Plan> make(OpContext& c, const std::string& text, std::vector<aclDataType> dtypes,
                                          bool small) {
    return std::make_shared<const Plan>(fused::parse(text, c.num_inputs(), c.num_outputs()), std::move(dtypes), small);
  }
  std::mutex mutex_;
  std::unordered_map<std::string, std::shared_ptr<const Plan>> plans_;
};

Plans& plans() {
  static auto* const value = new Plans;
  return *value;
}

// An input that is expanded to the dims of a step, in the order of memory.
struct Expanded {
  const char* data;
  at::DimVector dims, strides;  // of elements
  int64_t period = 0;           // after so many elements they come again; 0: never
};

Expanded expand(const Tensor& t, const std::vector<int64_t>& dims, bool rows) {
  const Tensor wide = t.expand(dims);
  Expanded e{static_cast<const char*>(t.const_data_ptr()), at::DimVector(wide.sizes()), at::DimVector(wide.strides())};
  if (rows && dims.size() == 4) {
    e.dims = {dims[0], dims[2], dims[3], dims[1]};
    e.strides = {wide.stride(0), wide.stride(2), wide.stride(3), wide.stride(1)};
  }
  // Neighbouring dimensions that are walked as one become one, so that rows are long.
  for (size_t d = e.dims.size(); d-- > 1;) {
    if (e.strides[d - 1] != e.strides[d] * e.dims[d] && e.dims[d - 1] != 1) continue;
    e.dims[d - 1] *= e.dims[d];
    e.strides[d - 1] = e.strides[d];
    e.dims.erase(e.dims.begin() + static_cast<int64_t>(d));
    e.strides.erase(e.strides.begin() + static_cast<int64_t>(d));
  }
  if (e.strides.size() == 1 && e.strides[0] == 0) e.period = 1;
  if (e.strides.size() == 2 && e.strides[0] == 0) e.period = e.dims[1];
  return e;
}

// Copies `count` elements of a row that begins at `from`.
template <class T>
void copy_row(char* to, const char* from, int64_t stride, int64_t count) {
  auto* out = reinterpret_cast<T*>(to);
  const auto* in = reinterpret_cast<const T*>(from);
  if (stride == 0) {
    std::fill_n(out, count, *in);
  } else if (stride == 1) {
    std::memcpy(out, in, static_cast<size_t>(count) * sizeof(T));
  } else {
    for (int64_t i = 0; i < count; ++i) out[i] = in[i * stride];
  }
}

// Elements begin, begin + 1, ... of the expanded input, into a tile.
void gather(const Expanded& e, size_t item, int64_t begin, int64_t elements, char* tile) {
  const size_t rank = e.dims.size();
  if (rank == 0) return;
  const int64_t length = e.dims[rank - 1], stride = e.strides[rank - 1];
  at::DimVector index(rank, 0);
  int64_t rest = begin;
  for (size_t d = rank; d-- > 0;) {
    index[d] = rest % e.dims[d];
    rest /= e.dims[d];
  }
  while (elements > 0) {
    int64_t at = 0;
    for (size_t d = 0; d < rank; ++d) at += index[d] * e.strides[d];
    const int64_t count = std::min(elements, length - index[rank - 1]);
    const char* from = e.data + at * static_cast<int64_t>(item);
    switch (item) {
      case 1:
        copy_row<uint8_t>(tile, from, stride, count);
        break;
      case 2:
        copy_row<uint16_t>(tile, from, stride, count);
        break;
      case 4:
        copy_row<uint32_t>(tile, from, stride, count);
        break;
      default:
        copy_row<uint64_t>(tile, from, stride, count);
    }
    tile += static_cast<size_t>(count) * item;
    elements -= count;
    index[rank - 1] = 0;
    for (size_t d = rank - 1; d-- > 0;) {
      if (++index[d] < e.dims[d]) break;
      index[d] = 0;
    }
  }
}

float as_number(const Tensor& t) {
  switch (t.scalar_type()) {
    case at::kFloat:
      return *t.const_data_ptr<float>();
    case at::kHalf:
      return static_cast<float>(*t.const_data_ptr<at::Half>());
    case at::kBFloat16:
      return static_cast<float>(*t.const_data_ptr<at::BFloat16>());
    default:
      return 0;  // no loop reads it
  }
}

// Elements times steps that one thread computes.
constexpr int64_t kNarrowWork = 8 * kNarrowElements;

// One execution of a plan.
class FusedRun {
 public:
  FusedRun(OpContext& c, const Plan& plan) : plan_(plan), program_(plan.program()) {
    const auto count = static_cast<size_t>(program_.inputs);
    const bool rows = any_rows(c);
    std::vector<bool> broadcasts(count, false);
    for (const auto& broadcast : program_.broadcasts) broadcasts[static_cast<size_t>(broadcast.input)] = true;
    bases_.assign(static_cast<size_t>(program_.slots), nullptr);
    for (size_t i = 0; i < count; ++i) {
      const bool whole = !program_.single[i] && !broadcasts[i];
      inputs_.push_back(whole && rows ? c.in_channels_last(i) : c.in(i));
      bases_[i] = static_cast<char*>(const_cast<void*>(inputs_[i].const_data_ptr()));
    }
    for (const auto& broadcast : program_.broadcasts) {
      expanded_.push_back(expand(inputs_[static_cast<size_t>(broadcast.input)], broadcast.dims, rows));
    }
    for (size_t k = 0; k < program_.outputs.size(); ++k) {
      const auto slot = static_cast<size_t>(program_.outputs[k]);
      const Tensor out = rows ? c.out_channels_last(k) : c.out(k);
      elements_ = out.numel();
      auto* place = static_cast<char*>(out.data_ptr());
      if (bases_[slot] != nullptr || is_read_later(place, program_.outputs[k])) {
        staged_.push_back({program_.outputs[k], place});
      } else {
        bases_[slot] = place;
      }
      outputs_.push_back(out);
    }
  }

  void run() {
    if (elements_ == 0) return;
    const int64_t tile = plan_.tile();
    const auto part = [&](int64_t begin, int64_t end) {
      // Helpers of the team know nothing of the worker's modes.
      const c10::InferenceMode below_autograd;
      auto frame = plan_.take_frame();
      for (int slot = 0; slot < program_.inputs; ++slot) {
        if (!program_.single[static_cast<size_t>(slot)]) continue;
        frame->address[static_cast<size_t>(slot)] = bases_[static_cast<size_t>(slot)];
        frame->numbers[static_cast<size_t>(slot)] = as_number(inputs_[static_cast<size_t>(slot)]);
      }
      for (int64_t at = begin; at < end; at += tile) run_tile(*frame, at, std::min(tile, end - at), at == begin);
      plan_.keep_frame(std::move(frame));
    };
    if (elements_ > kNarrowElements) {
      at::parallel_for(0, elements_, at::internal::GRAIN_SIZE, part);
      return;
    }
    // One thread would compute each step from end to end: whole tiles have its lanes, whoever computes them.
    // A short chain is done before a helper is awake, and a helper that looks out for more takes the host's core.
    if (elements_ * static_cast<int64_t>(program_.steps.size()) <= kNarrowWork) {
      part(0, elements_);
      return;
    }
    const int64_t tiles = (elements_ + tile - 1) / tile;
    at::parallel_for(0, tiles, std::max<int64_t>(at::internal::GRAIN_SIZE / tile, 1),
                     [&](int64_t first, int64_t last) { part(first * tile, std::min(elements_, last * tile)); });
  }

 private:
  struct Staged {
    int slot;
    char* place;
  };

  // Whether whole operands are images that the device keeps channels-last: then all are taken so.
  bool any_rows(OpContext& c) const {
    bool rows = false;
    for (size_t i = 0; i < c.num_inputs(); ++i) rows = rows || stored_channels_last(c.in_any(i));
    if (!rows) return false;
    at::DimVector dims;
    std::vector<bool> whole(c.num_inputs(), true);
    for (const auto& broadcast : program_.broadcasts) {
      whole[static_cast<size_t>(broadcast.input)] = false;
      if (dims.empty()) dims.assign(broadcast.dims.begin(), broadcast.dims.end());
      if (at::IntArrayRef(dims) != at::IntArrayRef(broadcast.dims)) return false;
    }
    for (size_t i = 0; i < c.num_inputs(); ++i) {
      if (program_.single[i] || !whole[i]) continue;
      const Tensor t = c.in_any(i);
      if (dims.empty()) dims.assign(t.sizes().begin(), t.sizes().end());
      if (t.sizes() != at::IntArrayRef(dims)) return false;
    }
    for (size_t k = 0; k < c.num_outputs(); ++k) {
      if (c.out_dims(k) != at::IntArrayRef(dims)) return false;
    }
    return dims.size() == 4;
  }

  // Whether a step after the one that makes `slot` reads the memory where it goes as an input.
  bool is_read_later(const char* place, int slot) const {
    const int step = slot - program_.inputs;
    for (int i = 0; i < program_.inputs; ++i) {
      if (bases_[static_cast<size_t>(i)] == place && program_.last_use[static_cast<size_t>(i)] > step) return true;
    }
    return false;
  }

  void run_tile(Frame& frame, int64_t at, int64_t elements, bool first) const {
    for (size_t i = 0; i < program_.broadcasts.size(); ++i) {
      const int64_t period = expanded_[i].period;
      if (!first && period > 0 && plan_.tile() % period == 0) continue;  // the tile before had the same
      const int slot = program_.broadcasts[i].input;
      void* tile = plan_.buffer(frame, slot);
      gather(expanded_[i], plan_.item(slot), at, elements, static_cast<char*>(tile));
      frame.address[static_cast<size_t>(slot)] = tile;
    }
    for (int slot = 0; slot < program_.slots; ++slot) {
      const auto s = static_cast<size_t>(slot);
      if (slot < program_.inputs && program_.single[s]) continue;
      if (slot >= program_.inputs && bases_[s] == nullptr) {
        frame.address[s] = plan_.buffer(frame, slot);
      } else if (slot >= program_.inputs || plan_.buffer(frame, slot) == nullptr) {
        frame.address[s] = bases_[s] + static_cast<size_t>(at) * plan_.item(slot);
      }
    }
    plan_.run(frame, elements);
    for (const auto& [slot, place] : staged_) {
      const size_t item = plan_.item(slot);
      std::memcpy(place + static_cast<size_t>(at) * item, frame.address[static_cast<size_t>(slot)],
                  static_cast<size_t>(elements) * item);
    }
  }

  const Plan& plan_;
  const fused::Program& program_;
  std::vector<Tensor> inputs_, outputs_;
  std::vector<char*> bases_;  // of each slot whose tiles are in the operands' memory
  std::vector<Expanded> expanded_;
  std::vector<Staged> staged_;
  int64_t elements_ = 0;
};

void fused_elementwise(OpContext& c) {
  const bool small = 2 * c10::multiply_integers(c.out_dims(0)) <= config().tiny_elements;
  const auto plan = plans().find(c, small);
  FusedRun(c, *plan).run();
}
SIM_OP(FusedElementwise)
    .inputs(1, kManyInputs)
    .outputs(1, kManyInputs)
    .attrs({"program:str"})
    .require({"program"})
    .run(fused_elementwise);

}  // namespace
}  // namespace acl_sim
