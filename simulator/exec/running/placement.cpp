#include "exec/running/placement.h"

#include <omp.h>
#include <sched.h>

#include <vector>

#include "core/load.h"
#include "core/thread_local.h"

namespace acl_sim {
namespace {

// The cores that the process was given, in order; none where somebody else binds threads.
const std::vector<int>& cores() {
  static const std::vector<int> own = [] {
    std::vector<int> list;
    cpu_set_t set;
    if (omp_get_proc_bind() != omp_proc_bind_false || ::sched_getaffinity(0, sizeof(set), &set) != 0) return list;
    for (int core = 0; core < CPU_SETSIZE; ++core) {
      if (CPU_ISSET(core, &set)) list.push_back(core);
    }
    return list;
  }();
  return own;
}

struct Placed {
  int threads = 0;  // 0: helpers run where they like
  int worker = -1;  // the core that is left to the worker
};
SIM_THREAD_LOCAL Placed placed;

// Helper i gets order[i - 1]; all of `order` if it is to be free.
void bind_helpers(int threads, const std::vector<int>& order, bool free) {
#pragma omp parallel num_threads(threads)
  {
    const int helper = omp_get_thread_num();
    if (helper > 0) {
      cpu_set_t set;
      CPU_ZERO(&set);
      if (free) {
        for (const int core : order) CPU_SET(core, &set);
      } else {
        CPU_SET(order[static_cast<size_t>(helper - 1)], &set);
      }
      // Where that is refused, threads run as the scheduler likes.
      ::sched_setaffinity(0, sizeof(set), &set);
    }
  }
}

}  // namespace

void place_team(int threads) {
  const auto& all = cores();
  const bool full = threads > 1 && static_cast<size_t>(threads) == all.size() && !machine_is_busy();
  if (!full) {
    if (placed.threads > 0 && threads > 1) bind_helpers(threads, all, true);
    if (threads > 1) placed = Placed{};
    return;
  }
  const int here = ::sched_getcpu();
  if (placed.threads == threads && placed.worker == here) return;
  std::vector<int> order;
  for (const int core : all) {
    if (core != here) order.push_back(core);
  }
  if (order.size() == all.size()) return;  // the worker runs on a core that is none of these
  bind_helpers(threads, order, false);
  placed = {threads, here};
}

}  // namespace acl_sim
