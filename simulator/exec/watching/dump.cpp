// See Note [Dump] in dump.h.

#include "exec/watching/dump.h"

#include "core/device.h"
#include "core/error.h"
#include "core/executor.h"
#include "core/log.h"
#include "core/stream.h"
#include "exec/compilation/compile.h"
#include "exec/running/context.h"
#include "exec/running/scratch.h"
#include "exec/watching/dump_config.h"
#include "exec/watching/dump_format.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <memory>
#include <mutex>

#include <fcntl.h>
#include <unistd.h>

namespace acl_sim {
namespace {

// One configuration in force. Tickets keep it alive after it was replaced.
struct Session {
  DumpConfig config;
  std::string time;  // of its beginning, a folder's name
  std::atomic<uint64_t> launched{0};
  std::atomic<bool> failed{false};  // after the first file that could not be written, the rest is not tried
};

struct Current {
  std::mutex mutex;
  std::shared_ptr<Session> session;
};

Current& current() {
  static auto* value = new Current;
  return *value;
}

std::string time_text() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::localtime_r(&now, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y%m%d%H%M%S", &parts);
  return text;
}

uint64_t now_us() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::microseconds>(now).count());
}

// A new file that is gone again unless it was completed.
class File {
 public:
  explicit File(std::string path) : path_(std::move(path)) {
    fd_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0640);
  }
  ~File() {
    if (fd_ < 0) return;
    ::close(fd_);
    ::unlink(path_.c_str());
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  bool open() const { return fd_ >= 0; }
  void write(const void* data, size_t bytes) {
    const auto* at = static_cast<const char*>(data);
    while (bytes > 0) {
      const ssize_t done = ::write(fd_, at, std::min(bytes, size_t{1} << 30));
      if (done < 0 && errno == EINTR) continue;
      if (done < 0) refuse();
      at += done;
      bytes -= static_cast<size_t>(done);
    }
  }
  void complete() {
    const int fd = fd_;
    fd_ = -1;
    if (::close(fd) == 0) return;
    const int error = errno;
    ::unlink(path_.c_str());
    errno = error;
    refuse();
  }
  [[noreturn]] void refuse() const {
    throw Error(ACL_ERROR_WRITE_FILE,
                format("the dump file '%s' could not be written: %s", path_.c_str(), std::strerror(errno)));
  }

 private:
  std::string path_;
  int fd_;
};

}  // namespace

struct DumpTicket {
  std::shared_ptr<Session> session;
  uint64_t number;  // of the launch since the session began, from 0
};

namespace detail {

std::atomic<bool> dumping{false};

DumpTicket* make_ticket() {
  auto& c = current();
  std::lock_guard<std::mutex> lock(c.mutex);
  if (!c.session || c.session->failed.load(std::memory_order_relaxed)) return nullptr;
  const uint64_t number = c.session->launched.fetch_add(1, std::memory_order_relaxed);
  return new DumpTicket{c.session, number};
}

}  // namespace detail

void drop_ticket(DumpTicket* ticket) noexcept { delete ticket; }
bool dumps_overflow_only(const DumpTicket& ticket) { return ticket.session->config.overflow_only; }

void start_dump(const std::string& path, const Json& configuration) {
  DumpConfig config = read_dump_config(path, configuration);
  const bool on = config.single_operators || config.overflow_only;
  std::shared_ptr<Session> session;
  if (on) {
    session = std::make_shared<Session>();
    session->config = std::move(config);
    session->time = time_text();
  } else if (log_enabled(LogLevel::Warning)) {
    log_line(LogLevel::Warning, "ASCENDCL", __FILE__, __LINE__,
             path + ": dump_op_switch is off, so operators are not dumped");
  }
  auto& c = current();
  std::lock_guard<std::mutex> lock(c.mutex);
  c.session = std::move(session);
  detail::dumping.store(on, std::memory_order_release);
}

void end_dump() {
  auto& c = current();
  std::lock_guard<std::mutex> lock(c.mutex);
  detail::dumping.store(false, std::memory_order_release);
  c.session.reset();
}

OperandDump::OperandDump(const DumpTicket& ticket, const CompiledOp& op, OpLaunch& launch, Device& device)
    : ticket_(ticket), op_(op), launch_(launch), device_(device) {}

void OperandDump::before() {
  if (ticket_.session->config.inputs) kept_.keep(op_, launch_, device_);
}

void OperandDump::after(const Stream& stream, uint64_t task) {
  Session& session = *ticket_.session;
  if (session.failed.load(std::memory_order_relaxed)) return;
  const DumpConfig& config = session.config;
  const std::string folder = config.path + "/" + session.time + "/" + std::to_string(device_.id) + "/0/0";
  const std::string op_name = op_.def->type + "_" + std::to_string(ticket_.number);
  const std::string stem = folder + "/" + dump_name_part(op_.def->type) + "." + dump_name_part(op_name) + "." +
                           std::to_string(task) + "." + std::to_string(stream.number) + ".";
  try {
    std::error_code error;
    std::filesystem::create_directories(folder, error);
    // Another process may write into the same folder: a name that is taken moves on to the next microsecond.
    uint64_t time = now_us();
    auto file = std::make_unique<File>(stem + std::to_string(time));
    while (!file->open() && errno == EEXIST) file = std::make_unique<File>(stem + std::to_string(++time));
    if (!file->open()) file->refuse();
    const std::string header = dump_header(op_, op_name, time, config.inputs, config.outputs);
    const uint64_t length = header.size();
    file->write(&length, sizeof length);
    file->write(header.data(), header.size());
    const auto put = [&](size_t i, const void* copy) {
      const auto& operand = op_.operand(i);
      if (operand.absent || operand.bytes == 0) return;
      const void* data = copy ? copy : launch_.operand(i);
      const LayoutMap* map = layout_or_null(device_);
      if (copy || operand.host || !map || !map->any(data, operand.bytes)) return file->write(data, operand.bytes);
      const std::unique_ptr<void, void (*)(void*)> plain(take_scratch(operand.bytes), give_scratch);
      {
        const auto use = map->use();
        map->read(data, operand.bytes, plain.get());
      }
      file->write(plain.get(), operand.bytes);
    };
    for (size_t i = 0; config.inputs && i < op_.inputs.size(); ++i) put(i, kept_.of(i));
    for (size_t i = 0; config.outputs && i < op_.outputs.size(); ++i) put(op_.inputs.size() + i, nullptr);
    file->complete();
  } catch (...) {
    session.failed.store(true);
    throw;
  }
}

}  // namespace acl_sim
