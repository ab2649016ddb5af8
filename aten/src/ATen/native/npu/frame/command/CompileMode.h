#pragma once
// Note [Compile mode]
// ACL compiles an operator for its exact shapes or, while the process-wide compile flag says so, for a range of shapes
// ("fuzzy"). The flag is raised by torch.npu.set_start_fuzz_compile_step with global_step_inc, or from the start by
// DYNAMIC_COMPILE_ENABLE=1. Two variables make exceptions by operator, for which a launch changes the flag and puts it
// back:
//   DISABLE_DYNAMIC_PATH  a file with one IR operator per line ('#' begins a comment): always compiled exactly
//   DYNAMIC_OP            names joined by '#', such as ADD#MUL: always compiled for ranges; case does not matter

#include <acl/acl_base.h>
#include <c10/macros/Macros.h>

#include <atomic>
#include <mutex>

namespace at::native::npu {

namespace detail {

enum class CompileModes : int { kUnread, kAlike, kByOperator };
extern std::atomic<CompileModes> compile_modes;

// While it lives, the compile flag is the one for `ir`.
class CompileModeOf {
 public:
  explicit CompileModeOf(const char* ir);
  ~CompileModeOf();
  CompileModeOf(const CompileModeOf&) = delete;
  CompileModeOf& operator=(const CompileModeOf&) = delete;

 private:
  std::unique_lock<std::mutex> lock_;
  bool changed_ = false;
};

}  // namespace detail

// Calls `launch` with the compile flag that `ir` is to be compiled with.
template <class Launch>
inline aclError in_compile_mode(const char* ir, const Launch& launch) {
  if (C10_LIKELY(detail::compile_modes.load(std::memory_order_relaxed) == detail::CompileModes::kAlike)) {
    return launch();
  }
  const detail::CompileModeOf mode(ir);
  return launch();
}

// Compiles for ranges of shapes from now on, or for exact ones. The device must be open.
void set_fuzzy_compile(bool on);

}  // namespace at::native::npu
