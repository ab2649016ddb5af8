// See Note [Operator graphs].

#include "exec/tuning/graph_file.h"

#include "core/error.h"
#include "core/json.h"
#include "core/stamp.h"
#include "exec/compilation/kernel_files.h"
#include "sim_api.h"

#include <cerrno>
#include <cstring>
#include <filesystem>

namespace acl_sim {
namespace {

constexpr int kFormat = 1;
constexpr const char* kHexDigits = "0123456789abcdef";

std::string hex(const void* data, size_t bytes) {
  const auto* from = static_cast<const unsigned char*>(data);
  std::string text;
  text.reserve(bytes * 2);
  for (size_t i = 0; i < bytes; ++i) {
    text += kHexDigits[from[i] >> 4];
    text += kHexDigits[from[i] & 15];
  }
  return text;
}

[[noreturn]] void not_a_graph(const std::string& file, const std::string& reason) {
  throw Error(ACL_ERROR_PARSE_FILE, file + " is not the graph of an operator: " + reason);
}

std::string bytes_of(const std::string& file, const std::string& text) {
  std::string bytes;
  for (size_t i = 0; i + 1 < text.size(); i += 2) {
    const char* high = std::strchr(kHexDigits, text[i]);
    const char* low = std::strchr(kHexDigits, text[i + 1]);
    if (!high || !low || !*high || !*low) not_a_graph(file, "a value is not hexadecimal");
    bytes += static_cast<char>((high - kHexDigits) << 4 | (low - kHexDigits));
  }
  if (text.size() % 2 != 0) not_a_graph(file, "a value is cut off");
  return bytes;
}

std::string operand_text(const aclTensorDesc& desc, const aclDataBuffer* buffer) {
  std::string dims;
  for (int i = 0; i < desc.ndim; ++i) dims += (i ? ", " : "") + std::to_string(desc.dims()[i]);
  const bool absent = desc.dtype == ACL_DT_UNDEFINED, host = desc.placement != ACL_MEMTYPE_DEVICE && !absent;
  std::string text = "{\"tensor\": " +
                     json_text(absent ? "absent" : describe_tensor(desc.dtype, desc.dims(), desc.ndim, desc.format)) +
                     format(", \"dtype\": %d, \"format\": %d, \"dims\": [", static_cast<int>(desc.dtype),
                            static_cast<int>(desc.format)) +
                     dims + "], \"host\": " + (host ? "true" : "false");
  if (host) {
    size_t bytes = dtype_bytes(desc.dtype);
    for (int i = 0; i < desc.ndim; ++i) bytes *= static_cast<size_t>(std::max<int64_t>(desc.dims()[i], 0));
    const bool constant = desc.constant.size() >= bytes && !desc.constant.empty();
    if (!constant && (!buffer || !buffer->valid() || buffer->size < bytes))
      throw Error(ACL_ERROR_INVALID_PARAM, "a value on the host has no buffer of its size");
    text += ", \"value\": " + json_text(hex(constant ? desc.constant.data() : buffer->data, bytes));
  }
  return text + "}";
}

std::string operands_text(int count, const aclTensorDesc* const* descs, const aclDataBuffer* const* buffers) {
  std::string text;
  for (int i = 0; i < count; ++i) {
    if (!descs[i] || !descs[i]->valid())
      throw Error(ACL_ERROR_INVALID_PARAM, "a description is not a live aclTensorDesc");
    text += std::string(i ? "," : "") + "\n    " + operand_text(*descs[i], buffers ? buffers[i] : nullptr);
  }
  return text;
}

const Json& member(const std::string& file, const Json& of, const char* name, Json::Kind kind) {
  const Json* found = of.find(name);
  if (!found || found->kind != kind) not_a_graph(file, std::string("'") + name + "' is missing or of another kind");
  return *found;
}

aclTensorDesc* read_operand(const std::string& file, const Json& entry, std::string& value) {
  const auto number = [&](const char* name) {
    return static_cast<int>(member(file, entry, name, Json::Kind::Number).number);
  };
  std::vector<int64_t> dims;
  for (const Json& dim : member(file, entry, "dims", Json::Kind::List).items) {
    if (dim.kind != Json::Kind::Number) not_a_graph(file, "a dimension is not a number");
    dims.push_back(static_cast<int64_t>(dim.number));
  }
  aclTensorDesc* desc =
      api::aclCreateTensorDesc(static_cast<aclDataType>(number("dtype")), static_cast<int>(dims.size()), dims.data(),
                               static_cast<aclFormat>(number("format")));
  if (!desc) not_a_graph(file, "a tensor cannot be described");
  if (member(file, entry, "host", Json::Kind::Boolean).boolean) {
    api::aclSetTensorPlaceMent(desc, ACL_MEMTYPE_HOST);
    value = bytes_of(file, member(file, entry, "value", Json::Kind::Text).text);
  }
  return desc;
}

// Whether bytes are entries of attributes, one after another.
bool are_attributes(const std::string& bytes) {
  size_t at = 0;
  while (at + sizeof(aclopAttr::Entry) <= bytes.size()) {
    aclopAttr::Entry entry{};
    std::memcpy(static_cast<void*>(&entry), bytes.data() + at, sizeof entry);
    if (entry.type > AttrType::ListListInt || entry.name_bytes == 0 || entry.value_bytes > bytes.size()) return false;
    at += entry.bytes();
  }
  return at == bytes.size();
}

}  // namespace

void write_operator_graph(const Description& d, const aclDataBuffer* const* inputs, const std::string& folder) {
  std::error_code error;
  if (!std::filesystem::is_directory(folder, error))
    throw Error(ACL_ERROR_INVALID_FILE, "there is no folder '" + folder + "' for graphs of operators");
  const std::string text =
      format("{\n  \"graph\": %d,\n  \"type\": ", kFormat) + json_text(d.type) + ",\n  \"inputs\": [" +
      operands_text(d.inputs, d.input, inputs) + "\n  ],\n  \"outputs\": [" +
      operands_text(d.outputs, d.output, nullptr) +
      "\n  ],\n  \"attributes\": " + json_text(d.attr ? CompiledAttrs(d.attr).describe() : std::string()) +
      ",\n  \"attribute_bytes\": " + json_text(d.attr ? hex(d.attr->data(), d.attr->used) : std::string()) + "\n}\n";
  const std::filesystem::path file =
      std::filesystem::path(folder) /
      (std::string(d.type) + format("_%016llx.txt", static_cast<unsigned long long>(lasting_hash(text))));
  if (std::filesystem::exists(file, error)) return;
  if (!write_whole(file.string(), text))
    throw Error(ACL_ERROR_INVALID_FILE, "cannot write " + file.string() + ": " + std::strerror(errno));
}

OperatorGraph::OperatorGraph(const std::string& file) {
  try {
    read(file);
  } catch (...) {
    release();
    throw;
  }
}

OperatorGraph::~OperatorGraph() { release(); }

void OperatorGraph::release() {
  for (const auto* list : {&inputs_, &outputs_}) {
    for (const auto* desc : *list) api::aclDestroyTensorDesc(desc);
  }
  if (attributes_) api::aclopDestroyAttr(attributes_);
}

void OperatorGraph::read(const std::string& file) {
  const Json root = read_json_file(file);
  if (root.kind != Json::Kind::Object) not_a_graph(file, "it is no object");
  if (member(file, root, "graph", Json::Kind::Number).number != kFormat) not_a_graph(file, "its format is another");
  type_ = member(file, root, "type", Json::Kind::Text).text;
  for (const Json& entry : member(file, root, "inputs", Json::Kind::List).items) {
    inputs_.push_back(read_operand(file, entry, values_.emplace_back()));
  }
  std::string none;
  for (const Json& entry : member(file, root, "outputs", Json::Kind::List).items) {
    outputs_.push_back(read_operand(file, entry, none));
  }
  const std::string bytes = bytes_of(file, member(file, root, "attribute_bytes", Json::Kind::Text).text);
  if (bytes.size() % 8 != 0 || !are_attributes(bytes)) not_a_graph(file, "its attributes are damaged");
  attributes_ = api::aclopCreateAttr();
  attributes_->words.resize(bytes.size() / 8);
  if (!bytes.empty()) std::memcpy(attributes_->words.data(), bytes.data(), bytes.size());
  attributes_->used = static_cast<uint32_t>(bytes.size());
  attributes_->stamp = Stamp::next();
}

Description OperatorGraph::description() const {
  return {type_.c_str(),   static_cast<int>(inputs_.size()),
          inputs_.data(),  static_cast<int>(outputs_.size()),
          outputs_.data(), attributes_};
}

}  // namespace acl_sim
