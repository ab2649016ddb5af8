#pragma once
// torch.npu's graph mode: operators are gathered and sent as a smaller graph.
//
// Note [Lazy graph]
// While graph mode is on, commands of all threads are gathered in the order of the calls (Note [Gathered commands]):
// until a value is needed, something else goes to a stream, launch_graph() is called, another stream gets an operator,
// or kMostCommands are there. Then
//   - what brings values where they are already goes, or becomes a copy (Note [Redundant commands]);
//   - operands of element-wise operators that hold one value everywhere, because a Fill has made them, become that
//     value;
//   - the list is looked at backwards, piece of memory by piece, for results that nobody needs: overwritten before they
//     are read, or in memory that is free by then. Operators of which no result is needed are dropped;
//   - element-wise operators that follow one another are fused (Note [Fusing commands]). An operator between them waits
//     until after them, if it only writes its outputs, and neither they nor it touch what the other writes.
// All others go as they came; but for what waits the order stays, so what is in place or shares memory needs no rules
// of its own.

#include <ATen/native/npu/frame/command/Gather.h>
#include <ATen/native/npu/frame/graph/CommandInfo.h>
#include <ATen/native/npu/frame/graph/Fusion.h>
#include <ATen/native/npu/frame/graph/Node.h>

#include <c10/util/flat_hash_map.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace at::native::npu::graph {

struct LazyCounts {
  uint64_t graphs = 0;     // that were sent
  uint64_t gathered = 0;   // commands
  uint64_t sent = 0;       // launches that they became
  uint64_t fused = 0;      // of the commands: steps of fused ones
  uint64_t dropped = 0;    // of the commands: results that nobody needed
  uint64_t redundant = 0;  // of the commands: brought values where they were already
};

class LazyGraph final : public Gatherer {
 public:
  static LazyGraph& instance();

  void enable();
  // Sends what is there first.
  void disable();
  bool is_enabled() const { return enabled_.load(); }

  void take(std::unique_ptr<GatheredCommand> command) override;
  void send() override;
  LazyCounts counts();

 private:
  // The values of Fills, which live as long as the nodes.
  using Values = std::deque<std::array<std::byte, 16>>;

  void send_all();  // with the mutex held
  static void fold_constants(std::vector<Node>& nodes, Values& values);
  void find_needed(std::vector<Node>& nodes);
  void launch(std::vector<Node>& nodes, std::string* text);

  static constexpr size_t kMostCommands = 64, kMostWaiting = 8;
  std::atomic<bool> enabled_{false};
  std::mutex mutex_;
  std::vector<std::unique_ptr<GatheredCommand>> commands_;
  CommandInfos infos_;
  LazyCounts counts_;
};

}  // namespace at::native::npu::graph
