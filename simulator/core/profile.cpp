// Sessions of the device profiler: rings, texts, and what is written into them.

#include "core/profile.h"

#include "core/clock.h"
#include "core/device.h"
#include "core/error.h"
#include "core/executor.h"
#include "core/stream.h"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <unordered_map>

namespace acl_sim {

namespace detail {
std::atomic<uint32_t> listeners{0};
SIM_THREAD_LOCAL uint64_t correlation = 0;
SIM_THREAD_LOCAL uint64_t last_task = 0;
}  // namespace detail

namespace {

constexpr uint32_t kSessions = 4;
// About a million records, 100 MB if they are all used; memory is taken page by page.
constexpr uint64_t kRoom = uint64_t{1} << 20;

std::atomic<uint64_t> task_numbers{0};

uint32_t this_thread() {
  static SIM_THREAD_LOCAL uint32_t id = 0;
  if (id == 0) id = static_cast<uint32_t>(::syscall(SYS_gettid));
  return id;
}

// Slots are given by number, never the same twice, and are read in that order.
class Ring {
 public:
  void make() {
    if (slots_) return;
    void* at = ::mmap(nullptr, kRoom * sizeof(Slot), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) throw Error(ACL_ERROR_PROFILING_FAILURE, "no memory for the records of a profile");
    slots_ = static_cast<Slot*>(at);
  }

  void put(const aclsimRecord& record) {
    uint64_t number = given_.load(std::memory_order_relaxed);
    do {
      if (number - taken_.load(std::memory_order_acquire) >= kRoom) {
        dropped.fetch_add(1, std::memory_order_relaxed);
        return;
      }
    } while (!given_.compare_exchange_weak(number, number + 1, std::memory_order_relaxed));
    Slot& slot = slots_[number % kRoom];
    slot.record = record;
    slot.ready.store(number + 1, std::memory_order_release);
  }

  size_t take(aclsimRecord* records, size_t room) {
    uint64_t number = taken_.load(std::memory_order_relaxed);
    size_t count = 0;
    for (; count < room && slots_ && slots_[number % kRoom].ready.load(std::memory_order_acquire) == number + 1;
         ++count)
      records[count] = slots_[number++ % kRoom].record;
    taken_.store(number, std::memory_order_release);
    return count;
  }

  // Forgets what nobody read, and gives the memory back.
  void clear() {
    if (!slots_) return;
    taken_.store(given_.load());
    ::madvise(slots_, kRoom * sizeof(Slot), MADV_DONTNEED);
  }

  bool complete() const {
    const uint64_t given = given_.load(std::memory_order_acquire);
    return given == taken_.load() || slots_[(given - 1) % kRoom].ready.load(std::memory_order_acquire) == given;
  }

  std::atomic<uint64_t> dropped{0};

 private:
  struct Slot {
    std::atomic<uint64_t> ready;
    aclsimRecord record;
  };

  Slot* slots_ = nullptr;
  alignas(64) std::atomic<uint64_t> given_{0};
  alignas(64) std::atomic<uint64_t> taken_{0};
};

struct Session {
  std::atomic<bool> used{false};
  int64_t to_epoch = 0;  // what is added to the monotonic clock
  Ring ring;
};

struct Sessions {
  std::mutex mutex;
  std::array<Session, kSessions> all;
};

Sessions& sessions() {
  static auto* value = new Sessions;
  return *value;
}

struct Texts {
  std::mutex mutex;
  std::unordered_map<std::string, uint32_t> numbers;
  std::deque<std::string> texts{""};  // addresses stay
};

Texts& texts() {
  static auto* value = new Texts;
  return *value;
}

void put(const aclsimRecord& record) {
  const uint32_t to = detail::listeners.load(std::memory_order_acquire);
  auto& all = sessions().all;
  for (uint32_t i = 0; i < kSessions; ++i) {
    if (to >> i & 1) all[i].ring.put(record);
  }
}

Session& session_of(uint32_t number) {
  if (number >= kSessions || !sessions().all[number].used.load())
    throw Error(ACL_ERROR_INVALID_PARAM, format("%u is no profiling session", number));
  return sessions().all[number];
}

// Literals are few: each is found by its address after the first time. Two that meet in a slot share it unequally.
uint32_t literal_number(const char* text) {
  struct Known {
    const char* text;
    uint32_t number;
  };
  static std::array<std::atomic<const Known*>, 1024> table{};
  auto& slot = table[(reinterpret_cast<uintptr_t>(text) * 0x9E3779B97F4A7C15u) >> 54];
  const Known* known = slot.load(std::memory_order_acquire);
  if (known && known->text == text) return known->number;
  const uint32_t number = text_number(text);
  if (!known) {
    auto fresh = std::make_unique<const Known>(Known{text, number});
    // The table keeps it until the process ends.
    if (slot.compare_exchange_strong(known, fresh.get(), std::memory_order_acq_rel)) {
      [[maybe_unused]] const Known* kept = fresh.release();
    }
  }
  return number;
}

void describe(const Task& task, aclsimRecord& record) {
  switch (task.kind) {
    case TaskKind::Op:
      record.kind = ACL_SIM_RECORD_OP;
      record.text = describe_op(task, &record.bytes);
      break;
    case TaskKind::Copy: {
      record.kind = ACL_SIM_RECORD_COPY;
      record.bytes = task.copy.bytes;
      const bool from = device_of_alias(task.copy.from) != nullptr, to = device_of_alias(task.copy.to) != nullptr;
      record.detail = static_cast<uint8_t>(from && to ? ACL_MEMCPY_DEVICE_TO_DEVICE
                                           : from     ? ACL_MEMCPY_DEVICE_TO_HOST
                                           : to       ? ACL_MEMCPY_HOST_TO_DEVICE
                                                      : ACL_MEMCPY_HOST_TO_HOST);
      break;
    }
    case TaskKind::Fill:
      record.kind = ACL_SIM_RECORD_FILL;
      record.bytes = task.copy.bytes;
      break;
    case TaskKind::Record:
      record.kind = ACL_SIM_RECORD_EVENT;
      break;
    case TaskKind::Wait:
    case TaskKind::Reset:
      record.kind = ACL_SIM_RECORD_WAIT;
      break;
    case TaskKind::Callback:
      record.kind = ACL_SIM_RECORD_CALLBACK;
      break;
    case TaskKind::External:
      record.kind = ACL_SIM_RECORD_EXTERNAL;
      record.text = literal_number(task.external.name);
      break;
    case TaskKind::Graph:
      break;  // its tasks have records
  }
}

}  // namespace

int64_t profile_clock() { return clock_ns(CLOCK_MONOTONIC); }

void note_submission(Task& task) {
  task.number = task_numbers.fetch_add(1, std::memory_order_relaxed) + 1;
  task.correlation = detail::correlation;
  task.thread = this_thread();
  task.submitted = profile_clock();
  detail::last_task = task.number;
}

TaskRecord::TaskRecord(const Stream& stream, const Task& task) : stream_(stream), had_error_(stream.has_error()) {
  if (task.number != 0) {
    record_.id = task.number;
    record_.correlation = task.correlation;
    record_.submitted = task.submitted;
    record_.thread = task.thread;
  }
  record_.device = static_cast<int16_t>(stream.device->id);
  record_.stream = stream.number;
  describe(task, record_);
  record_.started = profile_clock();
}

TaskRecord::~TaskRecord() {
  record_.ended = profile_clock();
  if (record_.kind == ACL_SIM_RECORD_OP && !had_error_ && stream_.has_error()) record_.detail = 1;
  put(record_);
}

void ApiRecord::begin() {
  last_before_ = detail::last_task;
  started_ = profile_clock();
}

void ApiRecord::end() const {
  aclsimRecord record{};
  record.ended = profile_clock();
  record.id = detail::last_task == last_before_ ? 0 : detail::last_task;
  record.correlation = detail::correlation;
  record.submitted = record.started = started_;
  record.text = literal_number(name_);
  record.thread = this_thread();
  record.device = -1;
  record.kind = ACL_SIM_RECORD_API;
  put(record);
}

void record_mark(aclsimRecordKind kind, uint64_t id, int64_t started, int64_t ended, const std::string& text) {
  aclsimRecord record{};
  record.id = id;
  record.correlation = detail::correlation;
  record.submitted = record.started = started;
  record.ended = ended;
  record.text = text_number(text);
  record.thread = this_thread();
  record.device = -1;
  record.kind = static_cast<uint8_t>(kind);
  put(record);
}

uint32_t text_number(const std::string& text) {
  if (text.empty()) return 0;
  Texts& t = texts();
  std::lock_guard<std::mutex> lock(t.mutex);
  const auto [at, fresh] = t.numbers.emplace(text, static_cast<uint32_t>(t.texts.size()));
  if (fresh) t.texts.push_back(text);
  return at->second;
}

const char* text_of(uint32_t number) {
  Texts& t = texts();
  std::lock_guard<std::mutex> lock(t.mutex);
  return number < t.texts.size() ? t.texts[number].c_str() : "";
}

uint32_t last_text() {
  Texts& t = texts();
  std::lock_guard<std::mutex> lock(t.mutex);
  return static_cast<uint32_t>(t.texts.size()) - 1;
}

uint32_t start_session() {
  auto& s = sessions();
  std::lock_guard<std::mutex> lock(s.mutex);
  for (uint32_t i = 0; i < kSessions; ++i) {
    Session& session = s.all[i];
    if (session.used.load()) continue;
    session.ring.make();
    session.ring.clear();
    session.ring.dropped.store(0);
    session.to_epoch = clock_ns(CLOCK_REALTIME) - clock_ns(CLOCK_MONOTONIC);
    session.used.store(true);
    detail::listeners.fetch_or(uint32_t{1} << i, std::memory_order_seq_cst);
    return i;
  }
  throw Error(ACL_ERROR_PROF_ALREADY_RUN, format("%u profiling sessions run already", kSessions));
}

void stop_session(uint32_t number) {
  auto& s = sessions();
  std::lock_guard<std::mutex> lock(s.mutex);
  const Session& session = session_of(number);
  detail::listeners.fetch_and(~(uint32_t{1} << number), std::memory_order_seq_cst);
  // Somebody may be about to write the last records.
  for (int i = 0; i < 1000 && !session.ring.complete(); ++i)
    std::this_thread::sleep_for(std::chrono::microseconds(100));
}

size_t read_session(uint32_t number, aclsimRecord* records, size_t room, uint64_t* dropped) {
  Session& session = session_of(number);
  const size_t count = session.ring.take(records, room);
  for (size_t i = 0; i < count; ++i) {
    for (int64_t* time : {&records[i].submitted, &records[i].started, &records[i].ended}) {
      if (*time != 0) *time += session.to_epoch;
    }
  }
  *dropped = session.ring.dropped.load(std::memory_order_relaxed);
  return count;
}

bool session_has_ended(uint32_t number) { return !(detail::listeners.load(std::memory_order_acquire) >> number & 1); }

void release_session(uint32_t number) {
  auto& s = sessions();
  std::lock_guard<std::mutex> lock(s.mutex);
  Session& session = session_of(number);
  session.ring.clear();
  session.used.store(false);
}

}  // namespace acl_sim
