#pragma once
// What the environment says about the simulated machine, read once.
//   ASCEND_SIM_DEVICE_COUNT    devices of the host, 1 to 64 (1)
//   ASCEND_SIM_MEMORY          memory of each device: bytes, or with a suffix K, M, G (8G)
//   ASCEND_SIM_THREADS         host threads that one busy device may use (what OpenMP would use)
//   ASCEND_SIM_TINY            an operator whose operands have at most that many elements together may run on the
//                              calling thread; 0 never (65536)
//   ASCEND_SIM_OPERATORS       all; or cann: only operators that CANN documents, so that the device is as strict as a
//                              card
//   ASCEND_SIM_FAULT           see fault.h
//   ASCEND_RT_VISIBLE_DEVICES  as on CANN: a comma separated list of device numbers, cut at the first invalid one

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace [[gnu::visibility("hidden")]] acl_sim {

// What the device says it is.
inline constexpr const char* kSocName = "Ascend910B_sim";

struct Config {
  int physical_devices = 1;
  std::vector<int> visible;  // logical device -> physical device
  size_t memory = size_t{8} << 30;
  int threads = 0;  // 0: ask OpenMP
  int64_t tiny_elements = 65536;
  bool documented_only = false;
  std::string problem;  // why the environment is refused, empty if it is not
};

const Config& config();
// Throws Error(ACL_ERROR_INVALID_PARAM) with the variable and what it may be, if the environment is refused.
void check_config();

}  // namespace acl_sim
