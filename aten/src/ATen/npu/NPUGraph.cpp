// See NPUGraph.h.

#include <ATen/npu/NPUGraph.h>

#include <ATen/Utils.h>
#include <ATen/npu/NPUGraphTasks.h>
#include <ATen/ops/empty.h>
#include <acl_loader.h>
#include <c10/npu/MemPool.h>
#include <c10/npu/NPUCachingAllocator.h>
#include <c10/npu/NPUException.h>
#include <c10/npu/NPUGraphsC10Utils.h>
#include <c10/npu/NPUGuard.h>
#include <c10/npu/NPUTaskQueue.h>

#include <array>
#include <cstdio>
#include <mutex>
#include <utility>

namespace at::npu {

namespace acl = c10::npu::acl;
namespace allocator = c10::npu::NPUCachingAllocator;

namespace {

aclmdlRICaptureMode acl_mode(GraphCaptureMode mode) {
  switch (mode) {
    case GraphCaptureMode::ThreadLocal:
      return ACL_MODEL_RI_CAPTURE_MODE_THREAD_LOCAL;
    case GraphCaptureMode::Relaxed:
      return ACL_MODEL_RI_CAPTURE_MODE_RELAXED;
    default:
      return ACL_MODEL_RI_CAPTURE_MODE_GLOBAL;
  }
}

Tensor device_words(const std::array<int64_t, 4>& values, const c10::npu::NPUStream& stream) {
  Tensor words = at::empty({4}, TensorOptions().dtype(kLong).device(stream.device()));
  c10::npu::memcpy_async(words.mutable_data_ptr(), values.data(), sizeof values, ACL_MEMCPY_HOST_TO_DEVICE, stream);
  return words;
}

}  // namespace

MempoolId_t graph_pool_handle() { return c10::npu::MemPool::graph_pool_handle(/*is_user_created=*/true); }

NPUGraph::~NPUGraph() {
  // After a shutdown or in a forked child ACL's side of the graph is gone, or not ours.
  if (c10::npu::is_shut_down() || c10::npu::is_in_bad_fork()) return;
  try {
    if (capturing_) {
      TORCH_WARN("An NPUGraph is destroyed while it is captured; the capture is given up");
      capture_end();
    }
    reset();
  } catch (const std::exception& error) {
    TORCH_WARN("An NPUGraph could not be freed: ", error.what());
  }
}

void NPUGraph::register_generator_state(const Generator& generator) {
  TORCH_CHECK(!capturing_, "register_generator_state belongs before the capture");
  auto* impl = check_generator<NPUGeneratorImpl>(generator);
  for (const auto& known : registered_) {
    if (known == impl->state()) return;
  }
  registered_.push_back(impl->state());
}

// Before the capture: what it allocates and copies is no part of the graph.
void NPUGraph::begin_draws() {
  register_generator_state(detail::getDefaultNPUGenerator(device_));
  for (const auto& generator : registered_) {
    auto draws = std::make_shared<CapturedDraws>();
    draws->start = device_words({0, 0, 0, 0}, *stream_);
    draws->step = device_words({0, 1, 0, 1}, *stream_);
    draws_.push_back({generator, std::move(draws)});
  }
}

void NPUGraph::end_draws() {
  for (const auto& [generator, draws] : draws_) generator->captures.erase(graph_);
  // Who has drawn nothing needs no filling.
  std::erase_if(draws_, [](const Draws& d) { return d.draws->drawn == 0; });
}

void NPUGraph::fill_draws(const c10::npu::NPUStream& stream) {
  for (const auto& [generator, draws] : draws_) {
    const auto seed = static_cast<int64_t>(generator->seed), offset = static_cast<int64_t>(generator->philox_offset);
    const std::array<int64_t, 4> start = {seed, offset, 0, offset};
    c10::npu::memcpy_async(draws->start.mutable_data_ptr(), start.data(), sizeof start, ACL_MEMCPY_HOST_TO_DEVICE,
                           stream);
    allocator::recordStream(draws->start.storage().data_ptr(), stream);
    generator->philox_offset += draws->drawn;
  }
}

void NPUGraph::leave_pool() {
  if (pool_ != allocator::kPublicPool) {
    allocator::get()->releasePool(device_, std::exchange(pool_, allocator::kPublicPool));
  }
}

void NPUGraph::require_graph(const char* what) const {
  TORCH_CHECK(graph_ != nullptr && !capturing_, "Called NPUGraph::", what, " without a preceding successful capture.");
}

void NPUGraph::capture_begin(MempoolId_t pool, GraphCaptureMode mode) {
  TORCH_CHECK(graph_ == nullptr && !capturing_,
              "This NPUGraph instance already owns a captured graph. To capture a new graph, create a new instance, or "
              "call reset() first.");
  TORCH_CHECK(c10::npu::can_capture(),
              "This CANN cannot capture work into graphs: it lacks aclmdlRICaptureBegin, which CANN 9.0 has. Run the "
              "work without a graph.");
  const auto stream = c10::npu::getCurrentNPUStream();
  TORCH_CHECK(stream != c10::npu::getDefaultNPUStream(stream.device_index()),
              "NPU graphs must be captured on a non-default stream. (However, after capture, it's ok to replay them on "
              "the default stream.)");
  TORCH_CHECK(c10::npu::capture_status(stream) == c10::npu::CaptureStatus::None,
              "The current stream is being captured into another graph already.");
  c10::npu::activate_device();
  device_ = stream.device_index();
  stream_ = stream;
  draws_.clear();
  begin_draws();
  // What was launched before must not come into the graph.
  c10::npu::drain_task_queue(device_);

  c10::npu::detail::captures_under_way.fetch_add(1);
  aclmdlRI graph = nullptr;
  try {
    NPU_CHECK(acl::aclmdlRICaptureBegin(stream.stream(), acl_mode(mode)));
    c10::npu::capture_status(stream, &graph);
    const MempoolId_t own = pool == allocator::kPublicPool ? c10::npu::MemPool::graph_pool_handle(false) : pool;
    allocator::get()->beginAllocateToPool(device_, own, [graph](aclrtStream asked) {
      if (asked == nullptr) return false;
      aclmdlRICaptureStatus status = ACL_MODEL_RI_CAPTURE_STATUS_NONE;
      aclmdlRI found = nullptr;
      return acl::aclmdlRICaptureGetInfo(asked, &status, &found) == ACL_SUCCESS &&
             status != ACL_MODEL_RI_CAPTURE_STATUS_NONE && found == graph;
    });
    pool_ = own;
  } catch (...) {
    aclmdlRI unused = nullptr;
    if (graph != nullptr && acl::aclmdlRICaptureEnd(stream.stream(), &unused) == ACL_SUCCESS)
      acl::aclmdlRIDestroy(unused);
    c10::npu::detail::captures_under_way.fetch_sub(1);
    draws_.clear();
    throw;
  }
  graph_ = graph;
  for (const auto& [generator, draws] : draws_) generator->captures.emplace(graph, draws);
  capturing_ = true;
}

void NPUGraph::capture_end() {
  TORCH_CHECK(capturing_, "Called NPUGraph::capture_end without a capture_begin before it.");
  TORCH_CHECK(c10::npu::getCurrentNPUStream(device_) == *stream_, "Capture must end on the same stream it began on.");
  const c10::npu::NPUGuard guard(device_);
  c10::npu::activate_device();
  // What was launched meanwhile belongs to the graph; an error of it is raised once the capture is over.
  c10::npu::drain_task_queue(device_, /*raise=*/false);
  const aclmdlRI begun = graph_;
  aclmdlRI captured = nullptr;
  const aclError code = acl::aclmdlRICaptureEnd(stream_->stream(), &captured);
  const std::string reason = code == ACL_SUCCESS ? "" : c10::npu::take_recent_error();
  end_draws();
  capturing_ = false;
  graph_ = captured;
  if (captured == nullptr) forget_task_groups(begun);
  c10::npu::detail::captures_under_way.fetch_sub(1);
  allocator::get()->endAllocateToPool(device_, pool_);
  try {
    TORCH_CHECK(code == ACL_SUCCESS, "The capture of an NPUGraph failed: NPU error, NPU error code is ", code, " (",
                c10::npu::error_name(code), ")", reason.empty() ? "" : "\nReason: ", reason);
    c10::npu::drain_task_queue(device_);
  } catch (...) {
    reset();
    throw;
  }
  instantiated_ = !keep_graph_;
}

void NPUGraph::instantiate() {
  require_graph("instantiate");
  TORCH_CHECK(keep_graph_ || !instantiated_,
              "instantiate() is for graphs made with keep_graph=True; others are ready after the capture.");
  instantiated_ = true;  // ACL has one object for both
}

void NPUGraph::replay() {
  require_graph("replay");
  instantiated_ = true;
  const c10::npu::NPUGuard guard(device_);
  const auto stream = c10::npu::getCurrentNPUStream(device_);
  if (!draws_.empty()) fill_draws(stream);
  c10::npu::launch(stream, "aclmdlRIExecuteAsync",
                   [graph = graph_](aclrtStream handle) { return acl::aclmdlRIExecuteAsync(graph, handle); });
}

void NPUGraph::reset() {
  TORCH_CHECK(!capturing_, "Called NPUGraph::reset while the graph is being captured.");
  if (graph_ != nullptr) {
    const c10::npu::NPUGuard guard(device_);
    c10::npu::activate_device();
    c10::npu::drain_task_queue(device_, /*raise=*/false);
    forget_task_groups(graph_);
    NPU_CHECK_WARN(acl::aclmdlRIDestroy(std::exchange(graph_, nullptr)));
  }
  instantiated_ = false;
  draws_.clear();
  leave_pool();
}

MempoolId_t NPUGraph::pool() const {
  TORCH_CHECK(pool_ != allocator::kPublicPool, "Called NPUGraph::pool() without a preceding successful capture.");
  return pool_;
}

void NPUGraph::debug_dump(const std::string& path) {
  require_graph("debug_dump");
  TORCH_CHECK(acl::has_function("aclmdlRIDebugJsonPrint"),
              "This CANN cannot write a graph: it lacks aclmdlRIDebugJsonPrint.");
  // On a card the file has to be there already.
  std::FILE* file = std::fopen(path.c_str(), "w");
  TORCH_CHECK(file != nullptr, "NPUGraph::debug_dump cannot write ", path);
  std::fclose(file);
  NPU_CHECK(acl::aclmdlRIDebugJsonPrint(graph_, path.c_str(), 0));
}

}  // namespace at::npu

namespace at {

// For torch.accelerator.Graph; the key is the device type's name.
REGISTER_GRAPH_IMPL(NPU, npu::NPUGraph)

}  // namespace at
