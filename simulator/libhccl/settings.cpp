#include "settings.h"

#include "core/environment.h"
#include "guard.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <memory>
#include <sstream>
#include <vector>

namespace hccl_sim {
namespace {

std::string variable(const char* name) {
  const char* value = acl_sim::environment(name);
  return value ? value : "";
}

[[noreturn]] void refuse(const char* name, const std::string& value, const char* wanted) {
  throw Error(HCCL_E_PARA, format("%s is '%s'; it must be %s", name, value.c_str(), wanted));
}

int seconds(const char* name, int otherwise, int least) {
  const std::string text = variable(name);
  if (text.empty()) return otherwise;
  char* end = nullptr;
  errno = 0;
  const long value = std::strtol(text.c_str(), &end, 10);
  if (*end || errno || value < least || value > 2147483647L) refuse(name, text, "a whole number of seconds");
  return static_cast<int>(value);
}

std::string text_of(const sockaddr* address) {
  char text[INET6_ADDRSTRLEN] = "";
  if (address->sa_family == AF_INET) {
    ::inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(address)->sin_addr, text, sizeof(text));
  } else {
    ::inet_ntop(AF_INET6, &reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr, text, sizeof(text));
  }
  return text;
}

bool link_local(const sockaddr* address) {
  return address->sa_family == AF_INET6 &&
         IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr);
}

struct Interface {
  bool loopback = false;
  std::string addresses[2];  // IPv4, IPv6
};

std::map<std::string, Interface> interfaces() {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0)
    throw Error(HCCL_E_SYSCALL, format("the network interfaces cannot be listed: %s", std::strerror(errno)));
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(list, ::freeifaddrs);
  std::map<std::string, Interface> found;
  for (const ifaddrs* i = list; i; i = i->ifa_next) {
    if (!i->ifa_addr || !(i->ifa_flags & IFF_UP) || link_local(i->ifa_addr)) continue;
    const int family = i->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    auto& entry = found[i->ifa_name];
    entry.loopback = i->ifa_flags & IFF_LOOPBACK;
    auto& address = entry.addresses[family == AF_INET6];
    if (address.empty()) address = text_of(i->ifa_addr);
  }
  return found;
}

bool wanted(const std::string& name, const std::string& rule) {
  if (rule.empty()) return true;
  const char kind = rule[0] == '^' || rule[0] == '=' ? rule[0] : ' ';
  std::istringstream parts(kind == ' ' ? rule : rule.substr(1));
  bool listed = false;
  for (std::string part; std::getline(parts, part, ',');) {
    if (part.empty()) continue;
    listed = listed || (kind == ' ' ? name.compare(0, part.size(), part) == 0 : name == part);
  }
  return kind == '^' ? !listed : listed;
}

std::string choose_address() {
  const std::string given = variable("HCCL_IF_IP");
  if (!given.empty()) {
    unsigned char bytes[16];
    if (::inet_pton(AF_INET, given.c_str(), bytes) != 1 && ::inet_pton(AF_INET6, given.c_str(), bytes) != 1)
      refuse("HCCL_IF_IP", given, "an IPv4 or IPv6 address of this host");
    return given;
  }
  const std::string rule = variable("HCCL_SOCKET_IFNAME"), family = variable("HCCL_SOCKET_FAMILY");
  if (!family.empty() && family != "AF_INET" && family != "AF_INET6")
    refuse("HCCL_SOCKET_FAMILY", family, "AF_INET or AF_INET6");
  const auto found = interfaces();
  // Interfaces come in the order of their names. The loopback is for hosts without another, or when it is asked for.
  for (const bool loopback : {false, true}) {
    for (const auto& [name, interface] : found) {
      if (interface.loopback != loopback || !wanted(name, rule)) continue;
      const auto& [v4, v6] = interface.addresses;
      if (family == "AF_INET6") {
        if (!v6.empty()) return v6;
      } else if (!v4.empty()) {
        return v4;
      } else if (family.empty() && !v6.empty()) {
        return v6;
      }
    }
  }
  std::string names;
  for (const auto& entry : found) names.append(names.empty() ? "" : ", ").append(entry.first);
  throw Error(HCCL_E_NOT_FOUND,
              format("no network interface fits HCCL_SOCKET_IFNAME='%s' and HCCL_SOCKET_FAMILY='%s'; there are: %s",
                     rule.c_str(), family.c_str(), names.empty() ? "none" : names.c_str()));
}

std::string host_identity() {
  std::string text = variable("ASCEND_SIM_HOST");
  std::ifstream boot("/proc/sys/kernel/random/boot_id");
  std::string id;
  std::getline(boot, id);
  text.append("/").append(id);
  // Processes in other namespaces of the same machine are on another host, as far as networks and memory are concerned.
  for (const char* space : {"/proc/self/ns/net", "/proc/self/ns/pid"}) {
    struct stat facts;
    text.append("/").append(::stat(space, &facts) == 0 ? std::to_string(facts.st_ino) : std::string("?"));
  }
  return text;
}

// The strings of the list "host_ip"; the file is small and flat, so that a full parser would be more than it needs.
std::set<std::string> read_whitelist(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw Error(HCCL_E_OPEN_FILE_FAILURE, format("HCCL_WHITELIST_FILE: %s cannot be read", path.c_str()));
  std::stringstream content;
  content << file.rdbuf();
  const std::string text = content.str();
  std::set<std::string> allowed;
  const auto key = text.find("\"host_ip\"");
  const auto open = key == std::string::npos ? key : text.find('[', key);
  const auto close = open == std::string::npos ? open : text.find(']', open);
  if (close == std::string::npos)
    throw Error(HCCL_E_PARA, format("HCCL_WHITELIST_FILE: %s has no list \"host_ip\"", path.c_str()));
  for (auto at = text.find('"', open); at != std::string::npos && at < close; at = text.find('"', at)) {
    const auto end = text.find('"', at + 1);
    if (end == std::string::npos || end > close) break;
    allowed.insert(text.substr(at + 1, end - at - 1));
    at = end + 1;
  }
  return allowed;
}

}  // namespace

Settings read_settings() {
  Settings settings;
  settings.connect_timeout = seconds("HCCL_CONNECT_TIMEOUT", settings.connect_timeout, 1);
  settings.exec_timeout = seconds("HCCL_EXEC_TIMEOUT", settings.exec_timeout, 0);
  const std::string disable = variable("HCCL_WHITELIST_DISABLE");
  if (!disable.empty() && disable != "0" && disable != "1") refuse("HCCL_WHITELIST_DISABLE", disable, "0 or 1");
  settings.whitelist = disable == "0";
  if (settings.whitelist) {
    settings.whitelist_file = variable("HCCL_WHITELIST_FILE");
    if (settings.whitelist_file.empty())
      throw Error(HCCL_E_PARA,
                  "HCCL_WHITELIST_DISABLE=0 needs HCCL_WHITELIST_FILE, the file with the allowed addresses");
    settings.allowed = read_whitelist(settings.whitelist_file);
  }
  settings.address = choose_address();
  settings.host = host_identity();
  return settings;
}

}  // namespace hccl_sim
