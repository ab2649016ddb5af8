#include "core/ledger.h"

#include "core/environment.h"
#include "core/error.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <cctype>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <thread>

namespace acl_sim {
namespace {

constexpr size_t kLines = 1024;
constexpr int kPatience = 10;  // seconds that another process may hold a lock

[[noreturn]] void refuse(const std::string& what) {
  throw Error(ACL_ERROR_RT_DEV_SETUP_ERROR, "cannot count the memory of the simulated device: " + what);
}

// A name for what the processes have in common, equal in all builds of this library.
std::string name_of(int device, size_t bound) {
  const char* host = environment("ASCEND_SIM_HOST");
  std::string text = format("1/%u/%d/%zu/", ::geteuid(), device, bound) + (host ? host : "");
  for (const char* space : {"/proc/self/ns/net", "/proc/self/ns/pid"}) {
    struct stat facts{};
    text += format("/%llu", ::stat(space, &facts) == 0 ? static_cast<unsigned long long>(facts.st_ino) : 0ULL);
  }
  uint64_t hash = 14695981039346656037ULL;  // FNV-1a
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211ULL;
  return format("ascend_sim_bound_%016llx", static_cast<unsigned long long>(hash));
}

// A name that one process has at a time. A child that is forked meanwhile must not keep it.
std::atomic<int> name_holder{-1};

class Name {
 public:
  explicit Name(const std::string& name) {
    static const int watched = ::pthread_atfork(nullptr, nullptr, [] {
      if (const int held = name_holder.exchange(-1); held >= 0) ::close(held);
    });
    static_cast<void>(watched);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path + 1, name.data(), name.size());
    const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
    const int socket = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (socket < 0) refuse(std::string("no socket: ") + std::strerror(errno));
    name_holder.store(socket);
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(kPatience);
    while (::bind(socket, reinterpret_cast<const sockaddr*>(&address), length) != 0) {
      const int reason = errno;
      if (reason == EADDRINUSE && std::chrono::steady_clock::now() < end) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
        continue;
      }
      close();
      refuse(reason == EADDRINUSE ? format("another process has been opening it for %d s; is one stopped?", kPatience)
                                  : std::string("no name: ") + std::strerror(reason));
    }
  }
  ~Name() { close(); }
  Name(const Name&) = delete;
  Name& operator=(const Name&) = delete;

 private:
  static void close() {
    if (const int held = name_holder.exchange(-1); held >= 0) ::close(held);
  }
};

struct Folder {
  explicit Folder(const char* path) : handle(::opendir(path)) {}
  ~Folder() {
    if (handle) ::closedir(handle);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  const char* next() {
    while (const dirent* entry = handle ? ::readdir(handle) : nullptr) {
      if (std::isdigit(static_cast<unsigned char>(entry->d_name[0]))) return entry->d_name;
    }
    return nullptr;
  }
  DIR* handle;
};

std::string read_link(int folder, const char* path) {
  char text[256];
  const ssize_t length = ::readlinkat(folder, path, text, sizeof(text));
  return length > 0 ? std::string(text, static_cast<size_t>(length)) : std::string();
}

// Opens the file that a process of this user has open under `link`; -1 if none has.
int find_open_file(const std::string& link) {
  Folder processes("/proc");
  while (const char* pid = processes.next()) {
    struct stat facts{};
    const std::string path = std::string("/proc/") + pid;
    if (::stat(path.c_str(), &facts) != 0 || facts.st_uid != ::geteuid()) continue;
    Folder files((path + "/fd").c_str());
    while (const char* number = files.next()) {
      const int folder = ::dirfd(files.handle);
      if (read_link(folder, number) != link) continue;
      const int file = ::openat(folder, number, O_RDWR | O_CLOEXEC);
      if (file >= 0) return file;
    }
  }
  return -1;
}

}  // namespace

struct Ledger::Table {
  struct Line {
    pid_t pid;  // 0: free
    int file;   // the process's descriptor of this table
    uint64_t used;
  };
  pthread_mutex_t mutex;
  Line lines[kLines];
  size_t lines_in_use;  // the others behind have never been used
};

class Ledger::Lock {
 public:
  explicit Lock(Table& table) : mutex_(&table.mutex) {
    timespec end{};
    ::clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += kPatience;
    int code = ::pthread_mutex_timedlock(mutex_, &end);
    // Whoever held it was killed. Each line is one number, so nothing is half done.
    if (code == EOWNERDEAD) code = ::pthread_mutex_consistent(mutex_);
    if (code != 0) refuse(std::string("another process keeps its table: ") + std::strerror(code));
  }
  ~Lock() { ::pthread_mutex_unlock(mutex_); }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;

 private:
  pthread_mutex_t* mutex_;
};

Ledger::Ledger(int physical_device, size_t bound) : bound_(bound) {
  const std::string name = name_of(physical_device, bound);
  link_ = "/memfd:" + name + " (deleted)";
  const Name alone(name);
  open_table(name);
  join();
}

Ledger::~Ledger() {
  if (table_) ::munmap(table_, sizeof(Table));
  if (file_ >= 0) ::close(file_);
}

void Ledger::open_table(const std::string& name) {
  file_ = find_open_file(link_);
  const bool is_new = file_ < 0;
  if (is_new) {
    file_ = ::memfd_create(name.c_str(), MFD_CLOEXEC);
    if (file_ < 0 || ::ftruncate(file_, sizeof(Table)) != 0) refuse(std::strerror(errno));
  }
  void* at = ::mmap(nullptr, sizeof(Table), PROT_READ | PROT_WRITE, MAP_SHARED, file_, 0);
  if (at == MAP_FAILED) refuse(std::strerror(errno));
  ::madvise(at, sizeof(Table), MADV_DONTFORK);
  table_ = static_cast<Table*>(at);
  if (!is_new) return;
  pthread_mutexattr_t kind;
  ::pthread_mutexattr_init(&kind);
  ::pthread_mutexattr_setpshared(&kind, PTHREAD_PROCESS_SHARED);
  ::pthread_mutexattr_setrobust(&kind, PTHREAD_MUTEX_ROBUST);
  ::pthread_mutex_init(&table_->mutex, &kind);
  ::pthread_mutexattr_destroy(&kind);
}

void Ledger::join() {
  const Lock lock(*table_);
  drop_ended();
  const pid_t self = ::getpid();
  // A line of this number is of a process before this one, or of the program that this one has replaced.
  for (size_t i = 0; i < table_->lines_in_use; ++i) {
    if (table_->lines[i].pid == self) table_->lines[i] = {};
  }
  line_ = 0;
  while (line_ < table_->lines_in_use && table_->lines[line_].pid != 0) ++line_;
  if (line_ == kLines) refuse(format("%zu processes use it already", kLines));
  table_->lines[line_] = {self, file_, 0};
  if (line_ == table_->lines_in_use) ++table_->lines_in_use;
}

size_t Ledger::sum() const {
  size_t all = 0;
  for (size_t i = 0; i < table_->lines_in_use; ++i) all += table_->lines[i].used;
  return all;
}

void Ledger::drop_ended() {
  const pid_t self = ::getpid();
  for (size_t i = 0; i < table_->lines_in_use; ++i) {
    Table::Line& line = table_->lines[i];
    if (line.pid == 0 || line.pid == self) continue;
    char text[256];
    const ssize_t length = ::readlink(format("/proc/%d/fd/%d", line.pid, line.file).c_str(), text, sizeof(text));
    const bool ended = length < 0 ? errno == ENOENT || errno == ESRCH
                                  : link_.compare(0, link_.size(), text, static_cast<size_t>(length)) != 0;
    if (ended) line = {};
  }
}

bool Ledger::has_line() const { return table_->lines[line_].pid == ::getpid(); }

bool Ledger::take(size_t size) {
  const Lock lock(*table_);
  const auto fits = [&] {
    const size_t all = sum();
    return size <= bound_ && all <= bound_ - size;
  };
  if (!fits()) {
    drop_ended();
    if (!fits()) return false;
  }
  if (has_line()) table_->lines[line_].used += size;
  return true;
}

void Ledger::give(size_t size) {
  const Lock lock(*table_);
  if (has_line()) table_->lines[line_].used -= size;
}

size_t Ledger::used() {
  const Lock lock(*table_);
  drop_ended();
  return sum();
}

std::string Ledger::others() {
  const Lock lock(*table_);
  std::string text;
  size_t named = 0;
  for (size_t i = 0; i < table_->lines_in_use && named < 8; ++i) {
    const Table::Line& line = table_->lines[i];
    if (i == line_ || line.pid == 0 || line.used == 0) continue;
    text += format("%s process %d uses %llu bytes", named++ ? "," : "; of the others,", line.pid,
                   static_cast<unsigned long long>(line.used));
  }
  return text;
}

}  // namespace acl_sim
