#pragma once
// printf's formats as a std::string, for messages. In a header, since the simulator's libraries share no code.

#include <cstdarg>
#include <cstdio>
#include <string>

namespace [[gnu::visibility("hidden")]] acl_sim {

__attribute__((format(printf, 1, 2))) inline std::string format(const char* pattern, ...) {
  va_list args, again;
  va_start(args, pattern);
  va_copy(again, args);
  const int length = std::vsnprintf(nullptr, 0, pattern, args);
  va_end(args);
  std::string text(length > 0 ? static_cast<size_t>(length) : 0, '\0');
  if (length > 0) std::vsnprintf(text.data(), text.size() + 1, pattern, again);
  va_end(again);
  return text;
}

}  // namespace acl_sim
