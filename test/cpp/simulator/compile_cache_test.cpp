// Compiled operators: found again, bounded in number, alive while queued tasks use them.

#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "acl_session.h"
#include "exec/compilation/compile_cache.h"

namespace acl_sim {
namespace {

using namespace testing;

constexpr uint64_t kBound = 16384;  // operators that the cache keeps

TEST(CompileCache, CompilesADescriptionOnce) {
  OwnStream stream;
  DeviceMemory memory(1024);
  const auto neg = [&](int64_t n) { EXPECT_ACL_OK(launch("Neg", {n}, {memory.get(), memory.get()}, stream)); };
  neg(3);
  const uint64_t before = compiled_ops();
  neg(3);
  EXPECT_EQ(compiled_ops(), before);
  neg(5);
  EXPECT_EQ(compiled_ops(), before + 1);
  ACL_OK(aclrtSynchronizeStream(stream));
}

TEST(CompileCache, ThreadsFindTheSameOperator) {
  DeviceMemory memory(1024);
  OwnStream main;
  EXPECT_ACL_OK(launch("Neg", {7}, {memory.get(), memory.get()}, main));
  const uint64_t before = compiled_ops();
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      EXPECT_ACL_OK(aclrtSetDevice(0));
      OwnStream stream;
      DeviceMemory own(1024);
      for (int i = 0; i < 50; ++i) EXPECT_ACL_OK(launch("Neg", {7}, {own.get(), own.get()}, stream));
      EXPECT_ACL_OK(aclrtSynchronizeStream(stream));
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(compiled_ops(), before);
  ACL_OK(aclrtSynchronizeStream(main));
}

// Many more shapes than the cache keeps, on several streams whose tasks stand in queues while their operators are
// taken out: a use of one that is gone is what a sanitizer reports, and a wrong result what this test does.
TEST(CompileCache, IsBoundedWhileThreadsUseIt) {
  constexpr int kThreads = 3;
  constexpr int64_t kShapes = 9000;  // of each thread
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([t] {
      EXPECT_ACL_OK(aclrtSetDevice(0));
      OwnStream stream;
      std::vector<float> ones(4 * 90 * 101, 1);
      DeviceMemory memory(ones.size() * sizeof(float));
      put(memory.get(), ones.data(), ones.size() * sizeof(float), stream);
      for (int64_t n = 1; n <= kShapes; ++n) {
        const auto code = launch("Neg", {t + 2, n % 90 + 1, n / 90 + 1}, {memory.get(), memory.get()}, stream);
        ASSERT_EQ(code, ACL_SUCCESS) << aclGetRecentErrMsg();
        EXPECT_ACL_OK(launch("Neg", {t + 2, 90, 60}, {memory.get(), memory.get()}, stream));  // one that stays
      }
      EXPECT_ACL_OK(aclrtSynchronizeStream(stream));
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_LE(compiled_ops(), kBound + kBound / 2);
}

TEST(CompileCache, WhatWasCompiledOnRequestStays) {
  OwnStream stream;
  DeviceMemory memory(100 * 201 * sizeof(float));
  const int64_t dims[] = {2, 13};
  aclTensorDesc* desc = aclCreateTensorDesc(ACL_FLOAT, 2, dims, ACL_FORMAT_ND);
  aclopAttr* attributes = aclopCreateAttr();
  ACL_OK(aclopCompile("Neg", 1, &desc, 1, &desc, attributes, ACL_ENGINE_SYS, ACL_COMPILE_SYS, nullptr));
  for (int64_t n = 1; n < 20000; ++n) {  // more than the cache keeps
    ASSERT_EQ(launch("Neg", {1, n % 100 + 1, 1, n / 100 + 1}, {memory.get(), memory.get()}, stream), ACL_SUCCESS);
  }
  aclDataBuffer* buffer = aclCreateDataBuffer(memory.get(), sizeof(float) * 26);
  EXPECT_ACL_OK(aclopExecuteV2("Neg", 1, &desc, &buffer, 1, &desc, &buffer, attributes, stream));
  ACL_OK(aclrtSynchronizeStream(stream));
  aclDestroyDataBuffer(buffer);
  aclopDestroyAttr(attributes);
  aclDestroyTensorDesc(desc);
}

}  // namespace
}  // namespace acl_sim
