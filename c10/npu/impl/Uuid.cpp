// See Uuid.h.

#include <c10/npu/impl/Uuid.h>

#include <c10/npu/NPUOptions.h>
#include <c10/util/StringUtil.h>

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

namespace c10::npu::impl {

namespace {

// The device's number on the host, which ASCEND_RT_VISIBLE_DEVICES may hide: the device's place in that list.
int number_on_host(DeviceIndex device) {
  const char* text = environment("ASCEND_RT_VISIBLE_DEVICES");
  std::istringstream list(text != nullptr ? text : "");
  int number = device;
  std::string entry;
  for (int i = 0; i <= device && std::getline(list, entry, ','); ++i) {
    if (i == device) {
      number = std::atoi(entry.c_str());
    }
  }
  return number;
}

}  // namespace

std::array<uint8_t, 16> device_uuid(DeviceIndex device) {
  std::string host;
  for (const char* path : {"/etc/machine-id", "/proc/sys/kernel/random/boot_id", "/etc/hostname"}) {
    if (std::ifstream file(path); std::getline(file, host) && !host.empty()) {
      break;
    }
  }
  const std::string text = c10::str(host, "/npu", number_on_host(device));
  std::array<uint8_t, 16> uuid{};
  uint64_t hash = 0xcbf29ce484222325;  // FNV-1a, the second half going on from the first
  for (size_t half = 0; half < 2; ++half) {
    for (const char c : text) {
      hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3;
    }
    for (size_t i = 0; i < 8; ++i) {
      uuid[8 * half + i] = static_cast<uint8_t>(hash >> 8 * i);
    }
  }
  uuid[6] = static_cast<uint8_t>((uuid[6] & 0x0f) | 0x80);
  uuid[8] = static_cast<uint8_t>((uuid[8] & 0x3f) | 0x80);
  return uuid;
}

}  // namespace c10::npu::impl
