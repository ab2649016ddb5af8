// Writing result folders.

#include "core/profile_folder.h"

#include "core/error.h"
#include "core/profile.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <ctime>
#include <random>

namespace acl_sim {
namespace {

constexpr size_t kBatch = 4096;
constexpr auto kPause = std::chrono::milliseconds(20);

void make_folder(const std::string& path) {
  if (::mkdir(path.c_str(), 0750) != 0 && errno != EEXIST)
    throw Error(ACL_ERROR_PROFILING_FAILURE, format("the folder %s: %s", path.c_str(), std::strerror(errno)));
}

std::string name_folder() {
  static std::atomic<int> made{0};
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(now).count();
  const std::time_t seconds = ms / 1000;
  std::tm parts{};
  ::localtime_r(&seconds, &parts);
  char time[32];
  std::strftime(time, sizeof time, "%Y%m%d%H%M%S", &parts);
  std::random_device random;
  std::string letters;
  for (int i = 0; i < 16; ++i) letters += static_cast<char>('A' + random() % 26);
  return format("PROF_%06d_%s%03d_%s", made.fetch_add(1) + 1, time, static_cast<int>(ms % 1000), letters.c_str());
}

}  // namespace

class ProfileFolder::File {
 public:
  explicit File(const std::string& path)
      : path_(path), fd_(::open(path.c_str(), O_CREAT | O_WRONLY | O_TRUNC | O_CLOEXEC, 0640)) {
    if (fd_ < 0)
      throw Error(ACL_ERROR_PROFILING_FAILURE, format("the file %s: %s", path.c_str(), std::strerror(errno)));
  }
  ~File() { ::close(fd_); }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  void write(const void* data, size_t bytes) {
    const auto* at = static_cast<const char*>(data);
    while (bytes > 0) {
      const ssize_t done = ::write(fd_, at, bytes);
      if (done < 0 && errno == EINTR) continue;
      if (done <= 0) {
        throw Error(ACL_ERROR_PROFILING_FAILURE,
                    format("the file %s: %s", path_.c_str(), std::strerror(done < 0 ? errno : ENOSPC)));
      }
      at += done;
      bytes -= static_cast<size_t>(done);
    }
  }

 private:
  std::string path_;
  int fd_;
};

ProfileFolder::ProfileFolder(const std::string& parent, ProfileSwitches switches)
    : path_(parent + "/" + name_folder()), switches_(std::move(switches)) {
  make_folder(path_);
  make_folder(path_ + "/host");
  files_.push_back(std::make_unique<File>(path_ + "/host/records.bin"));
  texts_ = std::make_unique<File>(path_ + "/texts.txt");
  started_ =
      std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::system_clock::now().time_since_epoch()).count();
  write_info(false);
  session_ = start_session();
  // Signals are the host program's business.
  sigset_t all, before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  writer_ = std::thread([this] { work(); });
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

ProfileFolder::~ProfileFolder() { finish(); }

std::string ProfileFolder::finish() {
  if (!writer_.joinable()) return failure_;
  stop_session(session_);
  ending_.store(true);
  writer_.join();
  release_session(session_);
  if (failure_.empty()) {
    try {
      write_info(true);
    } catch (const Error& error) {
      failure_ = error.what();
    }
  }
  if (failure_.empty() && dropped_ > 0)
    failure_ = format("%llu records found no room and are missing", static_cast<unsigned long long>(dropped_));
  return failure_;
}

void ProfileFolder::work() {
  ::pthread_setname_np(::pthread_self(), "npu_profile");
  while (!ending_.load()) {
    drain();
    std::this_thread::sleep_for(kPause);
  }
  drain();
}

void ProfileFolder::drain() {
  std::vector<aclsimRecord> records(kBatch);
  std::vector<std::vector<aclsimRecord>> kept;
  for (size_t count = 0; (count = read_session(session_, records.data(), kBatch, &dropped_)) > 0;) {
    if (!failure_.empty()) continue;  // goes on making room
    try {
      write_texts();
      for (auto& list : kept) list.clear();
      for (size_t i = 0; i < count; ++i) {
        const aclsimRecord& r = records[i];
        if (!wanted(r.kind, r.device, r.text)) continue;
        const auto place = static_cast<size_t>(r.device + 1);
        if (kept.size() <= place) kept.resize(place + 1);
        kept[place].push_back(r);
      }
      for (size_t place = 0; place < kept.size(); ++place) {
        if (kept[place].empty()) continue;
        file_of(static_cast<int16_t>(static_cast<int>(place) - 1))
            .write(kept[place].data(), kept[place].size() * sizeof(aclsimRecord));
        written_ += kept[place].size();
      }
    } catch (const std::exception& error) {
      failure_ = error.what();
    }
  }
}

bool ProfileFolder::wanted(uint8_t kind, int16_t device, uint32_t text) {
  const auto has = [&](uint64_t bits) { return (switches_.data & bits) != 0; };
  if (device >= 0 && !switches_.devices.empty() &&
      std::find(switches_.devices.begin(), switches_.devices.end(), static_cast<uint32_t>(device)) ==
          switches_.devices.end())
    return false;
  switch (kind) {
    case ACL_SIM_RECORD_API:
      return has(ACL_PROF_ACL_API | ACL_PROF_RUNTIME_API);
    case ACL_SIM_RECORD_RANGE:
    case ACL_SIM_RECORD_MARK:
      return has(ACL_PROF_MSPROFTX);
    case ACL_SIM_RECORD_EXTERNAL:
      return has(ACL_PROF_HCCL_TRACE);
    case ACL_SIM_RECORD_OP:
      return has(text < on_ai_cpu_.size() && on_ai_cpu_[text] ? ACL_PROF_AICPU
                                                              : ACL_PROF_TASK_TIME | ACL_PROF_TASK_TIME_L0);
    default:
      return has(ACL_PROF_TASK_TIME | ACL_PROF_TASK_TIME_L0);
  }
}

void ProfileFolder::write_texts() {
  const uint32_t last = last_text();
  std::string lines;
  if (on_ai_cpu_.empty()) on_ai_cpu_.push_back(0);
  for (uint32_t i = texts_written_ + 1; i <= last; ++i) {
    std::string text = text_of(i);
    std::replace(text.begin(), text.end(), '\n', ' ');
    on_ai_cpu_.push_back(text.find("\tAI_CPU\t") != std::string::npos);
    lines += text + '\n';
  }
  if (lines.empty()) return;
  texts_->write(lines.data(), lines.size());
  texts_written_ = last;
}

void ProfileFolder::write_info(bool ended) {
  std::string devices;
  for (uint32_t device : switches_.devices) devices += (devices.empty() ? "" : ", ") + std::to_string(device);
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const std::string text = format(
      "{\"format\": \"simulated npu profile\", \"version\": 1, \"record_bytes\": %zu, \"pid\": %d, \"devices\": [%s], "
      "\"data\": %llu, \"metrics\": %d, \"started_ns\": %lld, \"ended_ns\": %lld, \"records\": %llu, "
      "\"dropped\": %llu, \"complete\": %s}\n",
      sizeof(aclsimRecord), static_cast<int>(::getpid()), devices.c_str(),
      static_cast<unsigned long long>(switches_.data), static_cast<int>(switches_.metrics),
      static_cast<long long>(started_),
      ended ? static_cast<long long>(std::chrono::duration_cast<std::chrono::nanoseconds>(now).count()) : 0LL,
      static_cast<unsigned long long>(written_), static_cast<unsigned long long>(dropped_), ended ? "true" : "false");
  File(path_ + "/info.json").write(text.data(), text.size());
}

ProfileFolder::File& ProfileFolder::file_of(int16_t device) {
  const auto place = static_cast<size_t>(device + 1);
  if (files_.size() <= place) files_.resize(place + 1);
  if (!files_[place]) {
    const std::string folder = path_ + "/device_" + std::to_string(device);
    make_folder(folder);
    files_[place] = std::make_unique<File>(folder + "/records.bin");
  }
  return *files_[place];
}

}  // namespace acl_sim
