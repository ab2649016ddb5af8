#pragma once
// Marks a loop kernel for which the compiler emits one version per vector unit and picks at load time. Put it on free
// functions over pointers only; whatever they call must be inlined into them. SIM_PORTABLE leaves the source as other
// CPUs get it, which a test builds on x86, too (test/cpp/CMakeLists.txt).

// The levels are named by what a CPU can do: `arch=haswell` would mean Intel's CPUs alone. g++ knows them since 12.
// Versions are chosen before ThreadSanitizer is ready for the function that chooses.
#if defined(SIM_PORTABLE) || defined(__SANITIZE_THREAD__)
#define SIM_MULTIVERSION
#elif defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && __GNUC__ >= 12
#define SIM_MULTIVERSION __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default"), optimize("O3")))
#elif defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define SIM_MULTIVERSION \
  __attribute__((target_clones("arch=skylake-avx512", "arch=haswell", "default"), optimize("O3")))
#else
#define SIM_MULTIVERSION
#endif
