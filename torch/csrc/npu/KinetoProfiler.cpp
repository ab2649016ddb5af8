// What the device did, for torch.profiler: Kineto asks this plug-in for the activities between its start and stop.
//
// Note [Device activities]
// Upstream's Kineto takes activity profilers of other devices through PrivateUse1ProfilerRegistry, in the CPU build
// too, so nothing is patched: host operators, device tasks and ABI calls end in one trace and one list of events.
// Kineto tells each operator's number as it begins and ends; the device notes it with what is submitted in between
// (aclsimSetCorrelation, and through the queue's thread c10/npu/impl/Correlation.h), and it comes back here as the link
// from a device activity to its operator. Numbers of tasks begin high, so that they are no operator's number.
// Only the simulator tells such records. On a card there are none: upstream's fallback of events around each operator
// measures device time there, see torch/npu/_profile/activities.py.

#include <acl/acl_simulator.h>
#include <acl_loader.h>
#include <c10/npu/NPUFunctions.h>
#include <c10/npu/impl/Correlation.h>
#include <c10/util/Exception.h>
#include <c10/util/irange.h>
#include <libkineto.h>
#include <output_base.h>
#include <torch/csrc/npu/Bindings.h>
#include <torch/csrc/profiler/standalone/privateuse1_profiler.h>

#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace torch::npu {
namespace {

namespace acl = c10::npu::acl;
using libkineto::ActivityType;
using libkineto::GenericTraceActivity;

constexpr int32_t kFirstTaskId = 1 << 30;

bool records_activities() { return acl::has_function("aclsimProfileStart"); }

// A text's fields, for JSON strings.
std::vector<std::string> fields_of(uint32_t text) {
  std::vector<std::string> fields(1);
  for (const char* c = acl::aclsimProfileText(text); *c != 0; ++c) {
    if (*c == '\t') {
      fields.emplace_back();
    } else {
      fields.back() += *c == '"' || *c == '\\' || static_cast<unsigned char>(*c) < ' ' ? '\'' : *c;
    }
  }
  return fields;
}

const char* copy_name(uint8_t kind) {
  switch (kind) {
    case ACL_MEMCPY_HOST_TO_DEVICE:
      return "Memcpy HtoD";
    case ACL_MEMCPY_DEVICE_TO_HOST:
      return "Memcpy DtoH";
    case ACL_MEMCPY_DEVICE_TO_DEVICE:
      return "Memcpy DtoD";
    default:
      return "Memcpy HtoH";
  }
}

// The operators that a thread is in, by Kineto's numbers, and the session that told of them: a thread may have been in
// one when its session ended, and is not in it any more in the next.
std::atomic<uint64_t> session_count{0};
thread_local std::vector<uint64_t> operators;
thread_local uint64_t operators_of = 0;

std::vector<uint64_t>& operators_now() {
  const uint64_t now = session_count.load(std::memory_order_relaxed);
  if (operators_of != now) {
    operators.clear();
    operators_of = now;
  }
  return operators;
}

class Session final : public libkineto::IActivityProfilerSession {
 public:
  ~Session() override { end(); }

  void start() override {
    if (acl::aclsimProfileStart(&session_) != ACL_SUCCESS) {
      status_ = libkineto::TraceStatus::ERROR;
      errors_.emplace_back("the device's profiler could not be started: as many sessions as it takes run already");
      return;
    }
    running_ = true;
    session_count.fetch_add(1);
    c10::npu::impl::correlates.fetch_add(1);
    status_ = libkineto::TraceStatus::RECORDING;
  }

  void stop() override {
    end();
    if (status_ == libkineto::TraceStatus::RECORDING) status_ = libkineto::TraceStatus::PROCESSING;
  }

  std::vector<std::string> errors() override { return errors_; }

  void processTrace(libkineto::ActivityLogger& logger) override {
    processTrace(logger, [](int32_t) { return nullptr; }, 0, INT64_MAX);
  }

  void processTrace(libkineto::ActivityLogger& logger, libkineto::getLinkedActivityCallback linked, int64_t from,
                    int64_t to) override {
    buffer_ = std::make_unique<libkineto::CpuTraceBuffer>();
    buffer_->span = libkineto::TraceSpan(from, to, "npu");
    buffer_->gpuOpCount = 0;
    uint64_t first = UINT64_MAX;
    for (const auto& record : records_) {
      if (record.device >= 0 && record.id != 0 && record.id < first) first = record.id;
    }
    for (const auto& record : records_) {
      if (record.started < from || record.ended > to) continue;
      if (GenericTraceActivity* activity = add(record, first)) {
        if (record.correlation != 0 && record.correlation < (uint64_t{1} << 31)) {
          activity->linked = linked(static_cast<int32_t>(record.correlation));
        }
        activity->log(logger);
      }
    }
    records_.clear();
    records_.shrink_to_fit();
  }

  std::unique_ptr<libkineto::DeviceInfo> getDeviceInfo() override {
    if (streams_.empty()) return nullptr;
    const int64_t device = streams_.begin()->first.first;
    const std::string name = "NPU " + std::to_string(device);
    return std::make_unique<libkineto::DeviceInfo>(
        libkineto::DeviceInfo{device, libkineto::kExceedMaxPid + device, name, name});
  }

  std::vector<libkineto::ResourceInfo> getResourceInfos() override {
    std::vector<libkineto::ResourceInfo> infos;
    for (const auto& [place, count] : streams_) {
      infos.push_back({place.second, place.second, place.first, "stream " + std::to_string(place.second)});
    }
    return infos;
  }

  std::unique_ptr<libkineto::CpuTraceBuffer> getTraceBuffer() override { return std::move(buffer_); }

  void pushCorrelationId(uint64_t id) override {
    operators_now().push_back(id);
    acl::aclsimSetCorrelation(id);
  }

  void popCorrelationId() override {
    auto& open = operators_now();
    if (!open.empty()) open.pop_back();  // none: begun before the session
    acl::aclsimSetCorrelation(open.empty() ? 0 : open.back());
  }

 private:
  void end() {
    if (!running_) return;
    running_ = false;
    c10::npu::impl::correlates.fetch_sub(1);
    acl::aclsimProfileStop(session_);
    std::vector<aclsimRecord> batch(4096);
    uint64_t dropped = 0;
    for (size_t count = 1; count > 0;) {
      if (acl::aclsimProfileRead(session_, batch.data(), batch.size(), &count, &dropped) != ACL_SUCCESS) break;
      records_.insert(records_.end(), batch.begin(), batch.begin() + static_cast<std::ptrdiff_t>(count));
    }
    if (dropped > 0) {
      TORCH_WARN("The profile of the npu is not complete: ", dropped,
                 " records found no room. Profile fewer steps at a time (torch.profiler.schedule).");
    }
  }

  const std::vector<std::string>& text(uint32_t number) {
    auto [at, fresh] = texts_.try_emplace(number);
    if (fresh) at->second = fields_of(number);
    return at->second;
  }

  GenericTraceActivity* emplace(ActivityType type, const std::string& name) {
    buffer_->emplace_activity(buffer_->span, type, name);
    return buffer_->activities.back().get();
  }

  // Null for what a trace does not show: records of events, callbacks, and a stream's waits for events, which are gaps.
  GenericTraceActivity* add(const aclsimRecord& r, uint64_t first) {
    GenericTraceActivity* a = nullptr;
    switch (r.kind) {
      case ACL_SIM_RECORD_OP:
        a = emplace(ActivityType::CONCURRENT_KERNEL, text(r.text)[0]);
        describe(*a, text(r.text));
        break;
      case ACL_SIM_RECORD_EXTERNAL:
        a = emplace(ActivityType::CONCURRENT_KERNEL, text(r.text)[0]);
        a->addMetadataQuoted("Task Type", "HCCL");
        break;
      case ACL_SIM_RECORD_COPY:
        a = emplace(ActivityType::GPU_MEMCPY, copy_name(r.detail));
        break;
      case ACL_SIM_RECORD_FILL:
        a = emplace(ActivityType::GPU_MEMSET, "Memset");
        break;
      case ACL_SIM_RECORD_API:
        a = emplace(ActivityType::PRIVATEUSE1_RUNTIME, text(r.text)[0]);
        break;
      case ACL_SIM_RECORD_RANGE:
      case ACL_SIM_RECORD_MARK:
        a = emplace(ActivityType::USER_ANNOTATION, text(r.text)[0]);
        break;
      default:
        return nullptr;
    }
    const bool on_host = r.device < 0;
    a->startTime = r.started;
    a->endTime = r.ended;
    if (r.id != 0 && (!on_host || r.kind == ACL_SIM_RECORD_API)) {
      a->id = kFirstTaskId + static_cast<int32_t>((r.id - std::min(first, r.id)) % kFirstTaskId);
      a->flow.id = static_cast<uint32_t>(a->id);
      a->flow.type = libkineto::kLinkAsyncCpuGpu;
      a->flow.start = r.kind == ACL_SIM_RECORD_API;
    }
    a->addMetadata("correlation", a->id);
    if (on_host) {
      a->device = ::getpid();
      a->resource = a->threadId = static_cast<int32_t>(r.thread);
      return a;
    }
    a->device = r.device;
    a->resource = static_cast<int32_t>(r.stream);
    ++streams_[{r.device, r.stream}];
    ++buffer_->gpuOpCount;
    a->addMetadata("device", r.device);
    a->addMetadata("stream", r.stream);
    if (r.bytes != 0) {
      a->addMetadata("bytes", r.bytes);
      const int64_t spent = r.ended - r.started;
      if (spent > 0)
        a->addMetadata("memory bandwidth (GB/s)", static_cast<double>(r.bytes) / static_cast<double>(spent));
    }
    if (r.submitted != 0) a->addMetadata("queued (us)", static_cast<double>(r.started - r.submitted) / 1000);
    if (r.kind == ACL_SIM_RECORD_OP && r.detail != 0) a->addMetadata("failed", true);
    return a;
  }

  static void describe(GenericTraceActivity& a, const std::vector<std::string>& fields) {
    constexpr std::array kNames{"",
                                "Task Type",
                                "Input Shapes",
                                "Input Data Types",
                                "Input Formats",
                                "Output Shapes",
                                "Output Data Types",
                                "Output Formats",
                                "Attributes"};
    for (const auto i : c10::irange(size_t{1}, std::min(kNames.size(), fields.size()))) {
      if (!fields[i].empty()) a.addMetadataQuoted(kNames.at(i), fields[i]);
    }
  }

  uint32_t session_ = 0;
  bool running_ = false;
  std::vector<aclsimRecord> records_;
  std::map<uint32_t, std::vector<std::string>> texts_;
  std::map<std::pair<int64_t, int64_t>, int64_t> streams_;  // device and stream: how many activities
  std::unique_ptr<libkineto::CpuTraceBuffer> buffer_;
  std::vector<std::string> errors_;
};

class Profiler final : public libkineto::IActivityProfiler {
 public:
  const std::string& name() const override { return name_; }
  const std::set<ActivityType>& availableActivities() const override { return types_; }

  std::unique_ptr<libkineto::IActivityProfilerSession> configure(const std::set<ActivityType>& wanted,
                                                                 const libkineto::Config& /*config*/) override {
    if (wanted.count(ActivityType::CONCURRENT_KERNEL) == 0 || !records_activities()) return nullptr;
    return std::make_unique<Session>();
  }
  std::unique_ptr<libkineto::IActivityProfilerSession> configure(int64_t /*start*/, int64_t /*duration*/,
                                                                 const std::set<ActivityType>& wanted,
                                                                 const libkineto::Config& config) override {
    return configure(wanted, config);
  }

 private:
  std::string name_ = "npu";
  std::set<ActivityType> types_{ActivityType::CONCURRENT_KERNEL, ActivityType::GPU_MEMCPY, ActivityType::GPU_MEMSET,
                                ActivityType::PRIVATEUSE1_RUNTIME};
};

}  // namespace

void bind_activities(pybind11::module_& m) {
  profiler::impl::PrivateUse1ProfilerRegistry::instance().registerFactory([] { return std::make_unique<Profiler>(); });
  m.def("_npu_recordsActivities", &records_activities, pybind11::call_guard<pybind11::gil_scoped_release>());
}

}  // namespace torch::npu
