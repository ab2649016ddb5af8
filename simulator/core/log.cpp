#include "core/log.h"

#include "core/environment.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <mutex>

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace acl_sim {
namespace detail {
std::atomic<int> log_level{-1};
std::atomic<bool> log_events{false};
}  // namespace detail

namespace {

struct Sink {
  std::mutex mutex;
  pid_t owner = 0;  // a forked child opens a file of its own
  int file = -1;
  bool to_stdout = false;
  std::string program;
};

Sink& sink() {
  static Sink* value = new Sink;  // outlives the threads that still run while the process exits
  return *value;
}

int digit(const char* name, int otherwise, int most) {
  const char* text = environment(name);
  if (!text || text[0] < '0' || text[0] > '0' + most || text[1]) return otherwise;
  return text[0] - '0';
}

void make_folders(const std::string& path) {
  for (size_t at = 1; at <= path.size(); ++at) {
    if (at == path.size() || path[at] == '/') ::mkdir(path.substr(0, at).c_str(), 0750);
  }
}

std::string folder() {
  if (const char* path = environment("ASCEND_PROCESS_LOG_PATH"); path && *path) return std::string(path) + "/plog";
  const char* home = environment("HOME");
  return std::string(home && *home ? home : "/tmp") + "/ascend/log/plog";
}

std::string stamp(const char* pattern, int fraction_digits) {
  timespec now;
  ::clock_gettime(CLOCK_REALTIME, &now);
  tm parts;
  ::localtime_r(&now.tv_sec, &parts);
  char text[64];
  size_t length = std::strftime(text, sizeof text, pattern, &parts);
  if (fraction_digits == 3) {
    std::snprintf(text + length, sizeof text - length, "%03ld", now.tv_nsec / 1000000);
  } else {
    std::snprintf(text + length, sizeof text - length, ".%03ld.%03ld", now.tv_nsec / 1000000,
                  now.tv_nsec / 1000 % 1000);
  }
  return text;
}

void open_file(Sink& s) {
  const std::string path = folder();
  make_folders(path);
  const std::string name = path + "/plog-" + std::to_string(::getpid()) + "_" + stamp("%Y%m%d%H%M%S", 3) + ".log";
  s.file = ::open(name.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0640);
  s.owner = ::getpid();
  s.program = program_invocation_short_name;
}

void write_all(int file, const std::string& text) {
  const char* at = text.data();
  size_t left = text.size();
  while (left > 0) {
    const ssize_t n = ::write(file, at, left);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return;  // a full disk must not fail the operator that logs
    at += n;
    left -= static_cast<size_t>(n);
  }
}

const char* name_of(LogLevel level) {
  switch (level) {
    case LogLevel::Debug:
      return "DEBUG";
    case LogLevel::Info:
      return "INFO";
    case LogLevel::Warning:
      return "WARNING";
    case LogLevel::Event:
      return "EVENT";
    default:
      return "ERROR";
  }
}

}  // namespace

int detail::read_log_environment() {
  auto& s = sink();
  std::lock_guard<std::mutex> lock(s.mutex);
  s.to_stdout = digit("ASCEND_SLOG_PRINT_TO_STDOUT", 0, 1) == 1;
  log_events.store(digit("ASCEND_GLOBAL_EVENT_ENABLE", 0, 1) == 1);
  log_level.store(digit("ASCEND_GLOBAL_LOG_LEVEL", 3, 4));
  return log_level.load();
}

void log_line(LogLevel level, const char* module, const char* file, int line, const std::string& text) {
  auto& s = sink();
  std::lock_guard<std::mutex> lock(s.mutex);
  if (s.owner != ::getpid()) open_file(s);
  const char* base = std::strrchr(file, '/');
  std::string full = std::string("[") + name_of(level) + "] " + module + "(" + std::to_string(s.owner) + "," +
                     s.program + "):" + stamp("%Y-%m-%d-%H:%M:%S", 6) + " [" + (base ? base + 1 : file) + ":" +
                     std::to_string(line) + "]" + std::to_string(::syscall(SYS_gettid)) + " " + text + "\n";
  if (s.file >= 0) write_all(s.file, full);
  if (s.to_stdout) write_all(STDOUT_FILENO, full);
}

}  // namespace acl_sim
