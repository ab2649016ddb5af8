#include "core/config.h"

#include "core/environment.h"
#include "core/error.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>

namespace acl_sim {
namespace {

bool read_number(const char* text, const char** end, unsigned long long* value) {
  if (*text < '0' || *text > '9') return false;
  char* stop = nullptr;
  errno = 0;
  *value = std::strtoull(text, &stop, 10);
  *end = stop;
  return errno == 0;
}

void read_integer(const char* name, long long least, long long most, long long* value, std::string* problem) {
  const char* text = environment(name);
  if (!text || !*text) return;
  const char* end = nullptr;
  unsigned long long number = 0;
  if (!read_number(text, &end, &number) || *end || number < static_cast<unsigned long long>(least) ||
      number > static_cast<unsigned long long>(most)) {
    *problem = format("%s='%s' is refused: it must be a whole number from %lld to %lld", name, text, least, most);
    return;
  }
  *value = static_cast<long long>(number);
}

void read_size(const char* name, size_t least, size_t* value, std::string* problem) {
  const char* text = environment(name);
  if (!text || !*text) return;
  const char* end = nullptr;
  unsigned long long number = 0;
  bool good = read_number(text, &end, &number);
  if (good && *end) {
    const char* suffixes = "KMG";
    const char* found = std::strchr(suffixes, *end >= 'a' ? *end - 'a' + 'A' : *end);
    good = found && (end[1] == '\0' || ((end[1] == 'B' || end[1] == 'b') && end[2] == '\0'));
    if (good) number <<= 10 * (found - suffixes + 1);
  }
  if (!good || number < least || number > (1ULL << 40)) {
    *problem = format("%s='%s' is refused: it must be a size such as 536870912, 512M or 8G, from %zu bytes to 1024G",
                      name, text, least);
    return;
  }
  *value = number;
}

void read_operators(bool* documented_only, std::string* problem) {
  const char* text = environment("ASCEND_SIM_OPERATORS");
  if (!text || !*text) return;
  const std::string value = text;
  *documented_only = value == "cann";
  if (value != "all" && value != "cann") {
    *problem = format(
        "ASCEND_SIM_OPERATORS='%s' is refused: it must be all, or cann for those operators only that CANN documents",
        text);
  }
}

std::vector<int> read_visible(int physical) {
  std::vector<int> visible;
  const char* text = environment("ASCEND_RT_VISIBLE_DEVICES");
  if (!text) {
    for (int i = 0; i < physical; ++i) visible.push_back(i);
    return visible;
  }
  while (*text) {
    while (*text == ' ') ++text;
    const char* end = nullptr;
    unsigned long long number = 0;
    if (!read_number(text, &end, &number) || number >= static_cast<unsigned long long>(physical)) break;
    bool repeated = false;
    for (int seen : visible) repeated |= seen == static_cast<int>(number);
    if (repeated) break;
    visible.push_back(static_cast<int>(number));
    while (*end == ' ') ++end;
    if (*end != ',') break;
    text = end + 1;
  }
  return visible;
}

Config read() {
  Config c;
  long long number = c.physical_devices;
  read_integer("ASCEND_SIM_DEVICE_COUNT", 1, 64, &number, &c.problem);
  c.physical_devices = static_cast<int>(number);
  read_size("ASCEND_SIM_MEMORY", size_t{4} << 20, &c.memory, &c.problem);
  c.memory = (c.memory + 4095) & ~size_t{4095};
  number = 0;
  read_integer("ASCEND_SIM_THREADS", 1, 1024, &number, &c.problem);
  c.threads = static_cast<int>(number);
  number = c.tiny_elements;
  read_integer("ASCEND_SIM_TINY", 0, 1LL << 40, &number, &c.problem);
  c.tiny_elements = number;
  read_operators(&c.documented_only, &c.problem);
  c.visible = read_visible(c.physical_devices);
  return c;
}

}  // namespace

const Config& config() {
  static const Config* value = new Config(read());  // outlives the threads that still run while the process exits
  return *value;
}

void check_config() {
  if (!config().problem.empty()) throw Error(ACL_ERROR_INVALID_PARAM, config().problem);
}

}  // namespace acl_sim
