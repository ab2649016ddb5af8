#pragma once
// The HCCL C ABI as this project uses it: its types. The functions are declared by acl_functions.h, and called through
// c10::npu::acl (acl_loader.h); both are generated from ../../acl_api.yaml.

#include "hccl_simulator.h"
