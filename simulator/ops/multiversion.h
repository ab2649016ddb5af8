#pragma once
// Marks a loop kernel for which the compiler emits one version per vector unit and picks at load time. Put it on free
// functions over pointers only; whatever they call must be inlined into them.

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define SIM_MULTIVERSION \
  __attribute__((target_clones("arch=skylake-avx512", "arch=haswell", "default"), optimize("O3")))
#else
#define SIM_MULTIVERSION
#endif
