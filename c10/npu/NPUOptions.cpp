// Reads the environment switches and refuses values that they cannot have.

#include <c10/npu/NPUOptions.h>

#include <c10/util/Exception.h>

#include <charconv>
#include <cstdlib>
#include <string_view>

namespace c10::npu {

namespace {

// The value of an integer variable, or `otherwise` when it is unset or empty.
int32_t read_integer(const char* name, int32_t otherwise, int32_t least, int32_t most) {
  const char* text = environment(name);
  if (text == nullptr || *text == '\0') {
    return otherwise;
  }
  const std::string_view view(text);
  int32_t value = 0;
  const auto [end, error] = std::from_chars(view.data(), view.data() + view.size(), value);
  TORCH_CHECK_VALUE(error == std::errc() && end == view.data() + view.size() && value >= least && value <= most,
                    "Environment variable ", name, " must be an integer from ", least, " to ", most, ", but got: '",
                    view, "'");
  return value;
}

Options read_options() {
  constexpr int32_t kMostSeconds = 24 * 3600;
  constexpr int32_t kDefaultSeconds = 30 * 60;
  Options options;
  options.task_queue = static_cast<TaskQueueMode>(read_integer("TASK_QUEUE_ENABLE", 1, 0, 2));
  options.launch_blocking = read_integer("ASCEND_LAUNCH_BLOCKING", 0, 0, 1) == 1;
  options.acl_dump_data = read_integer("ACL_DUMP_DATA", 0, 0, 1) == 1;
  options.saturates =
      read_integer("INF_NAN_MODE_ENABLE", 1, 0, 1) == 0 || read_integer("INF_NAN_MODE_FORCE_DISABLE", 0, 0, 1) == 1;
  read_integer("NPU_FALLBACK", 1, 0, 1);  // read when libraries load, where nothing can be refused
  const int32_t seconds = read_integer("ACL_DEVICE_SYNC_TIMEOUT", kDefaultSeconds, -1, kMostSeconds);
  options.sync_timeout_ms = seconds <= 0 ? -1 : seconds * 1000;
  return options;
}

}  // namespace

const char* environment(const char* name) { return std::getenv(name); }

const Options& options() {
  static const Options instance = read_options();
  return instance;
}

}  // namespace c10::npu
