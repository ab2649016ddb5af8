#pragma once
// Turns ACL's return codes into exceptions: torch.AcceleratorError (a RuntimeError) in Python, with the code, its
// name, ACL's own reason, and where to look further.

#include <acl/acl_base.h>
#include <c10/npu/NPUMacros.h>
#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>

#include <string>

namespace c10::npu {

// "ACL_ERROR_RT_MEMORY_ALLOCATION" for 207001; "unknown error" for a code without a name.
C10_NPU_API const char* error_name(aclError code);

// ACL's text for the last failure of this thread, or an empty string. Reading it clears it.
C10_NPU_API std::string take_recent_error();

// Where to look further after a failure: TASK_QUEUE_ENABLE=0 and the log directory.
C10_NPU_API std::string error_hint();

namespace detail {
[[noreturn]] C10_NPU_API void throw_npu_error(const SourceLocation& where, aclError code, const std::string& note);
C10_NPU_API void warn_npu_error(const SourceLocation& where, aclError code);
// Raised for an operator (or another task) that could not be put on its stream.
[[noreturn]] C10_NPU_API void throw_launch_error(const SourceLocation& where, const char* task, aclError code,
                                                 const std::string& reason);
}  // namespace detail

}  // namespace c10::npu

// Evaluates an expression that returns an aclError and throws unless it is ACL_SUCCESS; further arguments are put
// together as a note for the text.
#define NPU_CHECK(EXPR, ...)                                                                                      \
  do {                                                                                                            \
    const aclError npu_check_code_ = (EXPR);                                                                      \
    if (C10_UNLIKELY(npu_check_code_ != ACL_SUCCESS)) {                                                           \
      ::c10::npu::detail::throw_npu_error({__func__, __FILE__, static_cast<uint32_t>(__LINE__)}, npu_check_code_, \
                                          ::c10::str(__VA_ARGS__));                                               \
    }                                                                                                             \
  } while (0)

// The same for destructors and clean-up: warns instead of throwing.
#define NPU_CHECK_WARN(EXPR)                                                                                      \
  do {                                                                                                            \
    const aclError npu_check_code_ = (EXPR);                                                                      \
    if (C10_UNLIKELY(npu_check_code_ != ACL_SUCCESS)) {                                                           \
      ::c10::npu::detail::warn_npu_error({__func__, __FILE__, static_cast<uint32_t>(__LINE__)}, npu_check_code_); \
    }                                                                                                             \
  } while (0)
