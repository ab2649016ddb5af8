#pragma once
// The host log as CANN writes it: $HOME/ascend/log/plog/plog-<pid>_<time>.log, or below ASCEND_PROCESS_LOG_PATH.
//   ASCEND_GLOBAL_LOG_LEVEL       0 debug, 1 info, 2 warning, 3 error (the default), 4 none
//   ASCEND_GLOBAL_EVENT_ENABLE    1: EVENT lines too
//   ASCEND_SLOG_PRINT_TO_STDOUT   1: lines also go to the standard output
// The file is made with the first line, so a run without lines leaves nothing behind.

#include <atomic>
#include <string>

namespace [[gnu::visibility("hidden")]] acl_sim {

enum class LogLevel { Debug = 0, Info = 1, Warning = 2, Error = 3, None = 4, Event = 5 };

namespace detail {
extern std::atomic<int> log_level;  // -1 until the environment has been read
extern std::atomic<bool> log_events;
int read_log_environment();
}  // namespace detail

inline bool log_enabled(LogLevel level) {
  int least = detail::log_level.load(std::memory_order_relaxed);
  if (__builtin_expect(least < 0, 0)) least = detail::read_log_environment();
  if (level == LogLevel::Event) return detail::log_events.load(std::memory_order_relaxed);
  return static_cast<int>(level) >= least;
}

// Writes one line; module is CANN's name for the part that speaks (ASCENDCL, RUNTIME, GE, APP).
void log_line(LogLevel level, const char* module, const char* file, int line, const std::string& text);

}  // namespace acl_sim
