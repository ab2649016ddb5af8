// All streams of the process: making and ending them, finding them by handle, and waiting for those of a device.

#include "core/capture.h"
#include "core/context.h"
#include "core/device.h"
#include "core/error.h"
#include "core/handles.h"
#include "core/process.h"
#include "core/stream.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <vector>

namespace acl_sim {
namespace {

using Clock = std::chrono::steady_clock;
using StreamPool = HandlePool<Stream, 2048>;

constexpr int64_t kFreePatienceMs = 10000;
constexpr auto kExitPatience = std::chrono::seconds(60);

StreamPool& pool() {
  static auto* value = new StreamPool;
  return *value;
}

}  // namespace

void Stream::destroy(bool drop_work) {
  if (capturing()) abandon_capture(*this);
  if (drop_work) abort();
  wait(last_submitted(), -1);
  alive.store(false, std::memory_order_release);
  device->counters.direct_ops_of_old_streams.fetch_add(direct_ops_.exchange(0));
  lives.fetch_add(1);
  pool().give(this);
}

bool is_default_stream(const Stream& stream) { return stream.context && stream.context->default_stream == &stream; }

Stream& create_stream(Context& context, uint32_t flags, int32_t priority) {
  Stream* stream = pool().take();
  if (!stream) throw Error(ACL_ERROR_RT_NO_STREAM_RESOURCE, "too many streams");
  stream->prepare(context.device, &context, flags, priority);
  stream->alive.store(true, std::memory_order_release);
  return *stream;
}

Stream& stream_of(aclrtStream handle) {
  if (!handle) return *current_context().default_stream;
  if (Stream* stream = pool().check(handle)) return *stream;
  throw Error(ACL_ERROR_RT_INVALID_HANDLE, format("%p is no stream", handle));
}

Stream& submit_stream_of(aclrtStream handle) {
  Context& context = current_context();
  if (!handle) return *context.default_stream;
  Stream* stream = pool().check(handle);
  if (!stream) throw Error(ACL_ERROR_RT_INVALID_HANDLE, format("%p is no stream", handle));
  if (__builtin_expect(stream->device != context.device, 0)) {
    throw Error(ACL_ERROR_RT_STREAM_CONTEXT,
                format("the stream belongs to device %d, the calling thread works with device %d", stream->device->id,
                       context.device->id));
  }
  return *stream;
}

namespace {

aclError wait_for(Stream& stream, int64_t timeout_ms) {
  if (stream.wait(stream.last_submitted(), timeout_ms)) return ACL_SUCCESS;
  return fail(ACL_ERROR_RT_STREAM_SYNC_TIMEOUT,
              format("stream %u of device %d was not done in time", stream.number, stream.device->id));
}

// What a stream that has been waited for has to tell.
aclError take_result(Stream& stream) {
  if (stream.device->lost.load())
    return report(ACL_ERROR_RT_LOST_HEARTBEAT, format("device %d is lost", stream.device->id));
  std::string text;
  const aclError code = stream.take_error(&text);
  return code == ACL_SUCCESS ? ACL_SUCCESS : report(code, text);
}

}  // namespace

aclError synchronize(Stream& stream, int64_t timeout_ms) {
  const aclError code = wait_for(stream, timeout_ms);
  return code == ACL_SUCCESS ? take_result(stream) : code;
}

aclError synchronize_device(Device& device, int64_t timeout_ms) {
  const auto end = Clock::now() + std::chrono::milliseconds(timeout_ms < 0 ? 0 : timeout_ms);
  std::vector<Stream*> waited;
  aclError first = ACL_SUCCESS;
  pool().each([&](Stream& stream) {
    if (stream.device != &device || first != ACL_SUCCESS) return;
    int64_t left = -1;
    if (timeout_ms >= 0) {
      left = std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now()).count();
      if (left < 0) left = 0;
    }
    first = wait_for(stream, left);
    waited.push_back(&stream);
  });
  // After a time-out all streams keep their errors for the next wait.
  if (first != ACL_SUCCESS) return first;
  std::string first_text;
  for (Stream* stream : waited) {
    const aclError code = take_result(*stream);
    if (code != ACL_SUCCESS && first == ACL_SUCCESS) {
      first = code;
      const char* text = take_recent_message();
      first_text = text ? text + sizeof("E000000: ") - 1 : "";
    }
  }
  return first == ACL_SUCCESS ? ACL_SUCCESS : report(first, first_text);
}

std::vector<StreamMark> mark_streams() {
  std::vector<StreamMark> marks;
  pool().each([&](Stream& stream) {
    if (!stream.idle()) marks.push_back({&stream, stream.last_submitted()});
  });
  return marks;
}

bool have_passed(const std::vector<StreamMark>& marks) {
  return std::all_of(marks.begin(), marks.end(), [](const StreamMark& m) { return m.stream->has_run(m.id); });
}

uint64_t busy_ns_of(const Device& device) {
  uint64_t sum = device.counters.busy_ns.load(std::memory_order_acquire);
  pool().each([&](Stream& stream) { sum += stream.device == &device ? stream.busy_for() : 0; });
  return sum;
}

uint64_t direct_ops_of(const Device& device) {
  uint64_t sum = device.counters.direct_ops_of_old_streams.load();
  pool().each([&](Stream& stream) { sum += stream.device == &device ? stream.direct_ops() : 0; });
  return sum;
}

void drain_device(const Device& device) {
  pool().each([&](Stream& stream) {
    if (stream.device == &device && !stream.idle()) stream.wait(stream.last_submitted(), kFreePatienceMs);
  });
}

void destroy_streams(Device& device, Context* context) {
  std::vector<Stream*> found;
  pool().each([&](Stream& stream) {
    if (stream.device == &device && (!context || stream.context == context)) found.push_back(&stream);
  });
  for (Stream* stream : found) stream->destroy(false);
}

void abort_device(Device& device) {
  pool().each([&](Stream& stream) {
    if (stream.device == &device) stream.abort();
  });
}

void park_workers() {
  const auto end = Clock::now() + kExitPatience;
  pool().each([&](Stream& stream) {
    while (stream.running() && Clock::now() < end) std::this_thread::sleep_for(std::chrono::microseconds(200));
  });
}

}  // namespace acl_sim
