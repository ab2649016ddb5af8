#pragma once
// What the generated kernels use of the frame; their families' *Args.h and *Rules.h are included by the generator.

#include <ATen/native/npu/frame/command/DeviceOf.h>
#include <ATen/native/npu/frame/command/Fast.h>
#include <ATen/native/npu/frame/command/Float8.h>
#include <ATen/native/npu/frame/command/Missing.h>
#include <ATen/native/npu/frame/command/OpCommand.h>
#include <ATen/native/npu/frame/command/PlainLaunch.h>
#include <ATen/native/npu/frame/inference/Allocate.h>
#include <ATen/native/npu/frame/inference/Checks.h>
#include <ATen/native/npu/frame/inference/Composed.h>
#include <ATen/native/npu/frame/inference/Dims.h>
#include <ATen/native/npu/frame/inference/Dtype.h>
#include <ATen/native/npu/frame/inference/MetaRules.h>
#include <ATen/native/npu/frame/inference/Numbers.h>
#include <ATen/native/npu/frame/inference/Structured.h>
#include <ATen/native/npu/frame/inference/Windows.h>
#include <ATen/native/npu/frame/registration/OrCpu.h>
#include <ATen/native/npu/frame/registration/SameDevice.h>
#include <c10/core/Scalar.h>
