#pragma once
// Graphs of captured work (torch.npu.NPUGraph). Mirrors ATen/cuda/CUDAGraph.h.
//
// Note [Graphs]
// A capture is ACL's (aclmdlRICapture*): between begin and end the current stream keeps what is put on it instead of
// running it, on a card as on the simulator. So operators go their usual way, down to the launcher, and the host has to
// see to three things. Memory: what the captured stream allocates comes from a private pool (Note [Private pools]),
// which lives as long as the graph, since a replay reads and writes the same addresses. Random numbers: Note [Random
// numbers in a graph]. Waits and questions: Note [Captures under way]. A replay is one launch, through the task queue
// like any other.

#include <ATen/core/Generator.h>
#include <ATen/core/GraphImplInterface.h>
#include <ATen/npu/NPUGeneratorImpl.h>
#include <ATen/npu/NPUMacros.h>
#include <acl/acl.h>
#include <c10/npu/NPUStream.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace at::npu {

// An id that no other pool has, for the graphs that are to share it.
TORCH_NPU_API MempoolId_t graph_pool_handle();

class TORCH_NPU_API NPUGraph final : public GraphImplInterface {
 public:
  explicit NPUGraph(bool keep_graph = false) : keep_graph_(keep_graph) {}
  explicit NPUGraph(const GraphImplArgs& args) : NPUGraph(args.keep_graph) {}
  ~NPUGraph() override;
  NPUGraph(const NPUGraph&) = delete;
  NPUGraph& operator=(const NPUGraph&) = delete;

  // Captured work may draw from the generator. The device's default one needs no registration.
  void register_generator_state(const Generator& generator);
  // On the current stream, which must not be a default one. Pool (0, 0) stands for a pool of the graph's own.
  void capture_begin(MempoolId_t pool = {0, 0}, GraphCaptureMode mode = GraphCaptureMode::Default) override;
  // Throws if something made the capture invalid; it is over in any case, and the graph is as new.
  void capture_end() override;
  void instantiate() override;
  // On the current stream of the graph's device.
  void replay() override;
  // Frees the graph, which may then be captured anew. Replays under way go on.
  void reset() override;
  MempoolId_t pool() const override;
  void enable_debug_mode() override {}
  // Writes the tasks as JSON, for a trace viewer.
  void debug_dump(const std::string& path) override;
  bool is_capturing() const { return capturing_; }

 private:
  struct Draws {
    c10::intrusive_ptr<NPUGeneratorState> generator;
    std::shared_ptr<CapturedDraws> draws;
  };

  void begin_draws();
  void end_draws();
  void fill_draws(const c10::npu::NPUStream& stream);
  void leave_pool();
  void require_graph(const char* what) const;

  const bool keep_graph_;
  bool capturing_ = false;
  bool instantiated_ = false;
  aclmdlRI graph_ = nullptr;
  DeviceIndex device_ = -1;
  std::optional<c10::npu::NPUStream> stream_;  // of the capture
  MempoolId_t pool_{0, 0};                     // (0, 0): none is held
  std::vector<c10::intrusive_ptr<NPUGeneratorState>> registered_;
  std::vector<Draws> draws_;
};

}  // namespace at::npu
