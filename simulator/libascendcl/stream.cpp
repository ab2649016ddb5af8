// acl_rt.h: streams, events, callbacks, time-outs.

#include "core/stream.h"

#include "core/capture.h"
#include "core/context.h"
#include "core/device.h"
#include "core/error.h"
#include "core/event.h"
#include "core/report.h"
#include "sim_api.h"

namespace acl_sim::api {
namespace {

void check_timeout(int32_t timeout) {
  if (timeout < -1)
    throw Error(ACL_ERROR_INVALID_PARAM, format("the time-out %d is refused: -1 waits for ever", timeout));
}

aclError synchronize_event(aclrtEvent handle, int64_t timeout_ms) {
  Event& event = event_of(handle);
  check_no_capture(event, "waiting for an event");
  Stream* stream = event.stream.load(std::memory_order_acquire);
  const uint64_t generation = event.recorded.load(std::memory_order_acquire);
  if (!event.complete(generation) && stream && stream->lives.load() == event.stream_lives) {
    // Waiting through the stream lets this thread run what is pending there.
    if (!stream->wait(event.task_id.load(), timeout_ms)) {
      return fail(ACL_ERROR_RT_EVENT_SYNC_TIMEOUT, "the event was not reached in time");
    }
  }
  if (!stream || stream->lives.load() != event.stream_lives) return ACL_SUCCESS;
  if (stream->device->lost.load())
    return report(ACL_ERROR_RT_LOST_HEARTBEAT, format("device %d is lost", stream->device->id));
  std::string text;
  const aclError code = stream->take_error(&text);
  return code == ACL_SUCCESS ? ACL_SUCCESS : report(code, text);
}

aclError make_event(aclrtEvent* event, uint32_t flags) {
  if (!event) throw Error(ACL_ERROR_INVALID_PARAM, "event is null");
  constexpr uint32_t kKnown = ACL_EVENT_SYNC | ACL_EVENT_CAPTURE_STREAM_PROGRESS | ACL_EVENT_TIME_LINE | 0x20U | 0x40U;
  if (flags & ~kKnown) throw Error(ACL_ERROR_INVALID_PARAM, format("the event flags %#x are refused", flags));
  current_context();
  *event = create_event(flags);
  return ACL_SUCCESS;
}

}  // namespace

aclError aclrtCreateStream(aclrtStream* stream) {
  if (!stream) throw Error(ACL_ERROR_INVALID_PARAM, "stream is null");
  *stream = &create_stream(current_context(), 0, 0);
  return ACL_SUCCESS;
}

aclError aclrtCreateStreamWithConfig(aclrtStream* stream, uint32_t priority, uint32_t flag) {
  if (!stream) throw Error(ACL_ERROR_INVALID_PARAM, "stream is null");
  constexpr uint32_t kKnown = ACL_STREAM_FAST_LAUNCH | ACL_STREAM_FAST_SYNC | ACL_STREAM_PERSISTENT | ACL_STREAM_HUGE;
  if (priority > 7 || flag & ~kKnown)
    throw Error(ACL_ERROR_INVALID_PARAM, format("priority %u or flags %#x are refused", priority, flag));
  *stream = &create_stream(current_context(), flag, static_cast<int32_t>(priority));
  return ACL_SUCCESS;
}

aclError aclrtDestroyStream(aclrtStream stream) {
  if (!stream) throw Error(ACL_ERROR_INVALID_PARAM, "stream is null");
  stream_of(stream).destroy(false);
  return ACL_SUCCESS;
}

aclError aclrtDestroyStreamForce(aclrtStream stream) {
  if (!stream) throw Error(ACL_ERROR_INVALID_PARAM, "stream is null");
  stream_of(stream).destroy(true);
  return ACL_SUCCESS;
}

namespace {

aclError wait_for_stream(aclrtStream handle, int64_t timeout_ms) {
  Stream& stream = stream_of(handle);
  check_no_capture(stream, "waiting for a stream");
  return synchronize(stream, timeout_ms);
}

bool is_idle(aclrtStream handle) {
  Stream& stream = stream_of(handle);
  check_no_capture(stream, "asking whether a stream is done");
  return stream.idle();
}

}  // namespace

aclError aclrtSynchronizeStream(aclrtStream stream) { return wait_for_stream(stream, -1); }

aclError aclrtSynchronizeStreamWithTimeout(aclrtStream stream, int32_t timeout) {
  check_timeout(timeout);
  return wait_for_stream(stream, timeout);
}

aclError aclrtQueryStream(aclrtStream stream) {
  return is_idle(stream) ? ACL_SUCCESS : ACL_ERROR_RT_STREAM_NOT_COMPLETE;
}

aclError aclrtStreamQuery(aclrtStream stream, aclrtStreamStatus* status) {
  if (!status) throw Error(ACL_ERROR_INVALID_PARAM, "status is null");
  *status = is_idle(stream) ? ACL_STREAM_STATUS_COMPLETE : ACL_STREAM_STATUS_NOT_READY;
  return ACL_SUCCESS;
}

aclError aclrtSetStreamFailureMode(aclrtStream stream, uint64_t mode) {
  if (mode != ACL_CONTINUE_ON_FAILURE && mode != ACL_STOP_ON_FAILURE) {
    throw Error(ACL_ERROR_INVALID_PARAM,
                format("there is no failure mode %llu", static_cast<unsigned long long>(mode)));
  }
  stream_of(stream).set_stop_on_failure(mode == ACL_STOP_ON_FAILURE);
  return ACL_SUCCESS;
}

aclError aclrtSetStreamOverflowSwitch(aclrtStream stream, uint32_t flag) {
  stream_of(stream).overflow_check.store(flag != 0);
  return ACL_SUCCESS;
}

aclError aclrtGetStreamOverflowSwitch(aclrtStream stream, uint32_t* flag) {
  if (!flag) throw Error(ACL_ERROR_INVALID_PARAM, "flag is null");
  *flag = stream_of(stream).overflow_check.load() ? 1 : 0;
  return ACL_SUCCESS;
}

aclError aclrtSetOpWaitTimeout(uint32_t timeout) {
  set_op_wait_timeout(timeout);
  return ACL_SUCCESS;
}

aclError aclrtSetOpExecuteTimeOut(uint32_t timeout) {
  set_op_execute_timeout_ms(uint64_t{timeout} * 1000);
  return ACL_SUCCESS;
}

aclError aclrtSetOpExecuteTimeOutWithMs(uint32_t timeout) {
  set_op_execute_timeout_ms(timeout);
  return ACL_SUCCESS;
}

// ---- callbacks

aclError aclrtSubscribeReport(uint64_t thread, aclrtStream stream) {
  subscribe(thread, stream_of(stream));
  return ACL_SUCCESS;
}

aclError aclrtUnSubscribeReport(uint64_t thread, aclrtStream stream) {
  unsubscribe(thread, stream_of(stream));
  return ACL_SUCCESS;
}

aclError aclrtLaunchCallback(aclrtCallback function, void* data, aclrtCallbackBlockType block, aclrtStream handle) {
  if (!function) throw Error(ACL_ERROR_INVALID_PARAM, "the callback is null");
  Stream& stream = submit_stream_of(handle);
  if (!stream.report)
    throw Error(ACL_ERROR_RT_STREAM_NO_CB_REG,
                "no thread has subscribed to the stream; call aclrtSubscribeReport first");
  Task task;
  task.kind = TaskKind::Callback;
  task.tiny = task.modest = false;
  task.callback = {function, data, stream.report, block == ACL_CALLBACK_BLOCK};
  stream.submit(task);
  return ACL_SUCCESS;
}

aclError aclrtProcessReport(int32_t timeout) {
  check_timeout(timeout);
  return process_report(timeout);
}

aclError aclrtSetExceptionInfoCallback(aclrtExceptionInfoCallback callback) {
  set_exception_callback(callback);
  return ACL_SUCCESS;
}

uint32_t aclrtGetTaskIdFromExceptionInfo(const aclrtExceptionInfo* info) { return info ? info->taskid : 0xFFFFFFFFU; }
uint32_t aclrtGetStreamIdFromExceptionInfo(const aclrtExceptionInfo* info) {
  return info ? info->streamid : 0xFFFFFFFFU;
}
uint32_t aclrtGetThreadIdFromExceptionInfo(const aclrtExceptionInfo* info) { return info ? info->tid : 0xFFFFFFFFU; }
uint32_t aclrtGetDeviceIdFromExceptionInfo(const aclrtExceptionInfo* info) {
  return info ? info->deviceid : 0xFFFFFFFFU;
}
uint32_t aclrtGetErrorCodeFromExceptionInfo(const aclrtExceptionInfo* info) {
  return info ? info->retcode : 0xFFFFFFFFU;
}

// ---- events

aclError aclrtCreateEvent(aclrtEvent* event) {
  return make_event(event, ACL_EVENT_SYNC | ACL_EVENT_CAPTURE_STREAM_PROGRESS | ACL_EVENT_TIME_LINE);
}
aclError aclrtCreateEventWithFlag(aclrtEvent* event, uint32_t flag) { return make_event(event, flag); }
aclError aclrtCreateEventExWithFlag(aclrtEvent* event, uint32_t flag) { return make_event(event, flag); }

aclError aclrtDestroyEvent(aclrtEvent handle) {
  Event& event = event_of(handle);
  if (__builtin_expect(event.capture.load(std::memory_order_relaxed) != nullptr, 0)) leave_capture(event);
  event.alive.store(false, std::memory_order_release);
  release_event(&event);
  return ACL_SUCCESS;
}

aclError aclrtRecordEvent(aclrtEvent handle, aclrtStream stream_handle) {
  Event& event = event_of(handle);
  Stream& stream = submit_stream_of(stream_handle);
  if (submit_external(TaskKind::Record, stream, event)) return ACL_SUCCESS;
  if (__builtin_expect(stream.capture.load(std::memory_order_relaxed) != nullptr, 0)) {
    capture_record(event, stream);
    return ACL_SUCCESS;
  }
  if (__builtin_expect(event.capture.load(std::memory_order_relaxed) != nullptr, 0)) leave_capture(event);
  Task task;
  task.kind = TaskKind::Record;
  task.tiny = task.modest = true;
  event.references.fetch_add(1, std::memory_order_relaxed);
  event.stream_lives = stream.lives.load();
  event.stream.store(&stream, std::memory_order_release);
  task.event = {&event, event.recorded.fetch_add(1, std::memory_order_acq_rel) + 1};
  stream.submit(task);
  event.task_id.store(task.id, std::memory_order_release);
  return ACL_SUCCESS;
}

aclError aclrtResetEvent(aclrtEvent handle, aclrtStream stream) {
  Event& event = event_of(handle);
  if (submit_external(TaskKind::Reset, event.is_external() ? submit_stream_of(stream) : stream_of(stream), event))
    return ACL_SUCCESS;
  check_no_capture(event, "resetting an event");
  // The caller has waited for the stream, as the interface demands, so nothing queued refers to old records.
  event.failure.store(ACL_SUCCESS, std::memory_order_relaxed);
  event.completed.store(0, std::memory_order_release);
  event.recorded.store(0, std::memory_order_release);
  return ACL_SUCCESS;
}

aclError aclrtStreamWaitEvent(aclrtStream stream_handle, aclrtEvent handle) {
  Event& event = event_of(handle);
  Stream& stream = submit_stream_of(stream_handle);
  if (submit_external(TaskKind::Wait, stream, event)) return ACL_SUCCESS;
  if (capturing() && (stream.capture.load() || event.capture.load())) {
    capture_wait(stream, event);
    return ACL_SUCCESS;
  }
  const uint64_t generation = event.recorded.load(std::memory_order_acquire);
  if (event.complete(generation)) {  // never recorded, or passed already
    stream.take_failure_from(event);
    return ACL_SUCCESS;
  }
  Task task;
  task.kind = TaskKind::Wait;
  task.tiny = task.modest = false;
  event.references.fetch_add(1, std::memory_order_relaxed);
  task.event = {&event, generation};
  stream.submit(task);
  return ACL_SUCCESS;
}

aclError aclrtQueryEvent(aclrtEvent handle, aclrtEventStatus* status) {
  Event& event = event_of(handle);
  if (!status) throw Error(ACL_ERROR_INVALID_PARAM, "status is null");
  check_no_capture(event, "asking whether an event has been passed");
  *status = event.recorded.load() > 0 && event.complete() ? ACL_EVENT_STATUS_COMPLETE : ACL_EVENT_STATUS_NOT_READY;
  return ACL_SUCCESS;
}

aclError aclrtQueryEventStatus(aclrtEvent handle, aclrtEventRecordedStatus* status) {
  Event& event = event_of(handle);
  if (!status) throw Error(ACL_ERROR_INVALID_PARAM, "status is null");
  check_no_capture(event, "asking whether an event has been passed");
  *status = event.recorded.load() > 0 && event.complete() ? ACL_EVENT_RECORDED_STATUS_COMPLETE
                                                          : ACL_EVENT_RECORDED_STATUS_NOT_READY;
  return ACL_SUCCESS;
}

aclError aclrtQueryEventWaitStatus(aclrtEvent handle, aclrtEventWaitStatus* status) {
  Event& event = event_of(handle);
  if (!status) throw Error(ACL_ERROR_INVALID_PARAM, "status is null");
  check_no_capture(event, "asking whether an event has been passed");
  *status = event.complete() ? ACL_EVENT_WAIT_STATUS_COMPLETE : ACL_EVENT_WAIT_STATUS_NOT_READY;
  return ACL_SUCCESS;
}

aclError aclrtSynchronizeEvent(aclrtEvent event) { return synchronize_event(event, -1); }

aclError aclrtSynchronizeEventWithTimeout(aclrtEvent event, int32_t timeout) {
  check_timeout(timeout);
  return synchronize_event(event, timeout);
}

aclError aclrtEventElapsedTime(float* ms, aclrtEvent start_handle, aclrtEvent end_handle) {
  Event& start = event_of(start_handle);
  Event& end = event_of(end_handle);
  if (!ms) throw Error(ACL_ERROR_INVALID_PARAM, "ms is null");
  check_no_capture(start, "asking for the time of an event");
  check_no_capture(end, "asking for the time of an event");
  if (start.recorded.load() == 0 || end.recorded.load() == 0)
    throw Error(ACL_ERROR_RT_EVENT_TIMESTAMP_INVALID, "an event has not been recorded");
  if (!start.complete() || !end.complete())
    throw Error(ACL_ERROR_RT_EVENT_NOT_COMPLETE, "an event has not been reached yet; synchronize it first");
  const int64_t ns = end.time_ns.load() - start.time_ns.load();
  if (ns < 0) throw Error(ACL_ERROR_RT_EVENT_TIMESTAMP_REVERSAL, "the end event was reached before the start event");
  *ms = static_cast<float>(static_cast<double>(ns) * 1e-6);
  return ACL_SUCCESS;
}

}  // namespace acl_sim::api
