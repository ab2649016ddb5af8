// acl_rt.h: graphs that are captured from streams, called model instances there.

#include "core/capture.h"
#include "core/context.h"
#include "core/error.h"
#include "core/stream.h"
#include "sim_api.h"

#include <cstdio>
#include <memory>

namespace acl_sim::api {
namespace {

void check_mode(aclmdlRICaptureMode mode) {
  if (mode < ACL_MODEL_RI_CAPTURE_MODE_GLOBAL || mode > ACL_MODEL_RI_CAPTURE_MODE_RELAXED)
    throw Error(ACL_ERROR_INVALID_PARAM, format("there is no capture mode %d", static_cast<int>(mode)));
}

}  // namespace

aclError aclmdlRICaptureBegin(aclrtStream handle, aclmdlRICaptureMode mode) {
  check_mode(mode);
  Stream& stream = submit_stream_of(handle);
  if (is_default_stream(stream))
    throw Error(ACL_ERROR_RT_STREAM_CAPTURE_IMPLICIT, "a default stream cannot be captured, use another stream");
  begin_capture(stream, mode);
  return ACL_SUCCESS;
}

aclError aclmdlRICaptureGetInfo(aclrtStream handle, aclmdlRICaptureStatus* status, aclmdlRI* model) {
  if (!status && !model) throw Error(ACL_ERROR_INVALID_PARAM, "status and modelRI are null");
  Graph* graph = nullptr;
  const aclmdlRICaptureStatus found = capture_status(stream_of(handle), &graph);
  if (status) *status = found;
  if (model) *model = graph;
  return ACL_SUCCESS;
}

aclError aclmdlRICaptureEnd(aclrtStream handle, aclmdlRI* model) {
  if (!model) throw Error(ACL_ERROR_INVALID_PARAM, "modelRI is null");
  *model = nullptr;
  *model = &end_capture(stream_of(handle));
  return ACL_SUCCESS;
}

aclError aclmdlRICaptureTaskGrpBegin(aclrtStream handle) {
  begin_group(submit_stream_of(handle));
  return ACL_SUCCESS;
}

aclError aclmdlRICaptureTaskGrpEnd(aclrtStream stream, void** handle) {
  if (!handle) throw Error(ACL_ERROR_INVALID_PARAM, "handle is null");
  *handle = nullptr;
  *handle = end_group(stream_of(stream));
  return ACL_SUCCESS;
}

aclError aclmdlRICaptureTaskUpdateBegin(aclrtStream stream, void* handle) {
  Stream& updating = submit_stream_of(stream);
  if (is_default_stream(updating))
    throw Error(ACL_ERROR_RT_STREAM_CAPTURE_IMPLICIT, "a default stream cannot update a task group, use another one");
  begin_update(updating, handle);
  return ACL_SUCCESS;
}

aclError aclmdlRICaptureTaskUpdateEnd(aclrtStream stream) {
  end_update(stream_of(stream));
  return ACL_SUCCESS;
}

aclError aclmdlRICaptureThreadExchangeMode(aclmdlRICaptureMode* mode) {
  if (!mode) throw Error(ACL_ERROR_INVALID_PARAM, "mode is null");
  check_mode(*mode);
  *mode = exchange_capture_mode(*mode);
  return ACL_SUCCESS;
}

aclError aclmdlRIExecute(aclmdlRI model, int32_t timeout) {
  if (timeout < -1 || timeout == 0)
    throw Error(ACL_ERROR_INVALID_PARAM, format("the time-out %d is refused: -1 waits for ever", timeout));
  Stream& stream = *current_context().default_stream;
  execute_graph(graph_of(model), stream);
  return synchronize(stream, timeout);
}

aclError aclmdlRIExecuteAsync(aclmdlRI model, aclrtStream handle) {
  Graph& graph = graph_of(model);
  execute_graph(graph, submit_stream_of(handle));
  return ACL_SUCCESS;
}

aclError aclmdlRIDestroy(aclmdlRI model) {
  Graph& graph = graph_of(model);
  if (graph.state.load() != Graph::State::Ready)
    throw Error(ACL_ERROR_RT_MODEL_CAPTURED, "the graph is still being captured; call aclmdlRICaptureEnd first");
  destroy_graph(graph);
  return ACL_SUCCESS;
}

aclError aclmdlRIDebugPrint(aclmdlRI model) {
  std::fputs(describe_graph(graph_of(model)).c_str(), stdout);
  std::fflush(stdout);
  return ACL_SUCCESS;
}

aclError aclmdlRIDebugJsonPrint(aclmdlRI model, const char* path, uint32_t flags) {
  if (!path || !*path) throw Error(ACL_ERROR_INVALID_PARAM, "the path is null or empty");
  if (flags != 0) throw Error(ACL_ERROR_INVALID_PARAM, "flags must be 0");
  const std::string text = describe_graph(graph_of(model));
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path, "w"), std::fclose);
  if (!file) throw Error(ACL_ERROR_RT_FILE_OPEN, format("%s cannot be written", path));
  if (std::fwrite(text.data(), 1, text.size(), file.get()) != text.size())
    throw Error(ACL_ERROR_RT_FILE_WRITE, format("%s could not be written", path));
  return ACL_SUCCESS;
}

}  // namespace acl_sim::api
