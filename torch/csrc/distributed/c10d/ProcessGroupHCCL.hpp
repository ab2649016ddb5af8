#pragma once
// The back end "hccl" of torch.distributed: collectives of npu tensors.
//
// Note [Order of collectives]
// Each group has a communicator and a stream of its own. An asynchronous collective is ordered behind what the current
// stream has done so far (an event), runs on the group's stream, and records an event. Work::wait lets the stream that
// is current then wait for that event; the host goes on. The tensors' memory is marked as used by the group's stream,
// so that it is not handed out again before the collective has run. What is not asynchronous (async_op=False) runs on
// the current stream itself, as any operator: no other stream has to be woken and waited for. Either begins behind the
// collective before it, whose stream may be another. All of it is put on streams in the order of the calls.
//
// Note [Failed groups]
// A watchdog thread looks after the collectives under way. When one fails, or is not done within its time-out, it ends
// the group: communicators are aborted, so that streams go on, and the reason is raised by everything that asks: a wait
// for the device or its streams, Work::wait, and each later call of the group.
//
// Note [Forked groups]
// A process that was forked from a rank has the group's objects, but neither its watchdog nor its device, and locks may
// be held there by threads that it does not have. So it is refused every operation, and the group's end does nothing in
// it: what would wait for the watchdog, or end the parent's communicators, is left as it is.

#include <c10/npu/NPUEvent.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/HCCLChannel.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <torch/csrc/distributed/c10d/Types.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <atomic>
#include <condition_variable>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <variant>
#include <vector>

namespace c10d {

constexpr const char* HCCL_BACKEND_NAME = "hccl";

class TORCH_API ProcessGroupHCCL : public Backend {
 public:
  using Clock = std::chrono::steady_clock;
  using Tensors = std::vector<at::Tensor>;

  struct Options : Backend::Options {
    explicit Options(bool is_high_priority_stream = false)
        : Backend::Options(HCCL_BACKEND_NAME, kBackendDefaultTimeout),
          is_high_priority_stream(is_high_priority_stream) {}
    bool is_high_priority_stream;
    // What scripts tell HCCL of a communicator, such as sizes of its buffers: kept, of no effect here.
    std::map<std::string, std::variant<bool, int64_t, std::string>> hccl_config;
  };

  // One operation under way, as the watchdog knows it; it holds no tensors.
  struct State {
    std::string text;  // what it is, for errors
    OpType type = OpType::UNKNOWN;
    uint64_t sequence = 0;
    c10::DeviceIndex device = 0;
    std::chrono::milliseconds timeout{};
    Clock::time_point started = Clock::now();
    c10::npu::NPUEvent begin{true}, end{true};
    std::optional<c10::npu::NPUStream> stream;  // on which it runs
    std::vector<std::shared_ptr<HCCLChannel>> channels;
    std::optional<size_t> record;  // in the flight recorder

    bool done() const;
    // "" while nothing has failed.
    std::string failure() const;
    void fail(const std::string& reason);

   private:
    mutable std::mutex mutex_;
    std::string failure_;
  };

  class TORCH_API WorkHCCL : public Work {
   public:
    WorkHCCL(int rank, OpType type, const char* title, const std::optional<Tensors>& inputs,
             std::shared_ptr<State> state);

    bool isCompleted() override;
    bool isSuccess() const override;
    std::exception_ptr exception() const override;
    // The current stream waits for the collective; the host does not, but for a barrier and with a time-out.
    bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
    void synchronize() override;
    void abort() override;
    Tensors result() override { return outputs_; }
    c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return future_; }
    float getDuration() const override;
    uint64_t getSequencenumber() const override { return state_->sequence; }

   private:
    friend class ProcessGroupHCCL;
    void raise_failure() const;

    std::shared_ptr<State> state_;
    bool host_waits_ = false;
    Tensors outputs_;
    c10::intrusive_ptr<c10::ivalue::Future> future_;
  };

  ProcessGroupHCCL(const c10::intrusive_ptr<Store>& store, int rank, int size,
                   c10::intrusive_ptr<Options> options = c10::make_intrusive<Options>());
  ~ProcessGroupHCCL() override;

  const std::string getBackendName() const override { return HCCL_BACKEND_NAME; }
  c10::intrusive_ptr<Backend::Options> getBackendOptions() override {
    return c10::static_intrusive_pointer_cast<Backend::Options>(options_);
  }
  bool supportsSplitting() const override { return true; }
  bool supportsCoalescing() const override { return true; }
  void setTimeout(std::chrono::milliseconds timeout) override { options_->timeout = timeout; }
  void startCoalescing() override;
  c10::intrusive_ptr<Work> endCoalescing() override;

  c10::intrusive_ptr<Work> broadcast(Tensors& tensors, const BroadcastOptions& options) override;
  c10::intrusive_ptr<Work> allreduce(Tensors& tensors, const AllreduceOptions& options) override;
  c10::intrusive_ptr<Work> allreduce_coalesced(Tensors& tensors, const AllreduceCoalescedOptions& options) override;
  c10::intrusive_ptr<Work> reduce(Tensors& tensors, const ReduceOptions& options) override;
  c10::intrusive_ptr<Work> allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                                     const AllgatherOptions& options) override;
  c10::intrusive_ptr<Work> _allgather_base(at::Tensor& output, at::Tensor& input,
                                           const AllgatherOptions& options) override;
  c10::intrusive_ptr<Work> allgather_coalesced(std::vector<Tensors>& outputs, Tensors& inputs,
                                               const AllgatherOptions& options) override;
  c10::intrusive_ptr<Work> allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                           const AllgatherOptions& options) override;
  c10::intrusive_ptr<Work> gather(std::vector<Tensors>& outputs, Tensors& inputs,
                                  const GatherOptions& options) override;
  c10::intrusive_ptr<Work> scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                   const ScatterOptions& options) override;
  c10::intrusive_ptr<Work> reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                          const ReduceScatterOptions& options) override;
  c10::intrusive_ptr<Work> _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                                const ReduceScatterOptions& options) override;
  c10::intrusive_ptr<Work> reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                           const ReduceScatterOptions& options) override;
  c10::intrusive_ptr<Work> alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_sizes,
                                         std::vector<int64_t>& input_sizes, const AllToAllOptions& options) override;
  c10::intrusive_ptr<Work> alltoall(Tensors& outputs, Tensors& inputs, const AllToAllOptions& options) override;
  c10::intrusive_ptr<Work> send(Tensors& tensors, int destination, int tag) override;
  c10::intrusive_ptr<Work> recv(Tensors& tensors, int source, int tag) override;
  c10::intrusive_ptr<Work> recvAnysource(Tensors& tensors, int tag) override;
  c10::intrusive_ptr<Work> barrier(const BarrierOptions& options) override;

  void setSequenceNumberForGroup() override {}  // begins at 0 on every rank
  uint64_t getSequenceNumberForGroup() override { return sequence_; }
  c10::intrusive_ptr<Backend> split(const c10::intrusive_ptr<Store>& store, const std::vector<int>& ranks,
                                    const c10::intrusive_ptr<Backend::Options>& options) override;
  void eagerConnectSingleDevice(at::Device device) override;
  void abort() override;
  // Waits for the group's work and closes its communicators.
  void shutdown() override;
  ErrorType getError() override;
  void waitForPendingWorks() override;

  // The communicator's name, as fused operators take it. Makes the communicator if there is none yet.
  std::string commName();
  // Whether the group's communicator is there already and has this name.
  bool hasComm(const std::string& name);

 private:
  // What a call of the group asks for; see run().
  struct Launch {
    Launch(OpType type, const char* title, Tensors inputs, Tensors outputs)
        : type(type), title(title), inputs(std::move(inputs)), outputs(std::move(outputs)) {}
    // As the options of a collective ask for it.
    template <class CollectiveOptions>
    Launch(OpType type, const char* title, Tensors inputs, Tensors outputs, const CollectiveOptions& options)
        : Launch(type, title, std::move(inputs), std::move(outputs)) {
      timeout = options.timeout;
      async = options.asyncOp;
    }

    OpType type;
    const char* title;  // for profiles: "hccl:all_reduce"
    Tensors inputs, outputs;
    std::chrono::milliseconds timeout = kUnsetTimeout;
    bool async = true;  // false: on the current stream
    // Puts it on its stream, which is the current one meanwhile.
    std::function<void(HCCLChannel&)> body;
    std::string more;                      // further words for errors
    std::shared_ptr<HCCLChannel> channel;  // the group's own, unless given
    bool message = false;                  // between two ranks: counted apart
  };

  std::shared_ptr<HCCLChannel> channel_of(c10::Device device);
  std::shared_ptr<HCCLChannel> pair_channel(c10::Device device, int peer, bool sends);
  std::shared_ptr<HCCLChannel> make_channel(const std::string& key, int size, int rank, c10::Device device);
  c10::intrusive_ptr<WorkHCCL> run(Launch launch);
  void watch(std::shared_ptr<State> state);
  void watchdog();
  // Looks after all that is under way; takes the lock of the states, and has it again at the end.
  void look_after_all(std::unique_lock<std::mutex>& lock);
  void look_after(std::list<std::shared_ptr<State>>& states);
  void retire(State& state);
  void fail_group(const std::string& reason, bool timed_out);
  void check_failed() const;
  // Whether this process was forked after the group was made.
  bool is_forked() const;
  std::string describe(const Launch& launch, uint64_t sequence) const;
  c10::intrusive_ptr<Work> point_to_point(Tensors& tensors, int peer, int tag, bool sends);
  std::string group_text() const;

  const c10::intrusive_ptr<Store> store_;
  const c10::intrusive_ptr<Options> options_;
  const bool blocking_wait_;
  const size_t id_;    // among the process's groups, for the flight recorder
  const size_t born_;  // how often the process had been forked
  std::atomic<uint64_t> sequence_{0}, messages_{0};

  std::mutex channels_mutex_;
  std::map<std::string, std::shared_ptr<HCCLChannel>> channels_;
  std::optional<c10::Device> device_;
  std::shared_ptr<State> last_;  // the last that was put on a stream, but for messages

  // Between startCoalescing and endCoalescing; of the thread that calls them.
  struct Batch {
    bool active = false;
    std::vector<std::shared_ptr<State>> states;
    std::vector<HcclSendRecvItem> items;
    Tensors sent, received, outputs;
    std::optional<c10::Device> device;
  };
  Batch batch_;

  std::mutex states_mutex_;
  std::unique_ptr<std::condition_variable> states_changed_ = std::make_unique<std::condition_variable>();
  std::list<std::shared_ptr<State>> states_;
  bool stopping_ = false;
  bool watchdog_sleeps_ = false;  // until there is something to look after
  std::unique_ptr<std::thread> watchdog_;

  mutable std::mutex failure_mutex_;
  std::string failure_;
  std::atomic<bool> failed_{false};
  bool timed_out_ = false;
};

}  // namespace c10d
