#include "exec/watching/dump_config.h"

#include "core/error.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>

#include <unistd.h>

namespace acl_sim {
namespace {

struct Field {
  const char* name;
  Json::Kind kind;
  const char* values;  // allowed texts between bars; nullptr: any
  bool supported;      // by the simulated device; CANN knows all of these
};

constexpr Field kFields[] = {
    {"dump_list", Json::Kind::List, nullptr, true},
    {"dump_path", Json::Kind::Text, nullptr, true},
    {"dump_mode", Json::Kind::Text, "|input|output|all|", true},
    {"dump_op_switch", Json::Kind::Text, "|on|off|", true},
    {"dump_debug", Json::Kind::Text, "|on|off|", true},
    {"dump_data", Json::Kind::Text, "|tensor|", true},
    {"dump_level", Json::Kind::Text, "|op|kernel|all|", true},
    {"dump_step", Json::Kind::Text, "||", true},
    {"dump_scene", Json::Kind::Text, nullptr, false},
    {"dump_stats", Json::Kind::List, nullptr, false},
};

class Checker {
 public:
  explicit Checker(const std::string& file) : file_(file) {}

  [[noreturn]] void refuse(const Json& where, const std::string& reason) const {
    throw Error(ACL_ERROR_INVALID_DUMP_CONFIG, format("%s:%d: %s", file_.c_str(), where.line, reason.c_str()));
  }

  void fields(const Json& dump) const {
    for (const auto& [name, value] : dump.members) {
      const Field* field = find(name);
      if (!field) {
        std::string known;
        for (const auto& f : kFields) {
          if (f.supported) known += (known.empty() ? "" : ", ") + std::string(f.name);
        }
        refuse(value, "there is no dump field '" + name + "'; known are " + known);
      }
      if (!field->supported) refuse(value, "the simulated device does not support '" + name + "'");
      if (value.kind != field->kind)
        refuse(value, "'" + name + "' must be " + (field->kind == Json::Kind::List ? "a list" : "a text") + ", not " +
                          value.kind_name());
      if (field->values && !std::strstr(field->values, ("|" + value.text + "|").c_str())) {
        std::string allowed(field->values + 1);
        allowed.pop_back();
        refuse(value, "'" + name + "' cannot be '" + value.text + "'; it can be " +
                          (allowed.empty() ? "empty only" : allowed));
      }
    }
  }

  static std::string text(const Json& dump, const char* name, const char* otherwise) {
    const Json* value = dump.find(name);
    return value ? value->text : otherwise;
  }

  // Makes the folder and tries it out: rights alone do not tell whether a file system takes files.
  std::string folder(const Json& where, const std::string& path) const {
    std::error_code error;
    const std::string absolute = std::filesystem::absolute(path, error).lexically_normal().string();
    if (!error) std::filesystem::create_directories(absolute, error);
    if (!error) {
      std::string probe = absolute + "/.dump.XXXXXX";
      const int fd = ::mkstemp(probe.data());
      if (fd >= 0) {
        ::close(fd);
        ::unlink(probe.c_str());
        return absolute;
      }
      error.assign(errno, std::generic_category());
    }
    throw Error(ACL_ERROR_INVALID_FILE, format("%s:%d: the dump_path '%s' cannot be written to: %s", file_.c_str(),
                                               where.line, path.c_str(), error.message().c_str()));
  }

 private:
  static const Field* find(const std::string& name) {
    for (const auto& field : kFields) {
      if (name == field.name) return &field;
    }
    return nullptr;
  }

  const std::string& file_;
};

}  // namespace

DumpConfig read_dump_config(const std::string& file, const Json& whole) {
  const Checker check(file);
  const Json* dump = whole.kind == Json::Kind::Object ? whole.find("dump") : nullptr;
  if (!dump || dump->kind != Json::Kind::Object)
    check.refuse(dump ? *dump : whole, "an object with an object 'dump' was expected");
  check.fields(*dump);
  DumpConfig config;
  const std::string mode = Checker::text(*dump, "dump_mode", "output");
  config.inputs = mode != "output";
  config.outputs = mode != "input";
  config.single_operators = Checker::text(*dump, "dump_op_switch", "off") == "on";
  config.overflow_only = Checker::text(*dump, "dump_debug", "off") == "on";
  if (config.overflow_only) {
    const Json* list = dump->find("dump_list");
    if (config.single_operators || (list && !list->items.empty()))
      check.refuse(*dump, "'dump_debug' cannot be on together with 'dump_op_switch' or models in 'dump_list'");
    config.inputs = config.outputs = true;
  }
  const Json* path = dump->find("dump_path");
  if (!path || path->text.empty()) check.refuse(path ? *path : *dump, "'dump_path' is missing or empty");
  config.path = check.folder(*path, path->text);
  return config;
}

}  // namespace acl_sim
