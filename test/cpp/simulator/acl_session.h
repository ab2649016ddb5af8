#pragma once
// ACL as a host would have it: initialised once, device 0 in use, handles that end with their scope.

#include <acl/acl.h>
#include <acl/acl_op_compiler.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <initializer_list>
#include <vector>

#include "acl_functions.h"

#define ACL_OK(call) ASSERT_EQ(call, ACL_SUCCESS) << aclGetRecentErrMsg()
#define EXPECT_ACL_OK(call) EXPECT_EQ(call, ACL_SUCCESS) << aclGetRecentErrMsg()

namespace acl_sim::testing {

class AclSession : public ::testing::Environment {
 public:
  void SetUp() override {
    ACL_OK(aclInit(nullptr));
    ACL_OK(aclrtSetDevice(0));
  }
  void TearDown() override {
    ACL_OK(aclrtResetDevice(0));
    ACL_OK(aclFinalize());
  }
};

class DeviceMemory {
 public:
  explicit DeviceMemory(size_t bytes) { EXPECT_ACL_OK(aclrtMalloc(&data_, bytes, ACL_MEM_MALLOC_NORMAL_ONLY)); }
  ~DeviceMemory() { EXPECT_ACL_OK(aclrtFree(data_)); }
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;
  void* get() const { return data_; }
  char* at(size_t offset) const { return static_cast<char*>(data_) + offset; }

 private:
  void* data_ = nullptr;
};

class OwnStream {
 public:
  OwnStream() { EXPECT_ACL_OK(aclrtCreateStream(&stream_)); }
  ~OwnStream() { EXPECT_ACL_OK(aclrtDestroyStream(stream_)); }
  OwnStream(const OwnStream&) = delete;
  OwnStream& operator=(const OwnStream&) = delete;
  operator aclrtStream() const { return stream_; }

 private:
  aclrtStream stream_ = nullptr;
};

class OwnEvent {
 public:
  OwnEvent() { EXPECT_ACL_OK(aclrtCreateEvent(&event_)); }
  ~OwnEvent() { EXPECT_ACL_OK(aclrtDestroyEvent(event_)); }
  OwnEvent(const OwnEvent&) = delete;
  OwnEvent& operator=(const OwnEvent&) = delete;
  operator aclrtEvent() const { return event_; }

 private:
  aclrtEvent event_ = nullptr;
};

// Host memory to the device through the stream; the source may go when this returns.
inline void put(void* to, const void* from, size_t bytes, aclrtStream stream) {
  EXPECT_ACL_OK(aclrtMemcpyAsync(to, bytes, from, bytes, ACL_MEMCPY_HOST_TO_DEVICE, stream));
}
inline void fetch(void* to, const void* from, size_t bytes) {
  EXPECT_ACL_OK(aclrtMemcpy(to, bytes, from, bytes, ACL_MEMCPY_DEVICE_TO_HOST));
}

// One operator on float tensors of one shape: the last operand is the output.
inline aclError launch(const char* type, std::initializer_list<int64_t> dims, std::initializer_list<void*> operands,
                       aclrtStream stream) {
  size_t bytes = sizeof(float);
  for (const int64_t dim : dims) bytes *= static_cast<size_t>(dim);
  std::vector<aclTensorDesc*> descs;
  std::vector<aclDataBuffer*> buffers;
  for (void* operand : operands) {
    descs.push_back(aclCreateTensorDesc(ACL_FLOAT, static_cast<int>(dims.size()), dims.begin(), ACL_FORMAT_ND));
    buffers.push_back(aclCreateDataBuffer(operand, bytes));
  }
  aclopAttr* attributes = aclopCreateAttr();
  const size_t inputs = operands.size() - 1;
  const aclError code =
      aclopCompileAndExecute(type, static_cast<int>(inputs), descs.data(), buffers.data(), 1, descs.data() + inputs,
                             buffers.data() + inputs, attributes, ACL_ENGINE_SYS, ACL_COMPILE_SYS, nullptr, stream);
  for (auto* desc : descs) aclDestroyTensorDesc(desc);
  for (auto* buffer : buffers) aclDestroyDataBuffer(buffer);
  aclopDestroyAttr(attributes);
  return code;
}

}  // namespace acl_sim::testing
