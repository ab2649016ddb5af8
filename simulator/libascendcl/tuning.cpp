// Tuning: graphs of single operators (acl_op_compiler.h), and what the tuning tool asks (acl_simulator.h).

#include "core/error.h"
#include "exec/compilation/compile.h"
#include "exec/compilation/knowledge.h"
#include "exec/tuning/graph_file.h"
#include "exec/tuning/tune.h"
#include "sim_api.h"

#include <string>

namespace acl_sim::api {

aclError aclGenGraphAndDumpForOp(const char* type, int inputs, const aclTensorDesc* const input[],
                                 const aclDataBuffer* const input_data[], int outputs,
                                 const aclTensorDesc* const output[], aclDataBuffer* const output_data[],
                                 const aclopAttr* attr, aclopEngineType, const char* folder,
                                 const aclGraphDumpOption*) {
  if (!type || !*type || !folder) throw Error(ACL_ERROR_INVALID_PARAM, "the operator type or the path is null");
  if (inputs < 0 || outputs < 0 || (inputs > 0 && (!input || !input_data)) ||
      (outputs > 0 && (!output || !output_data)))
    throw Error(ACL_ERROR_INVALID_PARAM, std::string(type) + ": an array of descriptions or buffers is null");
  if (attr && !attr->valid())
    throw Error(ACL_ERROR_INVALID_PARAM, std::string(type) + ": the attributes are not a live aclopAttr");
  write_operator_graph({type, inputs, input, outputs, output, attr}, input_data, folder);
  return ACL_SUCCESS;
}

// Both texts are JSON and last until the thread's next call.
const char* aclsimTuneGraph(const char* file, int32_t milliseconds) {
  if (!file) throw Error(ACL_ERROR_INVALID_PARAM, "the file's name is null");
  static thread_local std::string text;
  text = tune_graph(file, milliseconds);
  return text.c_str();
}

const char* aclsimKnowledge() {
  static thread_local std::string text;
  text = describe_knowledge();
  return text.c_str();
}

}  // namespace acl_sim::api
