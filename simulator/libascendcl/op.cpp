// acl_op.h and acl_op_compiler.h: attributes, compiling, launching, compile options.

#include "core/error.h"
#include "core/free_list.h"
#include "core/stamp.h"
#include "exec/compilation/compile.h"
#include "exec/compilation/fuzzy.h"
#include "exec/compilation/options.h"
#include "exec/definition/attr.h"
#include "exec/running/launch.h"
#include "sim_api.h"

#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <string>

namespace acl_sim::api {
namespace {

char* add(aclopAttr* attr, const char* name, AttrType type, size_t bytes) {
  if (!attr || !attr->valid()) throw Error(ACL_ERROR_INVALID_PARAM, "the attributes are null or not a live aclopAttr");
  if (!name) throw Error(ACL_ERROR_INVALID_PARAM, "the attribute name is null");
  char* at = attr->add(type, name, bytes);
  if (!at)
    throw Error(ACL_ERROR_INVALID_PARAM,
                format("the attribute name '%s' is refused: it must have 1 to 255 characters", name));
  return at;
}

aclError add_integer(aclopAttr* attr, const char* name, AttrType type, int64_t value) {
  std::memcpy(add(attr, name, type, sizeof value), &value, sizeof value);
  return ACL_SUCCESS;
}

void check_list(const char* name, int count, const void* values) {
  if (count < 0 || (count > 0 && !values))
    throw Error(ACL_ERROR_INVALID_PARAM,
                format("the list '%s' is refused: %d values at %p", name ? name : "", count, values));
}

template <class To, class From>
aclError add_list(aclopAttr* attr, const char* name, AttrType type, int count, const From* values) {
  check_list(name, count, values);
  char* at = add(attr, name, type, sizeof(To) * static_cast<size_t>(count));
  for (int i = 0; i < count; ++i) {
    const To value = static_cast<To>(values[i]);
    std::memcpy(at + sizeof(To) * static_cast<size_t>(i), &value, sizeof value);
  }
  return ACL_SUCCESS;
}

struct CompileFunctions {
  std::mutex mutex;
  std::map<std::string, aclopCompileFunc> functions;
};

CompileFunctions& compile_functions() {
  static auto* value = new CompileFunctions;
  return *value;
}

}  // namespace

aclopAttr* aclopCreateAttr() {
  aclopAttr* attr = FreeList<aclopAttr>::take();
  attr->magic = aclopAttr::kMagic;
  attr->used = 0;
  attr->stamp = Stamp::next();
  return attr;
}

void aclopDestroyAttr(const aclopAttr* attr) {
  if (!attr || !attr->valid()) return;
  auto* mine = const_cast<aclopAttr*>(attr);
  mine->magic = 0;
  FreeList<aclopAttr>::give(mine);
}

aclError aclopSetAttrBool(aclopAttr* attr, const char* name, uint8_t value) {
  return add_integer(attr, name, AttrType::Bool, value != 0);
}
aclError aclopSetAttrInt(aclopAttr* attr, const char* name, int64_t value) {
  return add_integer(attr, name, AttrType::Int, value);
}
aclError aclopSetAttrDataType(aclopAttr* attr, const char* name, aclDataType value) {
  return add_integer(attr, name, AttrType::DataType, value);
}

aclError aclopSetAttrFloat(aclopAttr* attr, const char* name, float value) {
  std::memcpy(add(attr, name, AttrType::Float, sizeof value), &value, sizeof value);
  return ACL_SUCCESS;
}

aclError aclopSetAttrString(aclopAttr* attr, const char* name, const char* value) {
  if (!value) throw Error(ACL_ERROR_INVALID_PARAM, "the attribute value is null");
  const size_t length = std::strlen(value);
  std::memcpy(add(attr, name, AttrType::String, length), value, length);
  return ACL_SUCCESS;
}

aclError aclopSetAttrListBool(aclopAttr* attr, const char* name, int count, const uint8_t* values) {
  return add_list<int64_t>(attr, name, AttrType::ListBool, count, values);
}
aclError aclopSetAttrListInt(aclopAttr* attr, const char* name, int count, const int64_t* values) {
  return add_list<int64_t>(attr, name, AttrType::ListInt, count, values);
}
aclError aclopSetAttrListFloat(aclopAttr* attr, const char* name, int count, const float* values) {
  return add_list<float>(attr, name, AttrType::ListFloat, count, values);
}
aclError aclopSetAttrListDataType(aclopAttr* attr, const char* name, int count, const aclDataType values[]) {
  return add_list<int64_t>(attr, name, AttrType::ListDataType, count, values);
}

// Strings one after another, each with its terminating zero.
aclError aclopSetAttrListString(aclopAttr* attr, const char* name, int count, const char** values) {
  check_list(name, count, values);
  std::string all;
  for (int i = 0; i < count; ++i) {
    if (!values[i]) throw Error(ACL_ERROR_INVALID_PARAM, "a string of the list is null");
    all.append(values[i], std::strlen(values[i]) + 1);
  }
  std::memcpy(add(attr, name, AttrType::ListString, all.size()), all.data(), all.size());
  return ACL_SUCCESS;
}

// The number of lists, their lengths, their values.
aclError aclopSetAttrListListInt(aclopAttr* attr, const char* name, int lists, const int* counts,
                                 const int64_t* const values[]) {
  check_list(name, lists, counts);
  check_list(name, lists, values);
  std::string all;
  const auto put = [&](int64_t value) { all.append(reinterpret_cast<const char*>(&value), sizeof value); };
  put(lists);
  for (int i = 0; i < lists; ++i) {
    check_list(name, counts[i], values[i]);
    put(counts[i]);
  }
  for (int i = 0; i < lists; ++i) {
    for (int k = 0; k < counts[i]; ++k) put(values[i][k]);
  }
  std::memcpy(add(attr, name, AttrType::ListListInt, all.size()), all.data(), all.size());
  return ACL_SUCCESS;
}

aclError aclopCompile(const char* type, int inputs, const aclTensorDesc* const input[], int outputs,
                      const aclTensorDesc* const output[], const aclopAttr* attr, aclopEngineType, aclopCompileType,
                      const char*) {
  return compile_only({type, inputs, input, outputs, output, attr});
}

aclError aclopCompileAndExecute(const char* type, int inputs, const aclTensorDesc* const input[],
                                const aclDataBuffer* const input_data[], int outputs,
                                const aclTensorDesc* const output[], aclDataBuffer* const output_data[],
                                const aclopAttr* attr, aclopEngineType, aclopCompileType, const char*,
                                aclrtStream stream) {
  return launch({type, inputs, input, outputs, output, attr}, input_data, output_data, stream, false);
}

aclError aclopCompileAndExecuteV2(const char* type, int inputs, aclTensorDesc* input[], aclDataBuffer* input_data[],
                                  int outputs, aclTensorDesc* output[], aclDataBuffer* output_data[], aclopAttr* attr,
                                  aclopEngineType, aclopCompileType, const char*, aclrtStream stream) {
  return launch({type, inputs, input, outputs, output, attr}, input_data, output_data, stream, false);
}

aclError aclopExecuteV2(const char* type, int inputs, aclTensorDesc* input[], aclDataBuffer* input_data[], int outputs,
                        aclTensorDesc* output[], aclDataBuffer* output_data[], aclopAttr* attr, aclrtStream stream) {
  return launch({type, inputs, input, outputs, output, attr}, input_data, output_data, stream, true);
}

aclError aclopRegisterCompileFunc(const char* type, aclopCompileFunc function) {
  if (!type || !*type || !function) throw Error(ACL_ERROR_INVALID_PARAM, "the operator type or the function is null");
  auto& c = compile_functions();
  std::lock_guard<std::mutex> lock(c.mutex);
  if (!c.functions.emplace(type, function).second) {
    throw Error(ACL_ERROR_BIN_SELECTOR_ALREADY_REGISTERED, format("%s has a compile function already", type));
  }
  return ACL_SUCCESS;
}

aclError aclopRegister(const char* type, aclopCompileFunc function) { return aclopRegisterCompileFunc(type, function); }

aclError aclopUnregisterCompileFunc(const char* type) {
  if (!type) throw Error(ACL_ERROR_INVALID_PARAM, "the operator type is null");
  auto& c = compile_functions();
  std::lock_guard<std::mutex> lock(c.mutex);
  if (c.functions.erase(type) == 0)
    throw Error(ACL_ERROR_BIN_SELECTOR_NOT_REGISTERED, format("%s has no compile function", type));
  return ACL_SUCCESS;
}

aclError aclSetCompileopt(aclCompileOpt option, const char* value) {
  set_compile_option(option, value);
  return ACL_SUCCESS;
}

size_t aclGetCompileoptSize(aclCompileOpt option) {
  return is_compile_option(option) ? compile_option(option).size() + 1 : 0;
}

aclError aclGetCompileopt(aclCompileOpt option, char* value, size_t length) {
  if (!value) throw Error(ACL_ERROR_INVALID_PARAM, "the value is null");
  const std::string text = compile_option(option);
  if (length < text.size() + 1)
    throw Error(ACL_ERROR_INVALID_PARAM, format("the value needs %zu bytes, not %zu", text.size() + 1, length));
  std::memcpy(value, text.c_str(), text.size() + 1);
  return ACL_SUCCESS;
}

aclError aclopSetCompileFlag(aclOpCompileFlag flag) {
  if (flag != ACL_OP_COMPILE_DEFAULT && flag != ACL_OP_COMPILE_FUZZ)
    throw Error(ACL_ERROR_INVALID_PARAM, format("there is no compile flag %d", static_cast<int>(flag)));
  set_fuzzy_mode(flag == ACL_OP_COMPILE_FUZZ);
  return ACL_SUCCESS;
}

int32_t aclsimIsOpSupported(const char* type) { return type && find_op(type) != nullptr; }

// One line for each operator type: its name, least and most inputs, least and most outputs, "name:kind" of each
// attribute, and the names of those that are required; between tabs, lists with spaces, -1 for any number.
const char* aclsimListOps() {
  static const std::string list = list_ops();
  return list.c_str();
}

}  // namespace acl_sim::api
