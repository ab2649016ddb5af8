#pragma once
// A small strict JSON reader, for the configuration files that the ABI takes (acl.json, dump.json).

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace [[gnu::visibility("hidden")]] acl_sim {

struct Json {
  enum class Kind { Null, Boolean, Number, Text, List, Object };

  Kind kind = Kind::Null;
  bool boolean = false;
  double number = 0;
  std::string text;
  std::vector<Json> items;
  struct Member;
  std::vector<Member> members;
  int line = 1;  // where it begins, from 1

  // The member of that name, or nullptr.
  const Json* find(const std::string& name) const;
  const char* kind_name() const;
};

struct Json::Member {
  std::string first;
  Json second;
};

// Reads a whole file. Throws Error(ACL_ERROR_INVALID_FILE) when it cannot be read, Error(ACL_ERROR_PARSE_FILE) with
// "file:line:column: what was expected" when it is not JSON.
Json read_json_file(const std::string& path);

// The text as a JSON string, in quotes.
std::string json_text(std::string_view text);

}  // namespace acl_sim
