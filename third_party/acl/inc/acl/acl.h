#pragma once
// The AscendCL C ABI as this project uses it: all types. The functions are declared by acl_functions.h, and called
// through c10::npu::acl (acl_loader.h); both are generated from ../../acl_api.yaml.

#include "acl_base.h"
#include "acl_mdl.h"
#include "acl_op.h"
#include "acl_op_compiler.h"
#include "acl_prof.h"
#include "acl_rt.h"
#include "acl_simulator.h"

#define ACL_MAJOR_VERSION 1
#define ACL_MINOR_VERSION 15
#define ACL_PATCH_VERSION 0
