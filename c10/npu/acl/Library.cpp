// Note [Which library]
// ASCEND_SIMULATOR decides by hand: `on` opens the simulator, `off` CANN or nothing. Otherwise CANN's libascendcl.so,
// or libacl_rt.so, is tried in ASCEND_HOME_PATH, then ASCEND_TOOLKIT_HOME, then on the library path; it is used when it
// loads and reports a device. Libraries that load without a device, or that an environment variable promises but that
// do not load, give the simulator and one warning; a machine without CANN gives the simulator silently.
#include <c10/npu/acl/Library.h>

#include <acl/acl_base.h>
#include <c10/npu/NPUOptions.h>
#include <c10/util/Exception.h>

#include <dlfcn.h>
#include <glob.h>
#include <sys/stat.h>

#include <cstdio>
#include <cstring>
#include <fstream>
#include <memory>
#include <mutex>
#include <vector>

namespace c10::npu::acl {
namespace {

// Of the simulator, and of CANN up to the releases that have libraries by header only.
constexpr const char* kSoname = "libascendcl.so";

struct Opened {
  LibraryKind kind = LibraryKind::Simulator;
  std::string path;
  std::vector<void*> handles;     // one per entry of kLibraries, nullptr where it could not be opened
  std::vector<void*> companions;  // of CANN, opened when a function is in none of those
  std::once_flag companions_opened;
  std::mutex own_mutex;  // of the simulator's further libraries, opened at need
  std::string own_problem;
};

// What was seen on the way, to explain a choice or a failure.
struct Attempt {
  std::string path;
  std::string problem;
};

std::string variable(const char* name) {
  const char* value = environment(name);
  return value ? value : "";
}

bool exists(const std::string& path) {
  struct stat unused;
  return ::stat(path.c_str(), &unused) == 0;
}

bool matches(const char* pattern) {
  glob_t found;
  const bool any = ::glob(pattern, 0, nullptr, &found) == 0 && found.gl_pathc > 0;
  ::globfree(&found);
  return any;
}

std::string directory_of(const std::string& path) {
  const auto slash = path.rfind('/');
  return slash == std::string::npos ? std::string() : path.substr(0, slash + 1);
}

std::string path_of(void* address, const std::string& otherwise) {
  Dl_info info;
  return ::dladdr(address, &info) && info.dli_fname ? info.dli_fname : otherwise;
}

// dlerror() begins with the path, which our own texts name already.
std::string without_prefix(const std::string& text, const std::string& path) {
  return text.compare(0, path.size() + 2, path + ": ") == 0 ? text.substr(path.size() + 2) : text;
}

std::vector<std::string> cann_candidates() {
  // The first entry of the table is the library that has the runtime.
  const auto& sonames = detail::kLibraries[0].sonames;
  std::vector<std::string> paths;
  for (const char* name : {"ASCEND_HOME_PATH", "ASCEND_TOOLKIT_HOME"}) {
    const std::string root = variable(name);
    if (root.empty()) continue;
    bool found = false;
    for (const char* soname : sonames) {
      for (const char* below : {"/lib64/", "/runtime/lib64/", "/fwkacllib/lib64/"}) {
        if (*soname == '\0' || !exists(root + below + soname)) continue;
        paths.push_back(root + below + soname);
        found = true;
      }
    }
    if (!found) paths.push_back(root + "/lib64/" + kSoname);  // what is missing is told by this name
  }
  for (const char* soname : sonames) {
    if (*soname != '\0') paths.emplace_back(soname);
  }
  return paths;
}

// CANN's library with at least one device behind it, or nullptr and the reasons.
void* open_cann(std::string& path, std::vector<Attempt>& attempts) {
  for (const auto& candidate : cann_candidates()) {
    ::dlerror();
    void* handle = ::dlopen(candidate.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!handle) {
      const char* why = ::dlerror();
      attempts.push_back({candidate, without_prefix(why ? why : "cannot be opened", candidate)});
      continue;
    }
    if (::dlsym(handle, "aclsimGetCounters")) {
      attempts.push_back({candidate, "is the simulator's"});
      ::dlclose(handle);
      continue;
    }
    auto* count_devices = reinterpret_cast<aclError (*)(uint32_t*)>(::dlsym(handle, "aclrtGetDeviceCount"));
    if (!count_devices) {
      attempts.push_back({candidate, "has no aclrtGetDeviceCount"});
      ::dlclose(handle);
      continue;
    }
    path = path_of(reinterpret_cast<void*>(count_devices), candidate);
    uint32_t count = 0;
    const aclError error = count_devices(&count);
    if (error == ACL_SUCCESS && count > 0) return handle;
    attempts.push_back({path, error == ACL_SUCCESS ? "reports no device"
                                                   : "fails to count devices with error " + std::to_string(error)});
    return nullptr;  // the libraries are here, the card is not: other copies would say the same
  }
  return nullptr;
}

std::string what_is_missing(const std::vector<Attempt>& attempts) {
  std::string text;
  if (!exists("/usr/local/Ascend/driver") && !exists("/dev/davinci_manager")) {
    text +=
        "\n  - the driver: neither /usr/local/Ascend/driver nor /dev/davinci_manager exists; install the Ascend driver "
        "and firmware";
  }
  if (!matches("/dev/davinci[0-9]*")) {
    text +=
        "\n  - device nodes: there is no /dev/davinci0; in a container pass --device /dev/davinci0 --device "
        "/dev/davinci_manager";
  }
  if (variable("ASCEND_HOME_PATH").empty() && variable("ASCEND_TOOLKIT_HOME").empty()) {
    text +=
        "\n  - the environment: ASCEND_HOME_PATH is not set; run 'source /usr/local/Ascend/ascend-toolkit/set_env.sh' "
        "(/usr/local/Ascend/cann/set_env.sh from CANN 8.5 on)";
  }
  for (const auto& a : attempts) text += "\n  - " + a.path + ": " + a.problem;
  return text;
}

std::string simulator_path() {
  static const char marker = 0;
  return directory_of(path_of(const_cast<char*>(&marker), "")) + "ascend_sim/" + kSoname;
}

void open_simulator(Opened& opened) {
  opened.kind = LibraryKind::Simulator;
  opened.path = simulator_path();
  ::dlerror();
  void* handle = ::dlopen(opened.path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!handle) {
    const char* why = ::dlerror();
    TORCH_CHECK(false, "the simulated NPU cannot be opened: ", why ? why : opened.path.c_str(),
                " (is the torch wheel installed whole?)");
  }
  // The simulator has everything in the one library, but for what is opened at need.
  for (size_t i = 0; i < detail::kLibraryCount; ++i)
    opened.handles.push_back(detail::kLibraries[i].simulators_own ? nullptr : handle);
}

// A library of the simulator besides its first, or nullptr.
void* own_library(Opened& opened, size_t index) {
  const auto& library = detail::kLibraries[index];
  std::lock_guard<std::mutex> lock(opened.own_mutex);
  auto& handle = opened.handles[index];
  if (!handle) {
    ::dlerror();
    const std::string path = directory_of(opened.path) + library.sonames[0];
    handle = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    const char* why = handle ? nullptr : ::dlerror();
    if (why) opened.own_problem = why;
  }
  return handle;
}

// A library of CANN that lies beside the first one, or on the library path.
void* open_beside(const std::string& first, const char* soname) {
  if (*soname == '\0') return nullptr;
  for (const std::string& path : {directory_of(first) + soname, std::string(soname)}) {
    void* handle = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle && !::dlsym(handle, "aclsimGetCounters")) return handle;
    if (handle) ::dlclose(handle);  // the simulator's, which the library path has, too
  }
  return nullptr;
}

// Looks into what is open, then into the libraries that CANN's newer releases keep parts of the interface in.
void* find_function(Opened& opened, const detail::FunctionEntry& entry) {
  const auto& library = detail::kLibraries[entry.library];
  if (opened.kind == LibraryKind::Simulator && library.simulators_own) {
    void* own = own_library(opened, static_cast<size_t>(entry.library));
    return own ? ::dlsym(own, entry.name) : nullptr;
  }
  if (void* own = opened.handles[static_cast<size_t>(entry.library)]) {
    if (void* address = ::dlsym(own, entry.name)) return address;
  }
  if (opened.kind != LibraryKind::CANN || library.simulator_only || *entry.since == '\0') return nullptr;
  for (void* handle : opened.handles) {
    void* address = handle ? ::dlsym(handle, entry.name) : nullptr;
    if (address) return address;
  }
  std::call_once(opened.companions_opened, [&opened] {
    for (size_t i = 0; i < detail::kCompanionCount; ++i) {
      if (void* handle = open_beside(opened.path, detail::kCompanions[i])) opened.companions.push_back(handle);
    }
  });
  for (void* handle : opened.companions) {
    if (void* address = ::dlsym(handle, entry.name)) return address;
  }
  return nullptr;
}

// What the installation calls itself: "CANN 8.1.RC1", "AscendCL 1.13.0" where only the interface tells its version.
std::string cann_version(Opened& opened) {
  std::vector<std::string> roots;
  for (const char* name : {"ASCEND_HOME_PATH", "ASCEND_TOOLKIT_HOME"}) {
    const std::string root = variable(name);
    if (!root.empty() && opened.path.compare(0, root.size(), root) == 0) roots.push_back(root + "/");
  }
  roots.push_back(directory_of(opened.path) + "../");
  for (const auto& root : roots) {
    for (const char* name : {"runtime/version.info", "share/info/runtime/version.info", "version.info"}) {
      std::ifstream file(root + name);
      for (std::string line; std::getline(file, line);) {
        if (line.compare(0, 8, "Version=") == 0) return "CANN " + line.substr(8);
      }
    }
  }
  void* address = ::dlsym(opened.handles[0], "aclrtGetVersion");
  int32_t major = 0, minor = 0, patch = 0;
  auto* ask = reinterpret_cast<aclError (*)(int32_t*, int32_t*, int32_t*)>(address);
  if (ask && ask(&major, &minor, &patch) == ACL_SUCCESS)
    return "AscendCL " + std::to_string(major) + "." + std::to_string(minor) + "." + std::to_string(patch);
  return "a CANN that does not tell its release";
}

void open_companions(Opened& opened, void* first) {
  opened.kind = LibraryKind::CANN;
  for (size_t i = 0; i < detail::kLibraryCount; ++i) {
    const auto& entry = detail::kLibraries[i];
    void* handle = i == 0 ? first : nullptr;
    for (const char* soname : entry.sonames) {
      // No library of CANN has the simulator's functions.
      if (!handle && !entry.simulator_only) handle = open_beside(opened.path, soname);
    }
    opened.handles.push_back(handle);
  }
  std::string missing;
  for (size_t i = 0; i < detail::kFunctionCount; ++i) {
    const auto& f = detail::kFunctions[i];
    if (f.required && !find_function(opened, f))
      missing += (missing.empty() ? "" : ", ") + std::string(f.name) + " (CANN " + f.since + ")";
  }
  TORCH_CHECK(missing.empty(), "The CANN at ", opened.path, " (", cann_version(opened), ") lacks ", missing,
              "; use CANN 5.1 or later, or ASCEND_SIMULATOR=on for the simulated NPU");
}

Opened* open_library() {
  const std::string choice = variable("ASCEND_SIMULATOR");
  TORCH_CHECK(choice.empty() || choice == "on" || choice == "off" || choice == "auto", "ASCEND_SIMULATOR is '", choice,
              "'; it can be on (the simulated NPU), off (a real card), or auto");
  auto opened = std::make_unique<Opened>();
  if (choice == "on") {
    open_simulator(*opened);
    return opened.release();  // lives as long as the process: threads may call through it while it exits
  }
  std::vector<Attempt> attempts;
  if (void* handle = open_cann(opened->path, attempts)) {
    open_companions(*opened, handle);
    return opened.release();
  }
  TORCH_CHECK(choice != "off",
              "ASCEND_SIMULATOR=off, but no Ascend NPU can be used here. Missing:", what_is_missing(attempts));
  const bool promised = !variable("ASCEND_HOME_PATH").empty() || !variable("ASCEND_TOOLKIT_HOME").empty();
  // The last attempt without an environment variable is the bare name; its absence is the ordinary machine.
  const bool found = !attempts.empty() && (promised || !opened->path.empty());
  if (found) {
    const auto& told = opened->path.empty() ? attempts.front() : attempts.back();
    std::fprintf(stderr,
                 "Warning: no Ascend NPU is used: %s: %s. Using the simulated NPU; ASCEND_SIMULATOR=on chooses it "
                 "without this line.\n",
                 told.path.c_str(), told.problem.c_str());
  }
  open_simulator(*opened);
  return opened.release();
}

std::atomic<Opened*> current{nullptr};

Opened& library() {
  if (auto* opened = current.load(std::memory_order_acquire)) return *opened;
  static std::mutex mutex;
  std::lock_guard<std::mutex> lock(mutex);
  if (!current.load(std::memory_order_relaxed)) current.store(open_library(), std::memory_order_release);
  return *current.load(std::memory_order_relaxed);
}

void* find(const detail::FunctionEntry& entry) { return find_function(library(), entry); }

const detail::FunctionEntry* entry_of(const char* name) {
  for (size_t i = 0; i < detail::kFunctionCount; ++i) {
    if (std::strcmp(detail::kFunctions[i].name, name) == 0) return &detail::kFunctions[i];
  }
  return nullptr;
}

}  // namespace

LibraryKind library_kind() { return library().kind; }
const std::string& library_path() { return library().path; }
bool library_is_open() { return current.load(std::memory_order_acquire) != nullptr; }

bool has_function(const char* name) {
  const auto* entry = entry_of(name);
  return entry && find(*entry) != nullptr;
}

std::string about_missing_function(const char* name) {
  const auto* entry = entry_of(name);
  Opened* opened = current.load(std::memory_order_acquire);
  std::string text = name;
  if (!entry || !opened) return text + " is not part of the AscendCL interface used here";
  text += std::string(" is not in ") + detail::kLibraries[entry->library].sonames[0] + " of " + opened->path;
  if (opened->kind == LibraryKind::Simulator) {
    std::lock_guard<std::mutex> lock(opened->own_mutex);
    return opened->own_problem.empty() ? text : text + " (" + opened->own_problem + ")";
  }
  text += " (" + cann_version(*opened) + ")";
  return text + (*entry->since ? std::string("; CANN ") + entry->since + " has it" : "; only the simulated NPU has it");
}

void* detail::resolve(size_t index) {
  auto& entry = kFunctions[index];
  void* address = find(entry);
  TORCH_CHECK(address != nullptr, about_missing_function(entry.name));
  entry.address.store(address, std::memory_order_release);
  return address;
}

}  // namespace c10::npu::acl
