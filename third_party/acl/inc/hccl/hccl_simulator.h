#pragma once
// What only the simulator's libhccl has (hcclsim*): texts for its errors, and an end for operations that wait. No CANN
// library has these functions; ask c10::npu::acl::has_function first.

#include "hccl_types.h"
