#pragma once
// Which devices may copy from each other (aclrtDeviceEnablePeerAccess).

namespace acl_sim [[gnu::visibility("hidden")]] {

// For `device`; copies go both ways between two devices once one of them has let the other.
void set_peer(int device, int peer, bool may_copy);
bool are_peers(int one, int other);

}  // namespace gnu::visibility("hidden")]]
