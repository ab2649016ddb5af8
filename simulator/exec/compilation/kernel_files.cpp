// See Note [Kernel files] and Note [Compile cache on disk].

#include "exec/compilation/kernel_files.h"

#include "core/config.h"
#include "core/json.h"
#include "core/log.h"
#include "exec/compilation/compile.h"

#include <acl/acl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <system_error>

namespace acl_sim {
namespace {

namespace fs = std::filesystem;

constexpr int kRecordVersion = 1;  // of what a record means
constexpr auto kOld = std::chrono::hours(1);

struct State {
  std::mutex mutex;
  KernelFiles wanted;
  bool prepared = false;  // the cache's folder has been cleaned for these options
  bool complained = false;
};

State& state() {
  static auto* value = new State;  // outlives the threads that still run while the process exits
  return *value;
}

std::atomic<bool> active{false};

bool debugs(const KernelFiles& f) { return !f.debug_level.empty() && f.debug_level != "0"; }
bool caches(const KernelFiles& f) {
  return !debugs(f) && (f.cache_mode == "enable" || f.cache_mode == "force") && !f.cache_dir.empty();
}

std::string name_of(const CompiledOp& op, const std::string& text) {
  std::string type = op.def->type;
  std::transform(type.begin(), type.end(), type.begin(), [](unsigned char c) { return std::tolower(c); });
  return "te_" + type + format("_%016llx", static_cast<unsigned long long>(lasting_hash(text)));
}

std::string record_of(const CompiledOp& op, const std::string& text) {
  return "{\n  \"record\": " + std::to_string(kRecordVersion) +
         format(",\n  \"version\": \"%d.%d.%d\"", ACL_MAJOR_VERSION, ACL_MINOR_VERSION, ACL_PATCH_VERSION) +
         ",\n  \"soc\": " + json_text(kSocName) + ",\n  \"type\": " + json_text(op.def->type) +
         ",\n  \"compiled\": " + json_text(text) + "\n}\n";
}

// One line for all that cannot be written until the options change. The caller holds the lock.
void complain(State& s, const fs::path& path, const std::string& reason) {
  if (s.complained) return;
  s.complained = true;
  log_line(LogLevel::Warning, "ASCENDCL", __FILE__, __LINE__,
           "WriteKernelFile: cannot write " + path.string() + ": " + reason + "; operators are compiled without it");
}

void write_or_complain(State& s, const fs::path& path, const std::string& content) {
  std::error_code error;
  fs::create_directories(path.parent_path(), error);
  if (error) return complain(s, path, error.message());
  if (!write_whole(path.string(), content)) complain(s, path, std::strerror(errno));
}

fs::path cache_folder(const KernelFiles& f) { return fs::path(f.cache_dir) / "kernel_cache" / kSocName; }

bool is_record(const fs::path& path) {
  const std::string name = path.filename().string();
  return name.starts_with("te_") && name.ends_with(".json");
}
bool is_temporary(const fs::path& path) {
  const std::string name = path.filename().string();
  return name.starts_with("te_") && name.ends_with(".tmp");
}

// Removes what killed processes have left, and with "force" all records. The caller holds the lock.
void prepare(State& s) {
  if (s.prepared) return;
  s.prepared = true;
  std::error_code error;
  for (fs::directory_iterator it(cache_folder(s.wanted), error), end; !error && it != end; it.increment(error)) {
    std::error_code ignored;
    const bool old = fs::last_write_time(it->path(), ignored) < fs::file_time_type::clock::now() - kOld;
    if ((is_temporary(it->path()) && old) || (s.wanted.cache_mode == "force" && is_record(it->path())))
      fs::remove(it->path(), ignored);
  }
}

// Whether the file holds exactly that.
bool holds(const fs::path& path, const std::string& content) {
  std::FILE* file = std::fopen(path.c_str(), "re");
  if (!file) return false;
  std::string found(content.size() + 1, '\0');  // one more, to see a longer file
  const size_t size = std::fread(found.data(), 1, found.size(), file);
  std::fclose(file);
  return size == content.size() && found.compare(0, size, content) == 0;
}

void write_debug_files(State& s, const CompiledOp& op, const std::string& text) {
  const std::string& level = s.wanted.debug_level;
  const fs::path folder = fs::path(s.wanted.debug_dir.empty() ? "." : s.wanted.debug_dir) / "kernel_meta";
  const std::string name = name_of(op, text), base = (folder / name).string();
  const std::string source =
      "// " + text + "\n" + op.def->type + "(operands, attributes);  // " + op.def->type + " of the simulated device\n";
  const std::string kernel = "\"kernel_name\": " + json_text(name);
  const std::string options = level == "2" ? "-O0 -g" : "-O2";
  write_or_complain(s, base + ".o", record_of(op, text));
  write_or_complain(s, base + ".json",
                    "{\n  " + kernel + ",\n  \"options\": " + json_text(options) + ",\n  \"debug_level\": " + level +
                        ",\n  \"compiled\": " + json_text(text) + "\n}\n");
  if (level != "3") write_or_complain(s, base + ".cce", source);
  if (level == "1" || level == "2")
    write_or_complain(
        s, base + "_loc.json",
        "{\n  " + kernel + ",\n  \"lines\": [{\"cce\": 2, \"operator\": " + json_text(op.def->type) + "}]\n}\n");
  if (level == "4")
    write_or_complain(s, base + "_compute.json",
                      "{\n  " + kernel + ",\n  \"compute\": [" + json_text(op.describe()) + "]\n}\n");
}

}  // namespace

uint64_t lasting_hash(const std::string& text) {
  uint64_t h = 0xCBF29CE484222325ULL;  // FNV-1a
  for (const char c : text) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001B3ULL;
  return h;
}

bool write_whole(const std::string& path, const std::string& content) {
  static std::atomic<uint64_t> next{0};
  const std::string temporary = path + "." + std::to_string(::getpid()) + "." +
                                std::to_string(next.fetch_add(1, std::memory_order_relaxed)) + ".tmp";
  std::FILE* file = std::fopen(temporary.c_str(), "we");
  if (!file) return false;
  bool fine = std::fwrite(content.data(), 1, content.size(), file) == content.size();
  int error = fine ? 0 : errno;
  if (std::fclose(file) != 0 && fine) {
    fine = false;
    error = errno;
  }
  if (fine && std::rename(temporary.c_str(), path.c_str()) == 0) return true;
  if (fine) error = errno;
  std::remove(temporary.c_str());
  errno = error;
  return false;
}

void set_kernel_files(const KernelFiles& wanted) {
  auto& s = state();
  const std::lock_guard<std::mutex> lock(s.mutex);
  s.wanted = wanted;
  s.prepared = s.complained = false;
  active.store(debugs(wanted) || caches(wanted), std::memory_order_relaxed);
}

bool keeps_kernel_files() { return active.load(std::memory_order_relaxed); }

bool find_on_disk(const CompiledOp& op, const std::string& text) {
  auto& s = state();
  const std::lock_guard<std::mutex> lock(s.mutex);
  if (!caches(s.wanted)) return false;
  prepare(s);
  if (s.wanted.cache_mode == "force") return false;
  return holds(cache_folder(s.wanted) / (name_of(op, text) + ".json"), record_of(op, text));
}

void write_kernel_files(const CompiledOp& op, const std::string& text) {
  auto& s = state();
  const std::lock_guard<std::mutex> lock(s.mutex);
  if (debugs(s.wanted)) write_debug_files(s, op, text);
  if (!caches(s.wanted)) return;
  prepare(s);
  write_or_complain(s, cache_folder(s.wanted) / (name_of(op, text) + ".json"), record_of(op, text));
}

}  // namespace acl_sim
