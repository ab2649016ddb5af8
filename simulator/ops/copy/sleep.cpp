// An operator that takes a given time: what tests put into a stream to see what does not wait for it.

#include "core/process.h"
#include "ops/common.h"

#include <algorithm>
#include <chrono>
#include <thread>

namespace acl_sim {
namespace {

void sleep(OpContext& c) {
  using Clock = std::chrono::steady_clock;
  constexpr auto kSlice = std::chrono::milliseconds(5);  // after which an exiting process is noticed
  const auto end = Clock::now() + std::chrono::nanoseconds(c.attrs().integer("nanoseconds", 0));
  for (auto now = Clock::now(); now < end && !exiting(); now = Clock::now())
    std::this_thread::sleep_for(std::min<Clock::duration>(end - now, kSlice));
}

SIM_OP(Sleep).inputs(1).dtypes(kAllTypes).attrs({"nanoseconds:int"}).ai_cpu().run(sleep);

}  // namespace
}  // namespace acl_sim
