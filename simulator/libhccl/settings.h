#pragma once
// The environment variables of HCCL that the simulator heeds, read once for each communicator's root and rank.
//   HCCL_CONNECT_TIMEOUT    seconds to wait for all ranks of a new communicator (120)
//   HCCL_EXEC_TIMEOUT       seconds that a rank waits for others in one operation, 0: no limit (1836)
//   HCCL_IF_IP              address that this rank listens on
//   HCCL_SOCKET_IFNAME      otherwise: the interface, as "eth" (names that begin so), "=eth0" (that name), "^docker,lo"
//                           (any but those)
//   HCCL_SOCKET_FAMILY      AF_INET or AF_INET6 where an interface has both (AF_INET)
//   HCCL_WHITELIST_DISABLE  0: only peers of HCCL_WHITELIST_FILE may connect (1)
//   HCCL_WHITELIST_FILE     {"host_ip": ["address", ...], "device_ip": [...]}
//   ASCEND_SIM_HOST         a name; ranks with different ones talk over sockets as if they were on different hosts

#include <set>
#include <string>

namespace hccl_sim {

struct Settings {
  int connect_timeout = 120;
  int exec_timeout = 1836;
  bool whitelist = false;
  std::string whitelist_file;
  std::set<std::string> allowed;
  std::string address;  // of this rank, chosen by the rules above
  std::string host;     // what is the same for ranks that can map each other's memory
};

// Throws Error(HCCL_E_PARA) naming the variable that is refused.
Settings read_settings();

}  // namespace hccl_sim
