#pragma once
// Which devices may copy from each other (aclrtDeviceEnablePeerAccess).

namespace [[gnu::visibility("hidden")]] acl_sim {

// For `device`; copies go both ways between two devices once one of them has let the other.
void set_peer(int device, int peer, bool may_copy);
bool are_peers(int one, int other);

}  // namespace acl_sim
