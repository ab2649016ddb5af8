#include "core/load.h"

#include "core/clock.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string_view>

#include <fcntl.h>

namespace acl_sim {
namespace {

constexpr int64_t kWindow = 200'000'000;  // ns; /proc/stat counts hundredths of a second
// Cores that others use, from which on the machine is busy, and below which it is not any more.
constexpr double kBusy = 0.3, kQuiet = 0.15;

// Nanoseconds that the process's cores were not idle, for anybody or for the machine's own host; -1 if not told.
int64_t used_ns() {
  cpu_set_t own;
  const int file = ::open("/proc/stat", O_RDONLY | O_CLOEXEC);
  if (file < 0 || ::sched_getaffinity(0, sizeof(own), &own) != 0) {
    if (file >= 0) ::close(file);
    return -1;
  }
  // The lines of the cores come first; of thousands of them the first hundreds do.
  char text[16384];
  const ssize_t bytes = ::read(file, text, sizeof(text) - 1);
  ::close(file);
  if (bytes <= 0) return -1;
  text[bytes] = 0;
  static const int64_t tick = 1'000'000'000 / ::sysconf(_SC_CLK_TCK);
  int64_t sum = 0;
  for (const char* line = text; line;
       line = std::char_traits<char>::find(line, std::char_traits<char>::length(line), '\n')) {
    if (*line == '\n') ++line;
    int core = 0;
    uint64_t user = 0, nice = 0, system = 0, idle = 0, wait = 0, irq = 0, soft = 0, steal = 0;
    if (std::sscanf(
            line, "cpu%d %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64,
            &core, &user, &nice, &system, &idle, &wait, &irq, &soft, &steal) == 9 &&
        core >= 0 && core < CPU_SETSIZE && CPU_ISSET(core, &own)) {
      sum += tick * static_cast<int64_t>(user + nice + system + irq + soft + steal);
    } else if (std::string_view(line).substr(0, 3) != "cpu") {
      break;
    }
  }
  return sum;
}

struct Sample {
  int64_t when = 0, used = -1, own = 0;
};

Sample take_sample() { return {clock_ns(CLOCK_MONOTONIC), used_ns(), clock_ns(CLOCK_PROCESS_CPUTIME_ID)}; }

std::atomic<bool> busy{false};
std::atomic<int64_t> next_look{0};
std::atomic_flag looking = ATOMIC_FLAG_INIT;

void look(int64_t now) {
  if (looking.test_and_set(std::memory_order_acquire)) return;
  static Sample last;
  const Sample sample = take_sample();
  if (last.used >= 0 && sample.used >= 0) {
    const double others = static_cast<double>((sample.used - last.used) - (sample.own - last.own)) /
                          static_cast<double>(sample.when - last.when);
    busy.store(others > (busy.load(std::memory_order_relaxed) ? kQuiet : kBusy), std::memory_order_relaxed);
  }
  last = sample;
  next_look.store(now + kWindow, std::memory_order_relaxed);
  looking.clear(std::memory_order_release);
}

}  // namespace

int64_t grain_of_copies(int64_t quiet) { return machine_is_busy() ? std::max(quiet, int64_t{1} << 18) : quiet; }

bool machine_is_busy() {
  if (const int64_t now = clock_ns(CLOCK_MONOTONIC); now >= next_look.load(std::memory_order_relaxed)) look(now);
  return busy.load(std::memory_order_relaxed);
}

}  // namespace acl_sim
