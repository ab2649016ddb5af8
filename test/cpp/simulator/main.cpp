// Runs the tests of the simulator from within, on two small devices.

#include <gtest/gtest.h>

#include <cstdlib>

#include "acl_session.h"

int main(int argc, char** argv) {
  ::setenv("ASCEND_SIM_DEVICE_COUNT", "2", 1);
  ::setenv("ASCEND_SIM_MEMORY", "64M", 1);
  ::testing::InitGoogleTest(&argc, argv);
  ::testing::AddGlobalTestEnvironment(new acl_sim::testing::AclSession);
  return RUN_ALL_TESTS();
}
