// Groups and their operations: communicators, streams, order, failure. The collectives are in HCCLCollectives.cpp.

#include <torch/csrc/distributed/c10d/ProcessGroupHCCL.hpp>

#include <ATen/native/npu/frame/layout/Format.h>
#include <acl_loader.h>
#include <c10/npu/NPUCachingAllocator.h>
#include <c10/npu/NPUFunctions.h>
#include <c10/npu/NPUGraphsC10Utils.h>
#include <c10/npu/NPUGuard.h>
#include <c10/npu/NPUOptions.h>
#include <torch/csrc/distributed/c10d/HCCLRecorder.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include <pthread.h>

#include <algorithm>
#include <sstream>
#include <utility>

namespace c10d {

namespace {

constexpr auto kWatchInterval = std::chrono::milliseconds(100);

std::atomic<size_t> groups{0};
std::atomic<size_t> forks{0};  // between the first process and this one, since the first group

size_t count_forks() {
  static const int watched = ::pthread_atfork(nullptr, nullptr, [] { forks.fetch_add(1); });
  (void)watched;
  return forks.load();
}

bool flag(const char* name) {
  const char* value = c10::npu::environment(name);
  return value && *value && std::string(value) != "0";
}

// Raised by whoever waits for or calls a group that has failed.
[[noreturn]] void raise(const std::string& reason) { C10_THROW_ERROR(DistBackendError, reason); }

std::string names_of(const std::vector<at::Tensor>& tensors) {
  std::ostringstream out;
  constexpr size_t kMost = 4;
  for (size_t i = 0; i < std::min(tensors.size(), kMost); ++i) {
    out << (i ? ", " : "") << c10::getDtypeNames(tensors[i].scalar_type()).first << tensors[i].sizes();
  }
  if (tensors.size() > kMost) out << ", and " << tensors.size() - kMost << " more";
  return out.str();
}

}  // namespace

// ---- State and Work

bool ProcessGroupHCCL::State::done() const { return !failure().empty() || end.query(); }

std::string ProcessGroupHCCL::State::failure() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return failure_;
}

void ProcessGroupHCCL::State::fail(const std::string& reason) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (failure_.empty()) failure_ = reason;
}

ProcessGroupHCCL::WorkHCCL::WorkHCCL(int rank, OpType type, const char* title, const std::optional<Tensors>& inputs,
                                     std::shared_ptr<State> state)
    : Work(rank, type, title, inputs), state_(std::move(state)) {}

bool ProcessGroupHCCL::WorkHCCL::isCompleted() { return state_->done(); }

bool ProcessGroupHCCL::WorkHCCL::isSuccess() const { return state_->failure().empty() && state_->end.query(); }

std::exception_ptr ProcessGroupHCCL::WorkHCCL::exception() const {
  const std::string reason = state_->failure();
  if (reason.empty()) return nullptr;
  try {
    raise(reason);
  } catch (...) {
    return std::current_exception();
  }
}

void ProcessGroupHCCL::WorkHCCL::raise_failure() const {
  const std::string reason = state_->failure();
  if (!reason.empty()) raise(reason);
}

void ProcessGroupHCCL::WorkHCCL::synchronize() {
  raise_failure();
  const c10::npu::NPUStream current = c10::npu::getCurrentNPUStream(state_->device);
  if (!state_->stream || *state_->stream != current) state_->end.block(current);
}

bool ProcessGroupHCCL::WorkHCCL::wait(std::chrono::milliseconds timeout) {
  synchronize();
  const bool bounded = timeout > kNoTimeout;
  if (!host_waits_ && !bounded) return true;
  const auto end = Clock::now() + (bounded ? timeout : state_->timeout);
  while (!state_->done()) {
    if (Clock::now() >= end) {
      raise("caught collective operation timeout: " + state_->text + " was not done within " +
            std::to_string((bounded ? timeout : state_->timeout).count()) + " ms");
    }
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  raise_failure();
  for (const auto& channel : state_->channels) {
    const std::string reason = channel->failure();
    if (!reason.empty()) raise(state_->text + ": " + reason);
  }
  return true;
}

void ProcessGroupHCCL::WorkHCCL::abort() {
  for (const auto& channel : state_->channels) channel->abort(state_->text + " was aborted");
}

float ProcessGroupHCCL::WorkHCCL::getDuration() const {
  TORCH_CHECK(state_->end.query(), "getDuration: the collective is not done yet");
  return state_->begin.elapsed_time(state_->end);
}

// ---- the group

ProcessGroupHCCL::ProcessGroupHCCL(const c10::intrusive_ptr<Store>& store, int rank, int size,
                                   c10::intrusive_ptr<Options> options)
    : Backend(rank, size),
      store_(store),
      options_(std::move(options)),
      blocking_wait_(flag("TORCH_HCCL_BLOCKING_WAIT") || flag("HCCL_BLOCKING_WAIT")),
      id_(groups.fetch_add(1)),
      born_(count_forks()) {
  hccl_require();
  TORCH_CHECK_WITH(ValueError, c10::npu::device_count() > 0, "the hccl back end needs an npu, but there is none");
  TORCH_CHECK_VALUE(rank >= 0 && rank < size, "rank ", rank, " is out of range: the group has ", size, " ranks");
  hccl_recorder_name_group(id_, options_->group_name, options_->group_desc, options_->global_ranks_in_group);
  watchdog_ = std::make_unique<std::thread>([this] { watchdog(); });
  init();
}

ProcessGroupHCCL::~ProcessGroupHCCL() {
  if (is_forked()) {  // destroying these waits for threads of the parent
    static_cast<void>(watchdog_.release());
    static_cast<void>(states_changed_.release());
    static_cast<void>(new auto(std::move(channels_)));
    return;
  }
  {
    const std::lock_guard<std::mutex> lock(states_mutex_);
    stopping_ = true;
  }
  states_changed_->notify_all();
  watchdog_->join();
  // A program that ends without destroy_process_group leaves others waiting rather than itself: what runs is aborted.
  bool idle = true;
  for (const auto& state : states_) idle = idle && (c10::npu::is_shut_down() || state->done());
  for (auto& [key, channel] : channels_) {
    if (!idle)
      channel->abort("rank " + std::to_string(rank_) + " has dropped its group while operations were under way");
  }
}

std::string ProcessGroupHCCL::group_text() const {
  const std::string& name = pg_desc_.empty() || pg_desc_ == "undefined" ? pg_uid_ : pg_desc_;
  return "rank " + std::to_string(rank_) + " of " + std::to_string(size_) +
         (name.empty() ? std::string() : " of group '" + name + "'");
}

std::string ProcessGroupHCCL::describe(const Launch& launch, uint64_t sequence) const {
  std::ostringstream out;
  out << opTypeToString(launch.type) << " number " << sequence;
  const auto& tensors = launch.inputs.empty() ? launch.outputs : launch.inputs;
  if (!tensors.empty()) out << " of " << names_of(tensors);
  if (!launch.more.empty()) out << ", " << launch.more;
  return out.str();
}

std::shared_ptr<HCCLChannel> ProcessGroupHCCL::make_channel(const std::string& key, int size, int rank,
                                                            c10::Device device) {
  auto channel = std::make_shared<HCCLChannel>(store_, "hccl/" + key, size, rank, device.index(),
                                               options_->is_high_priority_stream);
  const std::lock_guard<std::mutex> lock(channels_mutex_);
  channels_[key] = channel;
  return channel;
}

std::shared_ptr<HCCLChannel> ProcessGroupHCCL::channel_of(c10::Device device) {
  {
    const std::lock_guard<std::mutex> lock(channels_mutex_);
    if (device_.has_value()) {
      TORCH_CHECK_VALUE(*device_ == device, group_text(), " works on ", *device_, ", but got a tensor on ", device,
                        "; a rank uses one device: call torch.npu.set_device(", static_cast<int>(device_->index()),
                        ") before tensors are made on 'npu'");
    }
    const auto found = channels_.find("all");
    if (found != channels_.end()) return found->second;
    device_ = device;
  }
  return make_channel("all", size_, rank_, device);
}

// Both directions get a communicator and a stream each, so that two ranks may send to each other before either
// receives.
std::shared_ptr<HCCLChannel> ProcessGroupHCCL::pair_channel(c10::Device device, int peer, bool sends) {
  const auto key = [](int from, int to) { return std::to_string(from) + ">" + std::to_string(to); };
  const std::string wanted = sends ? key(rank_, peer) : key(peer, rank_);
  {
    const std::lock_guard<std::mutex> lock(channels_mutex_);
    const auto found = channels_.find(wanted);
    if (found != channels_.end()) return found->second;
    if (!device_) device_ = device;
  }
  const int low = std::min(rank_, peer), high = std::max(rank_, peer);
  make_channel(key(low, high), 2, rank_ == high, device);
  make_channel(key(high, low), 2, rank_ == high, device);
  const std::lock_guard<std::mutex> lock(channels_mutex_);
  return channels_.at(wanted);
}

void ProcessGroupHCCL::eagerConnectSingleDevice(at::Device device) { channel_of(device); }

std::string ProcessGroupHCCL::commName() {
  const c10::Device device =
      device_.value_or(bound_device_id_.value_or(c10::Device(c10::kPrivateUse1, c10::npu::current_device())));
  return channel_of(device)->name();
}

bool ProcessGroupHCCL::hasComm(const std::string& name) {
  const std::lock_guard<std::mutex> lock(channels_mutex_);
  const auto found = channels_.find("all");
  return found != channels_.end() && found->second->name() == name;
}

c10::intrusive_ptr<ProcessGroupHCCL::WorkHCCL> ProcessGroupHCCL::run(Launch launch) {
  check_failed();
  const at::Tensor& first = launch.inputs.empty() ? launch.outputs.at(0) : launch.inputs[0];
  const c10::Device device = first.device();
  for (const Tensors* tensors : {&launch.inputs, &launch.outputs}) {
    for (const at::Tensor& t : *tensors) {
      TORCH_CHECK_VALUE(t.device().is_privateuseone(), "hccl works on npu tensors, but got one on ", t.device(),
                        "; move it with .npu(), or use the gloo back end for CPU tensors");
      TORCH_CHECK_VALUE(t.device() == device, "all tensors of a call must be on one device, but got ", device, " and ",
                        t.device());
      TORCH_CHECK_VALUE(!t.is_sparse() && t.layout() == at::kStrided, "hccl has no collectives of sparse tensors");
    }
  }
  // The ranks of a group agree on the order of its collectives at the call, which a replay does not make.
  c10::npu::assert_not_capturing(c10::npu::getCurrentNPUStream(device.index()), "A collective of hccl");
  auto channel = launch.channel ? launch.channel : channel_of(device);
  const c10::npu::NPUGuard guard(device);
  auto state = std::make_shared<State>();
  state->type = launch.type;
  state->sequence = launch.message ? ++messages_ : ++sequence_;
  state->text = describe(launch, state->sequence);
  state->device = device.index();
  state->timeout = launch.timeout == kUnsetTimeout ? options_->timeout : launch.timeout;
  state->channels.push_back(channel);
  auto work = c10::make_intrusive<WorkHCCL>(rank_, launch.type, launch.title, launch.inputs, state);
  work->host_waits_ = blocking_wait_;
  work->outputs_ = launch.outputs;

  const c10::npu::NPUStream current = c10::npu::getCurrentNPUStream(device.index());
  const bool async = launch.async || batch_.active;
  const c10::npu::NPUStream stream = async ? channel->stream() : current;
  if (async) {
    c10::npu::NPUEvent ready;
    ready.record(current);
    ready.block(stream);
  }
  state->stream = stream;
  if (!launch.channel) {
    const std::shared_ptr<State> before = std::exchange(last_, state);
    if (before && *before->stream != stream) before->end.block(stream);
  }
  {
    const c10::npu::NPUStreamGuard on_stream(stream.unwrap());
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    state->begin.record(stream);
    state->record = hccl_recorder_add({id_, options_->group_name, options_->group_desc, launch.title, launch.message,
                                       state->sequence, state->timeout},
                                      launch.inputs, launch.outputs, &state->begin, &state->end);
    channel->describe(state->text);
    launch.body(*channel);
    if (async) {
      for (const Tensors* tensors : {&launch.inputs, &launch.outputs}) {
        for (const at::Tensor& t : *tensors)
          c10::npu::NPUCachingAllocator::recordStream(at::native::npu::allocation_of(t), stream);
      }
    }
    state->end.record(stream);
    work->future_ = c10::make_intrusive<at::ivalue::Future>(c10::ListType::create(c10::TensorType::get()),
                                                            std::vector<c10::Device>{device});
    work->future_->markCompleted(at::IValue(launch.outputs));
  }
  if (work->recordFunctionEndCallback_) work->recordFunctionEndCallback_();
  if (batch_.active) batch_.states.push_back(state);
  watch(std::move(state));
  return work;
}

void ProcessGroupHCCL::startCoalescing() {
  TORCH_CHECK(!batch_.active, "startCoalescing: the group is coalescing already");
  batch_ = Batch();
  batch_.active = true;
}

c10::intrusive_ptr<Work> ProcessGroupHCCL::endCoalescing() {
  TORCH_CHECK(batch_.active, "endCoalescing without startCoalescing");
  Batch batch = std::exchange(batch_, Batch());
  if (!batch.items.empty()) {
    Launch launch{OpType::COALESCED, "hccl:batch_isend_irecv", batch.sent, batch.received};
    launch.message = true;
    launch.body = [items = batch.items](HCCLChannel& channel) mutable {
      channel.call("HcclBatchSendRecv", [items](HcclComm comm, aclrtStream stream) mutable {
        return c10::npu::acl::HcclBatchSendRecv(items.data(), static_cast<uint32_t>(items.size()), comm, stream);
      });
    };
    return run(std::move(launch));
  }
  // Nothing was called in between, or collectives, which ran as they came: the last one's end is that of all.
  if (batch.states.empty()) return nullptr;
  auto work = c10::make_intrusive<WorkHCCL>(rank_, OpType::COALESCED, nullptr, std::nullopt, batch.states.back());
  work->host_waits_ = blocking_wait_;
  work->outputs_ = batch.outputs;
  const c10::npu::NPUStreamGuard on_stream(batch.states.back()->channels[0]->stream().unwrap());
  work->future_ = c10::make_intrusive<at::ivalue::Future>(
      c10::ListType::create(c10::TensorType::get()),
      std::vector<c10::Device>{c10::Device(c10::kPrivateUse1, batch.states.back()->device)});
  work->future_->markCompleted(at::IValue(batch.outputs));
  return work;
}

c10::intrusive_ptr<Backend> ProcessGroupHCCL::split(const c10::intrusive_ptr<Store>& store,
                                                    const std::vector<int>& ranks,
                                                    const c10::intrusive_ptr<Backend::Options>& options) {
  const auto found = std::find(ranks.begin(), ranks.end(), rank_);
  if (found == ranks.end()) return nullptr;
  auto own = c10::dynamic_intrusive_pointer_cast<Options>(options);
  TORCH_CHECK(own, "split: expected options of ProcessGroupHCCL");
  own->global_ranks_in_group.clear();
  for (const int rank : ranks) {
    const auto& global = options_->global_ranks_in_group;
    own->global_ranks_in_group.push_back(global.empty() ? static_cast<uint64_t>(rank)
                                                        : global[static_cast<size_t>(rank)]);
  }
  auto group = c10::make_intrusive<ProcessGroupHCCL>(store, static_cast<int>(found - ranks.begin()),
                                                     static_cast<int>(ranks.size()), own);
  group->setBoundDeviceId(bound_device_id_);
  return group;
}

// ---- failure

bool ProcessGroupHCCL::is_forked() const { return born_ != forks.load(std::memory_order_relaxed); }

void ProcessGroupHCCL::check_failed() const {
  if (C10_UNLIKELY(is_forked())) {
    raise(group_text() +
          ": this process was forked after the group had been made, and has no part in it; start workers with the "
          "spawn method, or fork before init_process_group");
  }
  if (C10_LIKELY(!failed_.load(std::memory_order_acquire))) return;
  const std::lock_guard<std::mutex> lock(failure_mutex_);
  raise("The group has failed, destroy it with torch.distributed.destroy_process_group(): " + failure_);
}

void ProcessGroupHCCL::watch(std::shared_ptr<State> state) {
  bool asleep = false;
  {
    const std::lock_guard<std::mutex> lock(states_mutex_);
    states_.push_back(std::move(state));
    asleep = watchdog_sleeps_;
  }
  // Between its looks it finds what has come by itself: waking it for each operation would cost more than a small one.
  if (asleep) states_changed_->notify_all();
}

void ProcessGroupHCCL::watchdog() {
  std::unique_lock<std::mutex> lock(states_mutex_);
  for (;;) {
    watchdog_sleeps_ = true;
    states_changed_->wait(lock, [this] { return stopping_ || !states_.empty(); });
    watchdog_sleeps_ = false;
    states_changed_->wait_for(lock, kWatchInterval, [this] { return stopping_; });
    // A last look: what failed just before the group goes is written down, too.
    const bool last = stopping_;
    if (last && states_.empty()) return;
    look_after_all(lock);
    if (last) return;
  }
}

void ProcessGroupHCCL::look_after_all(std::unique_lock<std::mutex>& lock) {
  auto states = std::exchange(states_, {});
  lock.unlock();
  try {
    look_after(states);
  } catch (const std::exception& error) {
    // The stream's own error: whoever waits for the stream gets it, too.
    fail_group(group_text() + ": " + error.what(), false);
    states.clear();
  }
  lock.lock();
  states_.splice(states_.begin(), states);
  states_changed_->notify_all();
}

void ProcessGroupHCCL::look_after(std::list<std::shared_ptr<State>>& states) {
  if (c10::npu::is_shut_down()) {
    states.clear();
    return;
  }
  const auto now = Clock::now();
  for (auto it = states.begin(); it != states.end();) {
    State& state = **it;
    std::string reason;
    for (const auto& channel : state.channels) {
      if (reason.empty()) reason = channel->failure();
    }
    if (!reason.empty()) {
      state.fail(group_text() + ": " + state.text + ": " + reason);
      fail_group(group_text() + ": " + state.text + ": " + reason, false);
    } else if (state.end.query()) {
      retire(state);
      it = states.erase(it);
      continue;
    } else if (now - state.started > state.timeout) {
      std::string text = group_text() + ": watchdog caught collective operation timeout: " + state.text +
                         " was not done within its time-out of " + std::to_string(state.timeout.count()) + " ms";
      const std::string ranks = state.channels[0]->state();
      if (!ranks.empty()) text += ". What the ranks of this host did last:\n" + ranks;
      state.fail(text);
      fail_group(text, true);
    }
    ++it;
  }
  if (!failed_.load()) return;
  const std::lock_guard<std::mutex> lock(failure_mutex_);
  for (const auto& state : states) {
    state->fail(failure_);
    if (state->record) hccl_recorder_done(*state->record, false);
  }
  states.clear();
}

void ProcessGroupHCCL::retire(State& state) {
  if (state.record) hccl_recorder_done(*state.record, true);
}

void ProcessGroupHCCL::fail_group(const std::string& reason, bool timed_out) {
  {
    const std::lock_guard<std::mutex> lock(failure_mutex_);
    if (failed_.load()) return;
    failure_ = reason;
    timed_out_ = timed_out;
    failed_.store(true, std::memory_order_release);
  }
  LOG(ERROR) << "hccl: " << reason;
  std::map<std::string, std::shared_ptr<HCCLChannel>> channels;
  {
    const std::lock_guard<std::mutex> lock(channels_mutex_);
    channels = channels_;
  }
  for (const auto& [key, channel] : channels) channel->abort(reason);
  hccl_recorder_dump(options_->global_ranks_in_group.empty()
                         ? rank_
                         : static_cast<int>(options_->global_ranks_in_group[static_cast<size_t>(rank_)]));
}

ErrorType ProcessGroupHCCL::getError() {
  const std::lock_guard<std::mutex> lock(failure_mutex_);
  return !failed_.load() ? ErrorType::SUCCESS : (timed_out_ ? ErrorType::TIMEOUT : ErrorType::COMM_ERROR);
}

void ProcessGroupHCCL::abort() {
  if (is_forked()) return;
  std::map<std::string, std::shared_ptr<HCCLChannel>> channels;
  {
    const std::lock_guard<std::mutex> lock(channels_mutex_);
    channels = channels_;
  }
  {
    const std::lock_guard<std::mutex> lock(failure_mutex_);
    if (!failed_.load()) failure_ = group_text() + ": the group was aborted";
    failed_.store(true, std::memory_order_release);
  }
  for (const auto& [key, channel] : channels) channel->abort(group_text() + " has aborted its group");
}

void ProcessGroupHCCL::shutdown() {
  if (is_forked()) return;
  {
    // What has failed since the watchdog looked last is written down before the channels, which know of it, go.
    std::unique_lock<std::mutex> lock(states_mutex_);
    if (!states_.empty()) look_after_all(lock);
  }
  std::map<std::string, std::shared_ptr<HCCLChannel>> channels;
  {
    const std::lock_guard<std::mutex> lock(channels_mutex_);
    channels.swap(channels_);
  }
  for (const auto& [key, channel] : channels) channel->destroy();
}

void ProcessGroupHCCL::waitForPendingWorks() {
  if (is_forked()) return;
  std::unique_lock<std::mutex> lock(states_mutex_);
  std::list<std::shared_ptr<State>> states = states_;
  lock.unlock();
  for (const auto& state : states) {
    while (!state->done()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

}  // namespace c10d
