#include <ATen/native/npu/frame/graph/GraphFiles.h>

#include <c10/npu/NPUOptions.h>
#include <c10/util/Exception.h>

#include <array>
#include <atomic>
#include <cstdio>
#include <fstream>
#include <string_view>

namespace at::native::npu::graph {

namespace {

// 0 where the variable is unset.
int level(const char* name, int most) {
  const char* text = c10::npu::environment(name);
  if (text == nullptr || *text == '\0') return 0;
  const std::string_view word(text);
  TORCH_CHECK_VALUE(word.size() == 1 && word[0] >= '1' && word[0] <= '0' + most, "Environment variable ", name,
                    " must be an integer from 1 to ", most, ", but got: '", word, "'");
  return word[0] - '0';
}

int content() {
  static const int value = level("DUMP_GE_GRAPH", 3);
  return value;
}

const char* name_of(aclDataType dtype) {
  switch (dtype) {
    case ACL_FLOAT:
      return "float32";
    case ACL_FLOAT16:
      return "float16";
    case ACL_BF16:
      return "bfloat16";
    case ACL_DOUBLE:
      return "float64";
    case ACL_BOOL:
      return "bool";
    case ACL_UINT8:
      return "uint8";
    case ACL_INT8:
      return "int8";
    case ACL_INT16:
      return "int16";
    case ACL_INT32:
      return "int32";
    case ACL_INT64:
      return "int64";
    default:
      return "other";
  }
}

void append_operand(std::string& text, const OperandInfo& info, const Memory& memory) {
  if (info.absent) {
    text += '-';
    return;
  }
  if (!info.host && content() < 3) {
    std::array<char, 24> name{};
    std::snprintf(name.data(), name.size(), "%%%zx ", reinterpret_cast<size_t>(memory.data));
    text += name.data();
  }
  if (info.host) text += "host ";
  text += name_of(info.dtype);
  text += '[';
  const char* separator = "";
  for (const int64_t dim : info.dims) {
    text += std::exchange(separator, ", ") + std::to_string(dim);
  }
  text += ']';
}

void append_line(std::string& text, const CommandInfo& info, const Memory* operands) {
  const char* separator = "";
  for (size_t i = 0; i < info.outputs.size(); ++i) {
    text += std::exchange(separator, ", ");
    append_operand(text, info.outputs[i], operands[info.inputs.size() + i]);
  }
  text += " = ";
  text += info.ir;
  text += '(';
  separator = "";
  for (size_t i = 0; i < info.inputs.size(); ++i) {
    text += std::exchange(separator, ", ");
    append_operand(text, info.inputs[i], operands[i]);
  }
  text += ')';
  if (content() < 3) text += info.attributes;
  text += '\n';
}

void write(const std::string& name, const std::string& text) {
  const char* folder = c10::npu::environment("DUMP_GRAPH_PATH");
  const std::string path = (folder != nullptr && *folder != '\0' ? std::string(folder) + "/" : std::string()) + name;
  std::ofstream file(path);
  file << text;
  if (!file.flush()) {
    TORCH_WARN("DUMP_GE_GRAPH: ", path, " cannot be written");
  }
}

}  // namespace

bool writes_graphs() { return content() != 0; }

void append_node(std::string& text, const CommandInfo& info, const Memory* operands) {
  append_line(text, info, operands);
}

void append_fused(std::string& text, const FusedCommand& command) {
  CommandInfos infos;
  std::vector<Memory> operands;
  operands.reserve(command.inputs.size() + command.outputs.size());
  for (const auto& input : command.inputs) operands.push_back({input.data, input.bytes});
  operands.insert(operands.end(), command.outputs.begin(), command.outputs.end());
  append_line(text, infos.get(*command.prepared), operands.data());
}

void write_graph(const std::string& before, const std::string& after) {
  // As GE has it: 1 all graphs, 2 without those inside of others, 3 the last one, 4 the first one.
  static const int stages = level("DUMP_GRAPH_LEVEL", 4);
  static std::atomic<int> graphs{0};
  std::array<char, 64> name{};
  const int number = graphs.fetch_add(1);
  if (stages != 3) {
    std::snprintf(name.data(), name.size(), "ge_proto_%08d_graph_before_passes.txt", number);
    write(name.data(), before);
  }
  if (stages != 4) {
    std::snprintf(name.data(), name.size(), "ge_proto_%08d_graph_after_passes.txt", number);
    write(name.data(), after);
  }
}

}  // namespace at::native::npu::graph
