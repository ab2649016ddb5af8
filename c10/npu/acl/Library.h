#pragma once
// Finds and opens the library behind the AscendCL ABI: CANN's where a card answers, else the simulator's, which lies
// in ascend_sim/ beside libc10_npu.so. See Note [Which library] in Library.cpp.

#include <atomic>
#include <cstddef>
#include <string>

#define C10_NPU_ACL_API __attribute__((visibility("default")))

namespace c10::npu::acl {

enum class LibraryKind { CANN, Simulator };

// Each of these opens the library if that has not happened, and throws c10::Error if none can be used.
C10_NPU_ACL_API LibraryKind library_kind();
C10_NPU_ACL_API const std::string& library_path();
// Whether the library has the function, by its C name. An unknown name gives false.
C10_NPU_ACL_API bool has_function(const char* name);
// For errors about a function that the library lacks: what lacks it, and which CANN has it. Opens no library.
C10_NPU_ACL_API std::string about_missing_function(const char* name);

// Whether a library has been opened already; opens none.
C10_NPU_ACL_API bool library_is_open();

namespace detail {

struct LibraryEntry {
  const char* sonames[2];  // tried in order; "" if there is no second
  bool optional;           // its functions may be missing altogether
  bool simulator_only;     // CANN has no such library
  bool simulators_own;     // the simulator, too, has it in a library of its own, opened at the first call
};

struct FunctionEntry {
  const char* name;
  int library;
  bool required;      // the host cannot do without
  const char* since;  // a CANN release that has it; "" if none has
  std::atomic<void*> address;
};

extern const LibraryEntry kLibraries[];
extern const size_t kLibraryCount;
extern const char* const kCompanions[];
extern const size_t kCompanionCount;
extern FunctionEntry kFunctions[];
extern const size_t kFunctionCount;

// Opens the library, or throws naming the function and the library that lacks it.
void* resolve(size_t index);

inline void* function(size_t index) {
  void* address = kFunctions[index].address.load(std::memory_order_acquire);
  return __builtin_expect(address != nullptr, 1) ? address : resolve(index);
}

}  // namespace detail
}  // namespace c10::npu::acl
