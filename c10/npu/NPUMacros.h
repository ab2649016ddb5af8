#pragma once
// Symbol visibility of libc10_npu.so, and the compile-time bound on devices per host.

#include <c10/macros/Export.h>

#define C10_NPU_API C10_EXPORT

#define C10_COMPILE_TIME_MAX_NPUS 64
