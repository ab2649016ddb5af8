#include "guard.h"

#include <acl/acl.h>
#include <acl/acl_simulator_extension.h>

#include <cstdio>
#include <iterator>
#include <new>

#include "acl_functions.h"

namespace hccl_sim {

const char* code_name(HcclResult code) {
  static const char* const names[] = {"HCCL_SUCCESS",
                                      "HCCL_E_PARA",
                                      "HCCL_E_PTR",
                                      "HCCL_E_MEMORY",
                                      "HCCL_E_INTERNAL",
                                      "HCCL_E_NOT_SUPPORT",
                                      "HCCL_E_NOT_FOUND",
                                      "HCCL_E_UNAVAIL",
                                      "HCCL_E_SYSCALL",
                                      "HCCL_E_TIMEOUT",
                                      "HCCL_E_OPEN_FILE_FAILURE",
                                      "HCCL_E_TCP_CONNECT",
                                      "HCCL_E_ROCE_CONNECT",
                                      "HCCL_E_TCP_TRANSFER",
                                      "HCCL_E_ROCE_TRANSFER",
                                      "HCCL_E_RUNTIME",
                                      "HCCL_E_DRV",
                                      "HCCL_E_PROFILING",
                                      "HCCL_E_CCE",
                                      "HCCL_E_NETWORK",
                                      "HCCL_E_AGAIN",
                                      "HCCL_E_REMOTE",
                                      "HCCL_E_SUSPENDING"};
  const auto i = static_cast<size_t>(code);
  return i < std::size(names) ? names[i] : "unknown HCCL error";
}

HcclResult detail::caught(const char* function) {
  HcclResult code = HCCL_E_INTERNAL;
  std::string text;
  try {
    throw;
  } catch (const Error& error) {
    code = error.code;
    text = error.what();
  } catch (const std::bad_alloc&) {
    code = HCCL_E_MEMORY;
    text = "out of host memory";
  } catch (const std::exception& error) {
    text = error.what();
  }
  aclsimReport(ACL_ERROR_INTERNAL_ERROR, (std::string(function) + ": " + code_name(code) + ": " + text).c_str());
  return code;
}

}  // namespace hccl_sim
