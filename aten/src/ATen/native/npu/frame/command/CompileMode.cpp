#include <ATen/native/npu/frame/command/CompileMode.h>

#include <ATen/native/npu/frame/command/Launcher.h>
#include <acl_loader.h>
#include <c10/npu/NPUException.h>
#include <c10/npu/NPUOptions.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <mutex>
#include <set>
#include <string>

namespace at::native::npu {

namespace {

std::string upper(std::string name) {
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::toupper(c); });
  return name;
}

struct Modes {
  std::mutex mutex;
  bool read = false;
  bool fuzzy = false;            // for operators that are in neither set
  std::set<std::string> exact;   // IR types
  std::set<std::string> ranges;  // IR types in upper case
};

Modes& modes() {
  static auto* value = new Modes;  // the queue's thread may outlive static destruction
  return *value;
}

std::string trimmed(const std::string& line) {
  const auto end = std::min(line.find('#'), line.size());
  const auto first = line.find_first_not_of(" \t\r");
  if (first >= end) return "";
  return line.substr(first, line.find_last_not_of(" \t\r", end - 1) - first + 1);
}

void set_flag(bool fuzzy) {
  NPU_CHECK(c10::npu::acl::aclopSetCompileFlag(fuzzy ? ACL_OP_COMPILE_FUZZ : ACL_OP_COMPILE_DEFAULT));
}

// Operators that scripts know by their aten name, where the IR operator has another.
void add_range_operator(std::set<std::string>& ranges, const std::string& name) {
  if (name == "DIV") ranges.insert("REALDIV");
  if (name == "EQ") ranges.insert("EQUAL");
  if (name == "MASKFILL") ranges.insert("MASKEDFILL");
  ranges.insert(name);
}

// The caller holds the lock.
void read_environment(Modes& m) {
  if (m.read) return;
  const char* listed = c10::npu::environment("DYNAMIC_OP");
  for (std::string rest = listed ? listed : ""; !rest.empty();) {
    const auto end = rest.find('#');
    if (end != 0) add_range_operator(m.ranges, upper(rest.substr(0, end)));
    rest = end == std::string::npos ? "" : rest.substr(end + 1);
  }
  if (const char* path = c10::npu::environment("DISABLE_DYNAMIC_PATH"); path && *path) {
    std::ifstream file(path);
    TORCH_CHECK_VALUE(file, "Environment variable DISABLE_DYNAMIC_PATH: cannot read the file '", path,
                      "'; it lists the operators that are compiled for exact shapes, one per line");
    for (std::string line; std::getline(file, line);) {
      if (const auto name = trimmed(line); !name.empty()) m.exact.insert(name);
    }
  }
  const char* enabled = c10::npu::environment("DYNAMIC_COMPILE_ENABLE");
  if (!m.fuzzy && enabled && std::strtol(enabled, nullptr, 10) != 0) {
    m.fuzzy = true;
    set_flag(true);
  }
  m.read = true;
}

// Whether some operators are compiled otherwise than the rest. The caller holds the lock.
bool has_exceptions(const Modes& m) { return m.fuzzy ? !m.exact.empty() : !m.ranges.empty(); }

class CompileModeObserver final : public LaunchObserver {
 public:
  aclError execute(const Command& command, aclrtStream stream, c10::function_ref<aclError()> next) override;
};

// There from the start, since the first launch of the process reads the environment.
const std::shared_ptr<CompileModeObserver>& observer() {
  static const auto* value = new std::shared_ptr<CompileModeObserver>(std::make_shared<CompileModeObserver>());
  return *value;
}
[[maybe_unused]] const bool is_registered = [] {
  add_launch_observer(observer(), LaunchPlace::kCompileMode);
  return true;
}();

// The caller holds the lock.
void observe_if_needed(const Modes& m) {
  if (has_exceptions(m)) {
    add_launch_observer(observer(), LaunchPlace::kCompileMode);
  } else {
    remove_launch_observer(observer().get());
  }
}

aclError CompileModeObserver::execute(const Command& command, aclrtStream /*stream*/,
                                      c10::function_ref<aclError()> next) {
  auto& m = modes();
  const std::lock_guard lock(m.mutex);
  if (!m.read) {
    read_environment(m);
    observe_if_needed(m);
  }
  const bool own = m.fuzzy ? m.exact.count(command.ir) == 0 : m.ranges.count(upper(command.ir)) != 0;
  if (own == m.fuzzy) return next();
  // Puts the flag back when the launch throws, too. ACL takes again what it took a moment ago.
  struct Restore {
    bool fuzzy;
    ~Restore() { c10::npu::acl::aclopSetCompileFlag(fuzzy ? ACL_OP_COMPILE_FUZZ : ACL_OP_COMPILE_DEFAULT); }
  } const restore{m.fuzzy};
  set_flag(own);
  return next();
}

}  // namespace

void set_fuzzy_compile(bool on) {
  auto& m = modes();
  const std::lock_guard lock(m.mutex);
  read_environment(m);
  set_flag(on);
  m.fuzzy = on;
  observe_if_needed(m);
}

}  // namespace at::native::npu
