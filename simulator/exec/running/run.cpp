// Running launches: the scope in which kernels execute on any thread, faults, and failures.

#include "core/executor.h"

#include "core/config.h"
#include "core/environment.h"
#include "core/fault.h"
#include "core/load.h"
#include "core/process.h"
#include "core/stream.h"
#include "core/thread_local.h"
#include "exec/running/context.h"
#include "exec/running/onednn.h"
#include "exec/running/placement.h"
#include "exec/running/scratch.h"
#include "exec/watching/dump.h"
#include "exec/watching/float_status.h"
#include "exec/watching/saturation.h"
#include "exec/watching/underflow.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/record_function.h>
#include <c10/core/AutogradState.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/Exception.h>

#include <omp.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <thread>

// The C entry point; MKL's lower-case names are the Fortran ones, which take a pointer.
extern "C" int MKL_Set_Num_Threads_Local(int) __attribute__((weak));

namespace acl_sim {
namespace {

// Kernels run below autograd, modes, autocast and profilers, whatever the thread that happens to run them has on.
class DeviceScope {
 public:
  DeviceScope()
      : keys_(c10::DispatchKeySet(c10::DispatchKey::BackendSelect),
              c10::default_excluded_set | c10::autograd_dispatch_keyset),
        state_(c10::AutogradState::get_tls_state()),
        grad_(state_.get_grad_mode()),
        inference_(state_.get_inference_mode()),
        forward_grad_(state_.get_fw_grad_mode()),
        // Switching it costs a quarter of a small operator, so only where somebody listens.
        recording_(at::hasCallbacks() && at::isRecordFunctionEnabled()) {
    state_.set_grad_mode(false);
    state_.set_inference_mode(true);
    state_.set_fw_grad_mode(false);
    if (recording_) at::enableRecordFunction(false);
  }
  ~DeviceScope() {
    if (recording_) at::enableRecordFunction(true);
    state_.set_fw_grad_mode(forward_grad_);
    state_.set_inference_mode(inference_);
    state_.set_grad_mode(grad_);
  }
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;

 private:
  c10::impl::ForceDispatchKeyGuard keys_;
  ScratchScope scratch_;
  c10::AutogradState& state_;
  bool grad_, inference_, forward_grad_, recording_;
};

SIM_THREAD_LOCAL int team = 0;  // 0: not a worker
std::atomic<int> most_threads{INT_MAX};

// The size of a team where the host's thread would use `threads` itself.
int team_for(int threads) {
  const int limit = config().threads;
  return limit > 0 ? limit : std::min(threads, most_threads.load(std::memory_order_relaxed));
}

void use_team(int threads) {
  if (threads == team) return;
  team = threads;
  omp_set_num_threads(threads);
  if (MKL_Set_Num_Threads_Local) MKL_Set_Num_Threads_Local(threads);
}

// On a busy machine a team waits longer for its cores than one thread takes for this many elements of all operands.
constexpr int64_t kAlone = 1 << 20;

// Whether one thread computes it. Operators that have a loop for tiny operands round each element by itself, so that it
// does not matter to their results.
bool has_one_thread(const CompiledOp& op) {
  if (op.narrow) return true;
  if (!op.def->tiny_fn || op.elements > kAlone || op.inputs.empty()) return false;
  const auto dtype = op.inputs[0].dtype;
  return dtype != ACL_COMPLEX64 && dtype != ACL_COMPLEX128 && dtype != ACL_COMPLEX32 && machine_is_busy();
}

// A tiny operator has one thread, whoever runs it: on a thread of the host it must not start that thread's own OpenMP
// team, and with more threads some kernels round differently, so that results would depend on chance. For the same
// reason any other, which the host's thread runs on a busy machine, has as many as a worker would take for it.
class TinyTeam {
 public:
  explicit TinyTeam(const CompiledOp& op) : before_(team == 0 ? omp_get_max_threads() : 0) {
    if (team > 0) {
      if (has_one_thread(op)) use_team(1);  // set_team() comes before the next large one
    } else {
      const int threads = has_one_thread(op) ? 1 : team_for(before_);
      if (before_ != threads) omp_set_num_threads(threads);
      if (MKL_Set_Num_Threads_Local) before_mkl_ = MKL_Set_Num_Threads_Local(threads);
    }
  }
  ~TinyTeam() {
    if (before_ > 0 && omp_get_max_threads() != before_) omp_set_num_threads(before_);
    if (before_ > 0 && MKL_Set_Num_Threads_Local) MKL_Set_Num_Threads_Local(before_mkl_);
  }
  TinyTeam(const TinyTeam&) = delete;
  TinyTeam& operator=(const TinyTeam&) = delete;

 private:
  int before_;
  int before_mkl_ = 0;
};

bool stored_plainly(const CompiledOp& op, OpLaunch& launch, Device& device) {
  const LayoutMap* map = layout_or_null(device);
  if (!map) return true;
  for (size_t i = 0; i < op.inputs.size() + op.outputs.size(); ++i) {
    const auto& operand = op.operand(i);
    if (!operand.host && map->may_hold_tags(launch.operand(i), operand.bytes)) return false;
  }
  return true;
}

// By the operator's loop or way for small operands; false if neither applies.
bool run_without_tensors(const CompiledOp& op, OpLaunch& launch, Device& device) {
  if (!(op.tiny_loop || op.small) || launch.fault != OpFault::None || !stored_plainly(op, launch, device)) return false;
  void* operands[OpLaunch::kInline];
  const size_t inputs = op.inputs.size(), count = inputs + op.outputs.size();
  for (size_t i = 0; i < count; ++i) operands[i] = launch.operand(i);
  const auto& result = op.outputs[0];
  if (op.tiny_loop && op.def->tiny_fn(op.inputs[0].dtype, operands[inputs], operands, result.elements)) return true;
  if (!op.small) return false;
  const TinyTeam tiny(op);
  return op.small(op, operands);
}

void run_general(const CompiledOp& op, OpLaunch& launch, Device& device) {
  DeviceScope scope;
  TinyTeam tiny(op);
  RunContext context(op, launch, device);
  op.def->run_fn(context);
  context.finish();
  if (__builtin_expect(op.rounding == CubeRounding::Fp16, 0)) context.narrow_outputs();
  if (__builtin_expect(launch.fault == OpFault::Scale, 0)) context.scale_outputs(launch.fault_scale);
}

void run_plain(const CompiledOp& op, OpLaunch& launch, Device& device) {
  if (!run_without_tensors(op, launch, device)) run_general(op, launch, device);
}

bool watched(const OpLaunch& launch, const Stream& stream) {
  return launch.dump || stream.saturates.load(std::memory_order_relaxed) ||
         stream.device->watches_floats.load(std::memory_order_relaxed) ||
         stream.overflow_check.load(std::memory_order_relaxed);
}

// Runs it while looking for overflows and underflows, and dumps its operands if it has a ticket.
void run_watched(const CompiledOp& op, Task& task, Stream& stream) {
  OpLaunch& launch = task.op;
  Device& device = *stream.device;
  const bool debug = launch.dump && dumps_overflow_only(*launch.dump);
  std::optional<FloatWatch> floats;
  std::optional<UnderflowWatch> zeros;
  const bool switched_on = stream.overflow_check.load(std::memory_order_relaxed);
  const bool saturates = stream.saturates.load(std::memory_order_relaxed);
  if (debug || switched_on || saturates || device.watches_floats.load(std::memory_order_relaxed))
    floats.emplace(op, launch);
  if (switched_on) zeros.emplace(op, launch, device);
  std::optional<OperandDump> dump;
  if (launch.dump) dump.emplace(*launch.dump, op, launch, device);
  if (floats) floats->before();
  if (zeros) zeros->before();
  if (dump) dump->before();
  run_plain(op, launch, device);
  const bool overflowed = floats && floats->after();
  if (overflowed) device.float_status.store(1, std::memory_order_relaxed);
  if (saturates) saturate_results(op, launch);
  if (zeros) {
    DeviceScope scope;
    TinyTeam tiny(op);
    device.underflows.fetch_add(zeros->after(), std::memory_order_relaxed);
  }
  if (!dump || (debug && !overflowed)) return;
  try {
    dump->after(stream, task.id);
  } catch (const Error& error) {
    // The operator itself is fine.
    stream.set_error(error.code, error.what(), nullptr);
  }
}

// What hung hardware looks like from the host: nothing comes back until something gives up.
void hang(const CompiledOp& op, Stream& stream) {
  const int64_t limit = op_execute_timeout_ms();
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(limit);
  while (!exiting() && !stream.aborting()) {
    if (limit > 0 && std::chrono::steady_clock::now() >= end) {
      throw OpError(op.def->on_ai_cpu ? ACL_ERROR_RT_AICPU_TIMEOUT : ACL_ERROR_RT_AICORE_TIMEOUT,
                    format("it did not end within %lld ms (fault injected)", static_cast<long long>(limit)));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

}  // namespace

void drop_op(Task& task) noexcept {
  if (!task.op.lent) std::free(task.op.spill);
  task.op.spill = nullptr;
  drop_ticket(task.op.dump);
  task.op.dump = nullptr;
}

void lend_op(Task& task) noexcept {
  task.op.lent = true;
  task.op.op->pins.fetch_add(1);
}

void take_back_op(Task& task) noexcept {
  task.op.lent = false;
  task.op.op->pins.fetch_sub(1);
}

void prepare_replay(Task& task, Device& device) noexcept {
  inject_into_launch(task.op.op->def->type.c_str(), task.op, device);
  task.op.dump = dump_ticket();
}

void run_op(Stream& stream, Task& task) noexcept {
  OpLaunch& launch = task.op;
  const CompiledOp& op = *launch.op;
  Device& device = *stream.device;
  const aclError exception = op.def->on_ai_cpu ? ACL_ERROR_RT_AICPU_EXCEPTION : ACL_ERROR_RT_AICORE_EXCEPTION;
  const auto failed = [&](aclError code, const std::string& reason) noexcept {
    try {
      stream.set_error(code,
                       op.describe() + " failed on device " + std::to_string(device.id) + ", stream " +
                           std::to_string(stream.number) + ": " + reason,
                       &task);
    } catch (...) {
      stream.set_error(code, {}, &task);
    }
  };
  try {
    if (__builtin_expect(launch.fault != OpFault::None, 0)) {
      if (launch.fault == OpFault::Error) throw OpError(exception, "the kernel raised an exception (fault injected)");
      if (launch.fault == OpFault::Hang) {
        hang(op, stream);
        drop_op(task);
        return;
      }
    }
    if (__builtin_expect(watched(launch, stream), 0)) {
      run_watched(op, task, stream);
    } else {
      run_plain(op, launch, device);
    }
  } catch (const Error& error) {
    failed(error.code, error.what());
  } catch (const c10::Error& error) {
    failed(exception, error.what_without_backtrace());
  } catch (const std::bad_alloc&) {
    failed(ACL_ERROR_RT_MEMORY_ALLOCATION, "no memory for temporaries");
  } catch (const std::exception& error) {
    failed(exception, error.what());
  } catch (...) {
    failed(exception, "an exception of unknown type");
  }
  if (launch.spill || launch.dump) drop_op(task);
}

void prepare_worker_thread() {
  // ATen sets a thread's OpenMP count at its first use; afterwards ours stays.
  at::get_num_threads();
  at::internal::lazy_init_num_threads();
  team = omp_get_max_threads();
}

void prepare_process() { make_onednn_engine(); }

void share_cores(int processes) {
  const int cores = omp_get_num_procs();
  const bool told = environment("OMP_NUM_THREADS") != nullptr;
  most_threads.store(told || processes < 2 ? INT_MAX : std::max(1, cores / processes), std::memory_order_relaxed);
}

void set_team(int threads) {
  if (team == 0) return;
  threads = team_for(threads);
  use_team(threads);
  place_team(threads);
}

void copy_from_device(Device& device, void* to, const void* from, size_t bytes) {
  const LayoutMap* map = layout_or_null(device);
  if (map && map->any(from, bytes)) {
    const auto use = map->use();
    map->read(from, bytes, to);
    device.counters.relayouts.fetch_add(1, std::memory_order_relaxed);
  } else {
    copy_bytes(to, from, bytes);
  }
}

void copy_between_devices(Device& target, void* to, Device& source, const void* from, size_t bytes) {
  before_raw_write(target, to, bytes);
  const LayoutMap* map = layout_or_null(source);
  LayoutMap* const map_of_target = layout_or_null(target);
  if (map && map_of_target && map->any(from, bytes)) {
    const auto use = map->use();
    if (map->copy(from, bytes, to, *map_of_target)) return;
  }
  copy_from_device(source, to, from, bytes);
}

void before_raw_write(Device& device, void* alias, size_t bytes) {
  if (LayoutMap* map = layout_or_null(device)) {
    map->free_borders(alias, bytes);
    map->forget(alias, bytes);
  }
}

void before_raw_read(Device& device, void* alias, size_t bytes) {
  LayoutMap* map = layout_or_null(device);
  if (map && map->any(alias, bytes)) map->make_plain(alias, bytes);
}

uint64_t stored_order(Device& device, const void* alias, size_t bytes) {
  const LayoutMap* map = layout_or_null(device);
  return map ? map->order(alias, bytes) : 0;
}

void copy_bytes(void* to, const void* from, size_t bytes) {
  constexpr size_t kParallel = size_t{4} << 20;
  const int threads = team;  // only a worker has one
  if (bytes < kParallel || threads < 2) {
    std::memcpy(to, from, bytes);
    return;
  }
  const size_t part = (bytes / static_cast<size_t>(threads) + 4095) & ~size_t{4095};
#pragma omp parallel num_threads(threads)
  {
    const size_t begin = part * static_cast<size_t>(omp_get_thread_num());
    if (begin < bytes)
      std::memcpy(static_cast<char*>(to) + begin, static_cast<const char*>(from) + begin,
                  std::min(part, bytes - begin));
  }
}

}  // namespace acl_sim
