// Runs the tests of the launcher. An encoder for one operator that nobody else knows is there from the start, since
// encoders are added before the first launch.

#include <c10/npu/NPUFunctions.h>
#include <gtest/gtest.h>

#include "recording_encoder.h"

#include <cstdlib>

int main(int argc, char** argv) {
  ::setenv("ASCEND_SIMULATOR", "on", 1);
  ::setenv("ASCEND_SIM_DEVICE_COUNT", "1", 1);
  ::setenv("TASK_QUEUE_ENABLE", "2", 1);
  ::testing::InitGoogleTest(&argc, argv);
  at::native::npu::testing::RecordingEncoder::add();
  const int status = RUN_ALL_TESTS();
  c10::npu::npu_shutdown();
  return status;
}
