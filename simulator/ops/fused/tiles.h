#pragma once
// What runs a program on tiles: how each step is computed for given dtypes, and the tensors of one tile.

#include "ops/fused/loops.h"
#include "ops/fused/program.h"

#include <ATen/core/Tensor.h>

#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace acl_sim::fused {

// A multiple of every vector loop's step. Some ten tiles of fp32 fit into a core's second cache.
constexpr int64_t kTile = 8192;
// Where each step is a loop of loops.h, which costs nothing to begin: some of these fit into the first cache.
constexpr int64_t kShortTile = 2048;
// Where a step is upstream's call of oneDNN, which takes ten microseconds to begin. From one element more on upstream
// divides a GELU among threads, and then elements meet other lanes.
constexpr int64_t kLongTile = 0x6000;

// How a step is computed.
struct StepPlan {
  Loop loop = nullptr;
  TinyFn tiny = nullptr;                 // where a loop of the operator's own runs it when it is alone
  aclDataType dtype = ACL_DT_UNDEFINED;  // of the first operand
};

// The tensors and buffers with which one thread computes a tile. Kept from one execution to the next.
struct Frame {
  std::vector<void*> address;       // of each slot's tile, now
  std::vector<at::Tensor> tensors;  // of each slot, made when a step needs one
  std::vector<float> numbers;       // single operands as the loops read them
  std::vector<char> buffers;        // tiles of results that no output takes at once
};

// A program for operands of certain dtypes.
class Plan {
 public:
  // `small`: so few elements that an operator alone would run as OpDef::tiny_fn.
  Plan(std::unique_ptr<const Program> program, std::vector<aclDataType> input_dtypes, bool small);

  const Program& program() const { return *program_; }
  aclDataType dtype(int slot) const { return dtypes_[static_cast<size_t>(slot)]; }
  int64_t tile() const { return tile_; }
  size_t item(int slot) const { return items_[static_cast<size_t>(slot)]; }
  std::unique_ptr<Frame> take_frame() const;
  void keep_frame(std::unique_ptr<Frame> frame) const;
  // The buffer of a slot in a frame; null for inputs that need none.
  void* buffer(Frame& frame, int slot) const;
  // Runs all steps on one tile whose addresses are set.
  void run(Frame& frame, int64_t elements) const;

 private:
  StepPlan plan_step(const Step& step, bool small) const;
  void run_step(const Step& step, Frame& frame, int64_t elements) const;
  bool is_single(int slot) const { return slot < program_->inputs && program_->single[static_cast<size_t>(slot)]; }

  std::unique_ptr<const Program> program_;
  std::vector<aclDataType> dtypes_;
  std::vector<size_t> items_;
  std::vector<StepPlan> steps_;
  std::vector<size_t> places_;  // of each slot's buffer
  size_t buffer_bytes_ = 0;
  int64_t tile_ = kTile;
  mutable std::mutex mutex_;
  mutable std::vector<std::unique_ptr<Frame>> frames_;
};

}  // namespace acl_sim::fused
