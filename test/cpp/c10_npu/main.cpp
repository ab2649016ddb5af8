// Runs the tests of the device layer on two small simulated devices, with the task queue on, which the simulator would
// not need: its thread is what is to be tested.

#include <c10/npu/NPUFunctions.h>
#include <gtest/gtest.h>

#include <cstdlib>

int main(int argc, char** argv) {
  ::setenv("ASCEND_SIMULATOR", "on", 1);
  ::setenv("ASCEND_SIM_DEVICE_COUNT", "2", 1);
  ::setenv("ASCEND_SIM_MEMORY", "64M", 1);
  ::setenv("TASK_QUEUE_ENABLE", "2", 1);
  ::testing::InitGoogleTest(&argc, argv);
  const int status = RUN_ALL_TESTS();
  c10::npu::npu_shutdown();
  return status;
}
