#include "exec/definition/custom.h"

#include "core/environment.h"
#include "core/log.h"
#include "custom_op.h"
#include "exec/definition/registry.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include <dlfcn.h>

namespace acl_sim {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void refuse(const std::string& path, const std::string& reason) {
  throw Error(ACL_ERROR_INVALID_FILE, "ASCEND_CUSTOM_OPP_PATH: " + path + " " + reason);
}

// Collects names for the log, and names the library in the error of a type that exists already.
class Collector final : public CustomOps {
 public:
  explicit Collector(std::string path) : path_(std::move(path)) {}

  OpDef& add(const char* type) override {
    if (!type || !*type) refuse(path_, "defines an operator without a type");
    if (is_defined(type)) refuse(path_, std::string("defines ") + type + ", which exists already; choose another type");
    OpDef& op = register_op(type).costly();
    added_.push_back(&op);
    return op;
  }

  std::string checked_names() const {
    std::string names;
    for (const OpDef* op : added_) {
      if (!op->run_fn) refuse(path_, "defines " + op->type + " without a function to run");
      names += (names.empty() ? "" : ", ") + op->type;
    }
    return names;
  }

 private:
  std::string path_;
  std::vector<const OpDef*> added_;
};

void open_library(const std::string& path) {
  void* handle = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!handle) {
    const char* reason = ::dlerror();
    refuse(path, std::string("cannot be opened: ") + (reason ? reason : "no reason given"));
  }
  const auto* library = static_cast<const CustomOpLibrary*>(::dlsym(handle, "acl_sim_custom_ops"));
  if (!library) refuse(path, "holds no operators: it has no symbol acl_sim_custom_ops, which SIM_CUSTOM_OPS makes");
  if (library->version != kCustomOpVersion || library->definition_bytes != sizeof(OpDef)) {
    refuse(path, format("was built for version %u of the operator interface (definitions of %u bytes), the simulated "
                        "device has version %u (%zu bytes); compile it again against this PyTorch's headers",
                        library->version, library->definition_bytes, kCustomOpVersion, sizeof(OpDef)));
  }
  if (!library->torch || std::strcmp(library->torch, TORCH_VERSION) != 0) {
    refuse(path, format("was built against PyTorch %s, this one is %s; compile it again",
                        library->torch ? library->torch : "of no known version", TORCH_VERSION));
  }
  Collector ops(path);
  try {
    library->define(ops);
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    refuse(path, std::string("failed while it defined its operators: ") + error.what());
  }
  const std::string names = ops.checked_names();
  if (log_enabled(LogLevel::Info))
    log_line(LogLevel::Info, "ASCENDCL", __FILE__, __LINE__, "custom operators of " + path + ": " + names);
}

void load_folder(const std::string& folder) {
  std::error_code failed;
  if (!fs::is_directory(folder, failed)) refuse(folder, "is not a directory");
  const fs::path place = fs::path(folder) / "op_impl" / "simulator";
  // CANN's own custom operator packages have no operators for the simulator; their folder is none of its business.
  if (!fs::is_directory(place, failed)) return;
  std::vector<std::string> libraries;
  for (const auto& entry : fs::directory_iterator(place, failed)) {
    if (entry.path().extension() == ".so") libraries.push_back(entry.path().string());
  }
  if (failed) refuse(place.string(), "cannot be read: " + failed.message());
  std::sort(libraries.begin(), libraries.end());
  for (const auto& library : libraries) open_library(library);
}

struct Outcome {
  std::string problem;
};

Outcome load_all() {
  const char* text = environment("ASCEND_CUSTOM_OPP_PATH");
  try {
    for (std::string rest = text ? text : ""; !rest.empty();) {
      const size_t end = rest.find(':');
      const std::string folder = rest.substr(0, end);
      rest = end == std::string::npos ? "" : rest.substr(end + 1);
      if (!folder.empty()) load_folder(folder);
    }
  } catch (const std::exception& error) {
    return {error.what()};
  }
  return {};
}

}  // namespace

void load_custom_ops() {
  static const Outcome outcome = load_all();
  if (!outcome.problem.empty()) throw Error(ACL_ERROR_INVALID_FILE, outcome.problem);
}

}  // namespace acl_sim
