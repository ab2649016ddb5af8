// Attributes of a compiled operator: taking the caller's bytes apart, and checking them against a definition.

#include "exec/compilation/compile.h"

#include <charconv>
#include <cmath>
#include <cstring>

namespace acl_sim {
namespace {

using Entry = aclopAttr::Entry;

std::string_view name_of(const Entry& entry) { return {entry.name(), entry.name_bytes}; }

template <class T>
T one(const Entry& entry) {
  T value;
  std::memcpy(&value, entry.value(), sizeof value);
  return value;
}

template <class From, class To>
std::vector<To> many(const Entry& entry) {
  std::vector<To> values(entry.value_bytes / sizeof(From));
  for (size_t i = 0; i < values.size(); ++i) {
    From value;
    std::memcpy(&value, entry.value() + i * sizeof(From), sizeof value);
    values[i] = static_cast<To>(value);
  }
  return values;
}

template <class T>
std::string join(const std::vector<T>& values) {
  std::string text = "[";
  for (size_t i = 0; i < values.size(); ++i) text += (i ? ", " : "") + std::to_string(values[i]);
  return text + "]";
}

// Attributes are fp32. What is computed in fp64 takes the decimal number that the attribute stands for (1e-5, 0.1), not
// the digits that fp32 adds to it.
double decimal(float value) {
  char digits[64];
  double result = value;
  const auto written = std::to_chars(digits, digits + sizeof digits, value);
  std::from_chars(digits, written.ptr, result);
  return result;
}

std::string value_text(const Entry& entry) {
  switch (entry.type) {
    case AttrType::Bool:
      return one<int64_t>(entry) ? "true" : "false";
    case AttrType::Int:
      return std::to_string(one<int64_t>(entry));
    case AttrType::DataType:
      return dtype_name(static_cast<aclDataType>(one<int64_t>(entry)));
    case AttrType::Float:
      return format("%g", static_cast<double>(one<float>(entry)));
    case AttrType::String:
      return "\"" + std::string(entry.value(), entry.value_bytes) + "\"";
    case AttrType::ListInt:
    case AttrType::ListDataType:
    case AttrType::ListBool:
    case AttrType::ListListInt:
      return join(many<int64_t, int64_t>(entry));
    case AttrType::ListFloat:
      return join(many<float, double>(entry));
    case AttrType::ListString:
      return "[...]";
  }
  return "";
}

}  // namespace

CompiledAttrs::CompiledAttrs(const aclopAttr* attr) {
  if (!attr) return;
  used_ = attr->used;
  words_.assign(attr->words.begin(), attr->words.begin() + static_cast<std::ptrdiff_t>(used_ / 8));
}

template <class F>
void CompiledAttrs::each(F&& visit) const {
  const char* begin = reinterpret_cast<const char*>(words_.data());
  for (size_t at = 0; at < used_;) {
    const auto* entry = reinterpret_cast<const Entry*>(begin + at);
    visit(*entry);
    at += entry->bytes();
  }
}

const Entry* CompiledAttrs::find(std::string_view name) const {
  const Entry* found = nullptr;
  each([&](const Entry& entry) {
    if (name_of(entry) == name) found = &entry;
  });
  return found;
}

void CompiledAttrs::refuse(const Entry& entry, const char* wanted) const {
  throw Error(ACL_ERROR_GE_FAILURE, "attribute '" + std::string(name_of(entry)) + "' is of type " +
                                        attr_type_name(entry.type) + ", not " + wanted);
}

bool CompiledAttrs::has(std::string_view name) const { return find(name) != nullptr; }

bool CompiledAttrs::boolean(std::string_view name, bool otherwise) const {
  const Entry* entry = find(name);
  if (!entry) return otherwise;
  if (entry->type != AttrType::Bool) refuse(*entry, "bool");
  return one<int64_t>(*entry) != 0;
}

int64_t CompiledAttrs::integer(std::string_view name, int64_t otherwise) const {
  const Entry* entry = find(name);
  if (!entry) return otherwise;
  if (entry->type != AttrType::Int && entry->type != AttrType::DataType) refuse(*entry, "int");
  return one<int64_t>(*entry);
}

double CompiledAttrs::real(std::string_view name, double otherwise) const {
  const Entry* entry = find(name);
  if (!entry) return otherwise;
  if (entry->type != AttrType::Float) refuse(*entry, "float");
  return decimal(one<float>(*entry));
}

std::string CompiledAttrs::text(std::string_view name, const std::string& otherwise) const {
  const Entry* entry = find(name);
  if (!entry) return otherwise;
  if (entry->type != AttrType::String) refuse(*entry, "str");
  return {entry->value(), entry->value_bytes};
}

std::vector<int64_t> CompiledAttrs::integers(std::string_view name, std::vector<int64_t> otherwise) const {
  const Entry* entry = find(name);
  if (!entry) return otherwise;
  if (entry->type != AttrType::ListInt && entry->type != AttrType::ListBool && entry->type != AttrType::ListDataType)
    refuse(*entry, "ints");
  return many<int64_t, int64_t>(*entry);
}

std::vector<double> CompiledAttrs::reals(std::string_view name, std::vector<double> otherwise) const {
  const Entry* entry = find(name);
  if (!entry) return otherwise;
  if (entry->type != AttrType::ListFloat) refuse(*entry, "floats");
  std::vector<double> values = many<float, double>(*entry);
  for (double& value : values) value = decimal(static_cast<float>(value));
  return values;
}

std::string CompiledAttrs::describe() const {
  std::string text;
  each([&](const Entry& entry) {
    text += (text.empty() ? "" : ", ") + std::string(name_of(entry)) + "=" + value_text(entry);
  });
  return text;
}

bool CompiledAttrs::all_finite() const {
  bool finite = true;
  each([&](const Entry& entry) {
    if (entry.type == AttrType::Float || entry.type == AttrType::ListFloat) {
      for (const double value : many<float, double>(entry)) finite = finite && std::isfinite(value);
    }
  });
  return finite;
}

void check_attrs(const OpDef& def, const CompiledAttrs& attrs) {
  attrs.each([&](const Entry& entry) {
    const std::string name(name_of(entry));
    std::string known;
    for (const auto& declared : def.attr_names) {
      const auto colon = declared.find(':');
      if (declared.compare(0, colon, name) == 0) {
        const std::string wanted = colon == std::string::npos ? "" : declared.substr(colon + 1);
        const char* given = attr_type_name(entry.type);
        if (!wanted.empty() && wanted != given) {
          throw Error(ACL_ERROR_GE_FAILURE, "attribute '" + name + "' is of type " + given + ", not " + wanted);
        }
        return;
      }
      known += (known.empty() ? "" : ", ") + declared;
    }
    throw Error(ACL_ERROR_GE_FAILURE, "it has no attribute '" + name + "'; it has " + (known.empty() ? "none" : known));
  });
  for (const auto& name : def.required_attrs) {
    if (!attrs.has(name)) throw Error(ACL_ERROR_GE_FAILURE, "attribute '" + name + "' is required");
  }
}

}  // namespace acl_sim
