// See Note [Knowledge base].

#include "exec/compilation/knowledge.h"

#include "core/config.h"
#include "core/environment.h"
#include "core/error.h"
#include "core/json.h"
#include "core/log.h"

#include <acl/acl.h>
#include <torch/headeronly/version.h>

#include <algorithm>
#include <atomic>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <thread>
#include <unordered_map>

namespace acl_sim {
namespace {

namespace fs = std::filesystem;

constexpr int kFormat = 1;  // of what the file means

std::string given(const char* variable) {
  const char* value = environment(variable);
  return value ? value : "";
}

fs::path base_file() {
  fs::path folder;
  if (const std::string own = given("TUNE_BANK_PATH"); !own.empty()) {
    folder = own;
  } else if (const std::string cache = given("ASCEND_CACHE_PATH"); !cache.empty()) {
    folder = fs::path(cache) / "aoe_data";
  } else if (const std::string home = given("HOME"); !home.empty()) {
    folder = fs::path(home) / "Ascend/latest/data/aoe/custom/op";
  } else {
    return {};
  }
  return folder / kSocName / "knowledge.json";
}

bool is_enabled() {
  std::string value = given("ENABLE_TUNE_BANK");
  std::transform(value.begin(), value.end(), value.begin(), [](unsigned char c) { return std::tolower(c); });
  return value != "false";
}

std::string cpu_model() {
  std::ifstream file("/proc/cpuinfo");
  std::string vendor, family;
  for (std::string line; std::getline(file, line);) {
    const auto colon = line.find(": ");
    if (colon == std::string::npos) continue;
    const std::string value = line.substr(colon + 2);
    if (line.starts_with("model name")) return value;
    if (line.starts_with("CPU implementer")) vendor = value;
    if (line.starts_with("CPU part")) family = value;
    if (!vendor.empty() && !family.empty()) break;
  }
  return "implementer " + vendor + ", part " + family;
}

int cores() {
  const int told = config().threads;
  return told > 0 ? told : std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

// Where choices are measured, as the file says it.
struct Place {
  std::string library = format("%d.%d.%d", ACL_MAJOR_VERSION, ACL_MINOR_VERSION, ACL_PATCH_VERSION);
  std::string torch = TORCH_VERSION;
  std::string cpu = cpu_model();
  int threads = cores();
};

struct Base {
  fs::path file = base_file();
  Place place;
  std::string status = "none";  // or read, broken, foreign, off
  std::string reason;
  std::unordered_map<std::string, std::string> choices;
  std::atomic<uint64_t> used{0};

  Base() {
    std::error_code error;
    if (!is_enabled()) {
      status = "off";
      return;
    }
    if (file.empty() || !fs::exists(file, error)) return;
    try {
      read(read_json_file(file.string()));
    } catch (const Error& problem) {
      refuse("broken", problem.what());
    }
  }

 private:
  void refuse(const char* as, const std::string& why) {
    choices.clear();
    status = as;
    reason = why;
    log_line(LogLevel::Warning, "ASCENDCL", __FILE__, __LINE__,
             "the knowledge base " + file.string() + " is not used: " + why);
  }
  static std::string text_of(const Json& root, const char* name) {
    const Json* found = root.find(name);
    return found && found->kind == Json::Kind::Text ? found->text : std::string();
  }
  static double number_of(const Json& root, const char* name) {
    const Json* found = root.find(name);
    return found && found->kind == Json::Kind::Number ? found->number : -1;
  }
  void read(const Json& root) {
    if (number_of(root, "format") != kFormat) return refuse("broken", "its format is another, or not told");
    const auto differs = [&](const char* what, const std::string& there, const std::string& here) {
      if (there == here) return false;
      refuse("foreign", format("its %s is '%s', here it is '%s'", what, there.c_str(), here.c_str()));
      return true;
    };
    if (differs("library", text_of(root, "library"), place.library) ||
        differs("torch", text_of(root, "torch"), place.torch) || differs("cpu", text_of(root, "cpu"), place.cpu) ||
        differs("threads", format("%d", static_cast<int>(number_of(root, "threads"))), format("%d", place.threads)))
      return;
    const Json* operators = root.find("operators");
    if (!operators || operators->kind != Json::Kind::Object) return refuse("broken", "it lists no operators");
    for (const auto& [identity, entry] : operators->members) {
      const std::string choice = entry.kind == Json::Kind::Object ? text_of(entry, "choice") : std::string();
      if (choice.empty()) return refuse("broken", "an operator has no choice: " + identity);
      choices[identity] = choice;
    }
    status = "read";
  }
};

Base& base() {
  static auto* value = new Base;  // outlives the threads that still run while the process exits
  return *value;
}

}  // namespace

bool knows_choices() {
  static const bool any = !base().choices.empty();
  return any;
}

std::string known_choice(const std::string& identity) {
  Base& b = base();
  const auto found = b.choices.find(identity);
  if (found == b.choices.end()) return {};
  b.used.fetch_add(1, std::memory_order_relaxed);
  return found->second;
}

std::string describe_knowledge() {
  const Base& b = base();
  return "{\"file\": " + json_text(b.file.string()) + ", \"status\": " + json_text(b.status) +
         ", \"reason\": " + json_text(b.reason) +
         format(", \"operators\": %zu, \"used\": %llu", b.choices.size(),
                static_cast<unsigned long long>(b.used.load())) +
         format(", \"place\": {\"format\": %d, \"library\": ", kFormat) + json_text(b.place.library) +
         ", \"torch\": " + json_text(b.place.torch) + ", \"cpu\": " + json_text(b.place.cpu) +
         format(", \"threads\": %d}}", b.place.threads);
}

}  // namespace acl_sim
