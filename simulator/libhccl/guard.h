#pragma once
// Errors inside libhccl: exceptions that carry HCCL's code. The exported functions turn them into the code, and leave
// the text for aclGetRecentErrMsg, where CANN's libhccl leaves its own.

#include <hccl/hccl.h>

#include <stdexcept>
#include <string>

#include "core/format.h"

namespace hccl_sim {

class Error : public std::runtime_error {
 public:
  Error(HcclResult code, const std::string& reason) : std::runtime_error(reason), code(code) {}
  HcclResult code;
};

using acl_sim::format;
const char* code_name(HcclResult code);

namespace detail {
HcclResult caught(const char* function);
}  // namespace detail

template <class F>
inline HcclResult guard(const char* function, F&& body) noexcept {
  try {
    return body();
  } catch (...) {
    return detail::caught(function);
  }
}

}  // namespace hccl_sim
