#pragma once
// Symbol visibility of libtorch_npu.so.

#include <c10/macros/Export.h>

#define TORCH_NPU_API C10_EXPORT
