#include <torch/csrc/distributed/c10d/HCCLRecorder.hpp>

#include <ATen/core/Dict.h>
#include <ATen/core/List.h>
#include <ATen/core/ivalue.h>
#include <c10/npu/NPUOptions.h>
#include <c10/util/ApproximateClock.h>
#include <c10/util/Logging.h>
#include <torch/csrc/distributed/c10d/TraceUtils.h>

#include <deque>
#include <fstream>
#include <map>
#include <mutex>
#include <sstream>

namespace c10d {

namespace {

using c10::npu::NPUEvent;

// The version of upstream's format that this is.
constexpr const char* kFormat = "2.10";

struct Entry {
  HCCLRecord record;
  std::vector<std::vector<int64_t>> sizes[2];  // of inputs and outputs
  std::vector<std::string> dtypes[2];
  NPUEvent *begin, *end;  // null once the operation is done
  c10::time_t created;
  std::optional<c10::time_t> ended;
  std::optional<double> milliseconds;
  bool retired = false;
};

struct Recorder {
  std::mutex mutex;
  size_t most = 0;
  size_t next = 0;  // the id of the next entry; the last of `entries` is next - 1
  std::deque<Entry> entries;
  std::map<std::string, std::pair<std::string, std::string>> groups;  // name -> description, ranks
};

Recorder& recorder() {
  static auto* value = [] {
    auto* r = new Recorder;  // groups may end after static objects do
    const int most = getCvarInt({"TORCH_HCCL_TRACE_BUFFER_SIZE", "TORCH_FR_BUFFER_SIZE"}, 0);
    r->most = most > 0 ? static_cast<size_t>(most) : 0;
    return r;
  }();
  return *value;
}

std::string name_of(size_t group, const std::string& name) { return name.empty() ? std::to_string(group) : name; }

bool passed(const NPUEvent* event) {
  try {
    return event == nullptr || event->query();
  } catch (const std::exception&) {
    return false;  // the device has failed; that is not for this place to tell
  }
}

c10::impl::GenericDict make_dict() { return c10::impl::GenericDict(c10::AnyType::get(), c10::AnyType::get()); }

c10::IValue sizes_of(const std::vector<std::vector<int64_t>>& all) {
  c10::impl::GenericList list(c10::AnyType::get());
  for (const auto& sizes : all) {
    c10::impl::GenericList one(c10::AnyType::get());
    for (const int64_t size : sizes) one.push_back(size);
    list.push_back(one);
  }
  return list;
}

c10::IValue dict_of(const Entry& e, size_t id) {
  auto dict = make_dict();
  const bool done = !e.end || passed(e.end);
  const HCCLRecord& r = e.record;
  const auto number = static_cast<int64_t>(r.sequence);
  dict.insert("record_id", static_cast<int64_t>(id));
  dict.insert("pg_id", static_cast<int64_t>(r.group));
  dict.insert("process_group", std::make_tuple(name_of(r.group, r.group_name), r.group_description));
  dict.insert("collective_seq_id", r.message ? int64_t{0} : number);
  dict.insert("p2p_seq_id", r.message ? number : int64_t{0});
  dict.insert("op_id", number);
  dict.insert("profiling_name", r.title);
  dict.insert("time_created_ns", static_cast<int64_t>(e.created));
  if (e.milliseconds) dict.insert("duration_ms", *e.milliseconds);
  dict.insert("input_sizes", sizes_of(e.sizes[0]));
  dict.insert("input_dtypes", e.dtypes[0]);
  dict.insert("output_sizes", sizes_of(e.sizes[1]));
  dict.insert("output_dtypes", e.dtypes[1]);
  const bool ended = e.retired ? e.ended.has_value() : done;
  dict.insert("state", ended ? "completed" : (passed(e.begin) ? "started" : "scheduled"));
  dict.insert("time_discovered_started_ns", c10::IValue());
  dict.insert("time_discovered_completed_ns", e.ended ? c10::IValue(static_cast<int64_t>(*e.ended)) : c10::IValue());
  dict.insert("retired", e.retired);
  dict.insert("timeout_ms", static_cast<int64_t>(r.timeout.count()));
  dict.insert("is_p2p", r.message);
  dict.insert("frames", c10::impl::GenericList(c10::AnyType::get()));
  return dict;
}

}  // namespace

void hccl_recorder_name_group(size_t group, const std::string& name, const std::string& description,
                              const std::vector<uint64_t>& ranks) {
  auto& r = recorder();
  if (r.most == 0) return;
  std::ostringstream list;
  for (size_t i = 0; i < ranks.size(); ++i) list << (i ? ", " : "[") << ranks[i];
  const std::lock_guard<std::mutex> lock(r.mutex);
  r.groups[name_of(group, name)] = {description, ranks.empty() ? "[]" : list.str() + "]"};
}

std::optional<size_t> hccl_recorder_add(const HCCLRecord& record, const std::vector<at::Tensor>& inputs,
                                        const std::vector<at::Tensor>& outputs, NPUEvent* begin, NPUEvent* end) {
  auto& r = recorder();
  if (C10_LIKELY(r.most == 0)) return std::nullopt;
  Entry entry{record, {}, {}, begin, end, c10::getTime(), std::nullopt, std::nullopt, false};
  for (const auto* tensors : {&inputs, &outputs}) {
    const auto which = static_cast<size_t>(tensors == &outputs);
    for (const auto& t : *tensors) {
      entry.sizes[which].push_back(t.sizes().vec());
      entry.dtypes[which].emplace_back(c10::toString(t.scalar_type()));
    }
  }
  const std::lock_guard<std::mutex> lock(r.mutex);
  r.entries.push_back(std::move(entry));
  if (r.entries.size() > r.most) r.entries.pop_front();
  return r.next++;
}

void hccl_recorder_done(size_t id, bool completed) {
  auto& r = recorder();
  const std::lock_guard<std::mutex> lock(r.mutex);
  const size_t first = r.next - r.entries.size();
  if (id < first) return;
  Entry& entry = r.entries[id - first];
  if (completed && entry.begin && entry.end) {
    entry.milliseconds = entry.begin->elapsed_time(*entry.end);
    entry.ended = c10::getTime();
  }
  entry.retired = true;
  entry.begin = entry.end = nullptr;
}

std::string hccl_recorder_content(bool only_active) {
  auto& r = recorder();
  const std::lock_guard<std::mutex> lock(r.mutex);
  auto dump = make_dict();
  auto groups = make_dict();
  for (const auto& [name, facts] : r.groups) {
    auto group = make_dict();
    group.insert("name", name);
    group.insert("desc", facts.first);
    group.insert("ranks", facts.second);
    groups.insert(name, group);
  }
  c10::impl::GenericList entries(c10::AnyType::get());
  const size_t first = r.next - r.entries.size();
  for (size_t i = 0; i < r.entries.size(); ++i) {
    if (!only_active || !r.entries[i].ended) entries.push_back(dict_of(r.entries[i], first + i));
  }
  dump.insert("version", kFormat);
  dump.insert("pg_config", groups);
  dump.insert("pg_status", make_dict());
  dump.insert("entries", entries);
  return pickle_str(dump);
}

void hccl_recorder_dump(int rank) {
  if (recorder().most == 0) return;
  const char* prefix = c10::npu::environment("TORCH_HCCL_DEBUG_INFO_TEMP_FILE");
  const std::string path = (prefix && *prefix ? prefix : "/tmp/hccl_trace_rank_") + std::to_string(rank);
  std::ofstream file(path, std::ios::binary);
  file << hccl_recorder_content(/*only_active=*/false);
  LOG(ERROR) << "hccl: the flight recorder " << (file.flush().fail() ? "could not be written to " : "is in ") << path;
}

}  // namespace c10d
