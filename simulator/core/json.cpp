#include "core/json.h"

#include "core/error.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>

#include <sys/stat.h>

namespace acl_sim {
namespace {

constexpr int kMostNested = 64;
constexpr size_t kMostBytes = size_t{1} << 20;

class Reader {
 public:
  Reader(const std::string& path, const std::string& text) : path_(path), text_(text) {}

  Json whole() {
    Json value = read(0);
    skip();
    if (at_ < text_.size()) refuse("the end of the file");
    return value;
  }

 private:
  [[noreturn]] void refuse(const std::string& expected) const {
    std::string found = "the end of the file";
    if (at_ < text_.size()) {
      const auto c = static_cast<unsigned char>(text_[at_]);
      found = c >= 0x20 && c < 0x7F ? std::string("'") + text_[at_] + "'" : format("the byte 0x%02x", c);
    }
    throw Error(ACL_ERROR_PARSE_FILE,
                format("%s:%d:%zu: this is not JSON: %s was expected, but there is %s", path_.c_str(), line_,
                       at_ - line_begin_ + 1, expected.c_str(), found.c_str()));
  }

  void skip() {
    for (; at_ < text_.size(); ++at_) {
      const char c = text_[at_];
      if (c != ' ' && c != '\t' && c != '\r' && c != '\n') return;
      if (c == '\n') {
        ++line_;
        line_begin_ = at_ + 1;
      }
    }
  }
  bool next_is(char c) {
    skip();
    return at_ < text_.size() && text_[at_] == c;
  }
  bool take(char c) {
    if (!next_is(c)) return false;
    ++at_;
    return true;
  }
  void word(const char* w) {
    const size_t length = std::strlen(w);
    if (text_.compare(at_, length, w) != 0) refuse(std::string("'") + w + "'");
    at_ += length;
  }

  Json read(int depth) {
    skip();
    if (at_ >= text_.size() || depth > kMostNested) refuse("a value");
    Json value;
    value.line = line_;
    switch (text_[at_]) {
      case '{':
        object(value, depth);
        break;
      case '[':
        list(value, depth);
        break;
      case '"':
        value.kind = Json::Kind::Text;
        value.text = string();
        break;
      case 't':
      case 'f':
        value.kind = Json::Kind::Boolean;
        value.boolean = text_[at_] == 't';
        word(value.boolean ? "true" : "false");
        break;
      case 'n':
        word("null");
        break;
      default:
        value.kind = Json::Kind::Number;
        value.number = number();
    }
    return value;
  }

  void object(Json& value, int depth) {
    value.kind = Json::Kind::Object;
    ++at_;
    if (take('}')) return;
    do {
      if (!next_is('"')) refuse("a name in double quotes");
      std::string name = string();
      if (!take(':')) refuse("':'");
      value.members.emplace_back(std::move(name), read(depth + 1));
    } while (take(','));
    if (!take('}')) refuse("',' or '}'");
  }

  void list(Json& value, int depth) {
    value.kind = Json::Kind::List;
    ++at_;
    if (take(']')) return;
    do {
      value.items.push_back(read(depth + 1));
    } while (take(','));
    if (!take(']')) refuse("',' or ']'");
  }

  double number() {
    const char* begin = text_.c_str() + at_;
    if (*begin != '-' && (*begin < '0' || *begin > '9')) refuse("a value");
    char* end = nullptr;
    const double value = std::strtod(begin, &end);
    // strtod also takes "-inf" and hexadecimal numbers.
    if (std::strspn(begin, "+-.0123456789eE") < static_cast<size_t>(end - begin)) refuse("a number");
    at_ += static_cast<size_t>(end - begin);
    return value;
  }

  unsigned hex() {
    unsigned code = 0;
    for (int i = 0; i < 4; ++i, ++at_) {
      const char c = at_ < text_.size() ? text_[at_] : ' ';
      const char* digits = "0123456789abcdef";
      const char* found = std::strchr(digits, c >= 'A' && c <= 'F' ? c - 'A' + 'a' : c);
      if (!found || !c) refuse("a hexadecimal digit");
      code = code * 16 + static_cast<unsigned>(found - digits);
    }
    return code;
  }

  static void put_utf8(std::string& to, unsigned code) {
    if (code < 0x80) {
      to += static_cast<char>(code);
    } else if (code < 0x800) {
      to += static_cast<char>(0xC0 | code >> 6);
      to += static_cast<char>(0x80 | (code & 0x3F));
    } else if (code < 0x10000) {
      to += static_cast<char>(0xE0 | code >> 12);
      to += static_cast<char>(0x80 | (code >> 6 & 0x3F));
      to += static_cast<char>(0x80 | (code & 0x3F));
    } else {
      to += static_cast<char>(0xF0 | code >> 18);
      to += static_cast<char>(0x80 | (code >> 12 & 0x3F));
      to += static_cast<char>(0x80 | (code >> 6 & 0x3F));
      to += static_cast<char>(0x80 | (code & 0x3F));
    }
  }

  std::string string() {
    std::string value;
    ++at_;
    for (;;) {
      if (at_ >= text_.size() || static_cast<unsigned char>(text_[at_]) < 0x20) refuse("'\"' at the end of the text");
      const char c = text_[at_++];
      if (c == '"') return value;
      if (c != '\\') {
        value += c;
        continue;
      }
      const char* names = "\"\\/bfnrt";
      const char* found = at_ < text_.size() && text_[at_] ? std::strchr(names, text_[at_]) : nullptr;
      if (found) {
        value += "\"\\/\b\f\n\r\t"[found - names];
        ++at_;
      } else if (at_ < text_.size() && text_[at_] == 'u') {
        ++at_;
        unsigned code = hex();
        if (code >= 0xD800 && code < 0xDC00 && text_.compare(at_, 2, "\\u") == 0) {
          at_ += 2;
          code = 0x10000 + ((code - 0xD800) << 10) + (hex() - 0xDC00);
        }
        put_utf8(value, code);
      } else {
        refuse("one of \" \\ / b f n r t u after a backslash");
      }
    }
  }

  const std::string& path_;
  const std::string& text_;
  size_t at_ = 0;
  int line_ = 1;  // no line ends inside a text, so skip() sees them all
  size_t line_begin_ = 0;
};

}  // namespace

const Json* Json::find(const std::string& name) const {
  for (const auto& [key, value] : members) {
    if (key == name) return &value;
  }
  return nullptr;
}

const char* Json::kind_name() const {
  switch (kind) {
    case Kind::Null:
      return "null";
    case Kind::Boolean:
      return "a boolean";
    case Kind::Number:
      return "a number";
    case Kind::Text:
      return "a text";
    case Kind::List:
      return "a list";
    case Kind::Object:
      return "an object";
  }
  return "";
}

Json read_json_file(const std::string& path) {
  struct stat info;
  if (::stat(path.c_str(), &info) != 0) {
    throw Error(ACL_ERROR_INVALID_FILE,
                format("the configuration file '%s' cannot be read: %s", path.c_str(), std::strerror(errno)));
  }
  if (!S_ISREG(info.st_mode) || static_cast<size_t>(info.st_size) > kMostBytes)
    throw Error(ACL_ERROR_INVALID_FILE,
                format("the configuration file '%s' is not a file, or too large", path.c_str()));
  std::ifstream file(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  if (!file) {
    throw Error(ACL_ERROR_INVALID_FILE,
                format("the configuration file '%s' cannot be read: %s", path.c_str(), std::strerror(errno)));
  }
  return Reader(path, text).whole();
}

std::string json_text(std::string_view text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      quoted += '\\';
      quoted += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      quoted += format("\\u%04x", static_cast<unsigned>(static_cast<unsigned char>(c)));
    } else {
      quoted += c;
    }
  }
  return quoted + '"';
}

}  // namespace acl_sim
