#pragma once
// Types for single operators: attributes, handles and the engine that runs them.

#include "acl_base.h"
#include "acl_rt.h"

typedef struct aclopHandle aclopHandle;
typedef struct aclopAttr aclopAttr;
typedef struct aclopKernelDesc aclopKernelDesc;

typedef enum aclEngineType { ACL_ENGINE_SYS, ACL_ENGINE_AICORE, ACL_ENGINE_VECTOR } aclopEngineType;

typedef aclError (*aclopCompileFunc)(int numInputs, const aclTensorDesc* const inputDesc[], int numOutputs,
                                     const aclTensorDesc* const outputDesc[], const aclopAttr* opAttr,
                                     aclopKernelDesc* kernelDesc);
