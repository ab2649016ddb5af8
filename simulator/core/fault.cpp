#include "core/fault.h"

#include "core/device.h"
#include "core/environment.h"
#include "core/error.h"

#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <vector>

namespace acl_sim {
namespace detail {
std::atomic<int> faults_armed{-1};
}  // namespace detail

namespace {

struct Fault {
  enum Kind { Scale, Error, Hang, Oom, Lost } kind;
  std::string type;
  float scale = 1;
  uint64_t at = 0;
  uint64_t seen = 0;
};

struct State {
  std::mutex mutex;
  std::vector<Fault> faults;
  std::string problem;
};

State& state() {
  static auto* value = new State;
  return *value;
}

[[noreturn]] void refuse(const std::string& entry, const char* reason) {
  throw acl_sim::Error(ACL_ERROR_INVALID_PARAM, "the fault '" + entry + "' is refused: " + reason +
                                                    "; write OPTYPE:scale=F@N, OPTYPE:error@N, OPTYPE:hang@N, "
                                                    "malloc:oom@N or device:lost@N, separated by commas");
}

Fault parse_entry(const std::string& entry) {
  const auto colon = entry.find(':');
  const auto mark = entry.rfind('@');
  if (colon == std::string::npos || colon == 0) refuse(entry, "it names no operator type");
  if (mark == std::string::npos || mark < colon) refuse(entry, "it does not say at which occurrence (@N)");
  Fault fault;
  fault.type = entry.substr(0, colon);
  for (char c : fault.type) {
    if (!std::isalnum(static_cast<unsigned char>(c)) && c != '_')
      refuse(entry, "an operator type has letters, digits and _ only");
  }
  const std::string what = entry.substr(colon + 1, mark - colon - 1), number = entry.substr(mark + 1);
  char* end = nullptr;
  errno = 0;
  fault.at = std::strtoull(number.c_str(), &end, 10);
  if (number.empty() || *end || errno || fault.at == 0 || number[0] == '-' || number[0] == '+')
    refuse(entry, "N must be a whole number from 1");
  const bool on_malloc = fault.type == "malloc", on_device = fault.type == "device";
  if (what == "oom" && on_malloc) {
    fault.kind = Fault::Oom;
  } else if (what == "lost" && on_device) {
    fault.kind = Fault::Lost;
  } else if (on_malloc || on_device) {
    refuse(entry, on_malloc ? "memory can only be oom" : "a device can only be lost");
  } else if (what == "error") {
    fault.kind = Fault::Error;
  } else if (what == "hang") {
    fault.kind = Fault::Hang;
  } else if (what.compare(0, 6, "scale=") == 0) {
    fault.kind = Fault::Scale;
    errno = 0;
    fault.scale = std::strtof(what.c_str() + 6, &end);
    if (what.size() == 6 || *end || errno || !std::isfinite(fault.scale)) refuse(entry, "F must be a finite number");
  } else {
    refuse(entry, "there is no such fault");
  }
  return fault;
}

std::vector<Fault> parse(const std::string& text) {
  std::vector<Fault> faults;
  size_t begin = 0;
  while (!text.empty() && begin <= text.size()) {
    size_t end = text.find(',', begin);
    if (end == std::string::npos) end = text.size();
    size_t first = begin, last = end;
    while (first < last && text[first] == ' ') ++first;
    while (last > first && text[last - 1] == ' ') --last;
    faults.push_back(parse_entry(text.substr(first, last - first)));
    begin = end + 1;
  }
  return faults;
}

}  // namespace

void set_faults(const std::string& specification) {
  auto faults = parse(specification);
  auto& s = state();
  std::lock_guard<std::mutex> lock(s.mutex);
  s.faults = std::move(faults);
  s.problem.clear();
  detail::faults_armed.store(s.faults.empty() ? 0 : 1);
}

void detail::read_fault_environment() {
  auto& s = state();
  std::lock_guard<std::mutex> lock(s.mutex);
  if (faults_armed.load() >= 0) return;
  const char* text = environment("ASCEND_SIM_FAULT");
  try {
    if (text) s.faults = parse(text);
  } catch (const acl_sim::Error& error) {
    s.problem = std::string("ASCEND_SIM_FAULT: ") + error.what();
  }
  faults_armed.store(s.faults.empty() ? 0 : 1);
}

void check_faults() {
  if (detail::faults_armed.load() < 0) detail::read_fault_environment();
  auto& s = state();
  std::lock_guard<std::mutex> lock(s.mutex);
  if (!s.problem.empty()) throw Error(ACL_ERROR_INVALID_PARAM, s.problem);
}

bool detail::fault_launch(const char* type, OpLaunch& launch, Device& device) {
  if (faults_armed.load() < 0) read_fault_environment();
  auto& s = state();
  std::lock_guard<std::mutex> lock(s.mutex);
  bool lost = false;
  for (auto& fault : s.faults) {
    if (fault.kind == Fault::Lost) {
      if (++fault.seen == fault.at) {
        device.lost.store(true);
        lost = true;
      }
    } else if (fault.type == type && ++fault.seen == fault.at) {
      launch.fault = fault.kind == Fault::Scale  ? OpFault::Scale
                     : fault.kind == Fault::Hang ? OpFault::Hang
                                                 : OpFault::Error;
      launch.fault_scale = fault.scale;
    }
  }
  return lost;
}

bool detail::fault_malloc() {
  if (faults_armed.load() < 0) read_fault_environment();
  auto& s = state();
  std::lock_guard<std::mutex> lock(s.mutex);
  bool due = false;
  for (auto& fault : s.faults) {
    if (fault.kind == Fault::Oom && ++fault.seen == fault.at) due = true;
  }
  return due;
}

}  // namespace acl_sim
