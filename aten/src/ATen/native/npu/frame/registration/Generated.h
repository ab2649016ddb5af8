#pragma once
// What the generated kernels use.

#include <ATen/native/npu/index/IndexArgs.h>
#include <ATen/native/npu/NnArgs.h>
#include <ATen/native/npu/VisionArgs.h>
#include <ATen/native/npu/frame/inference/Allocate.h>
#include <ATen/native/npu/frame/inference/Checks.h>
#include <ATen/native/npu/frame/command/DeviceOf.h>
#include <ATen/native/npu/frame/inference/Dims.h>
#include <ATen/native/npu/frame/inference/Dtype.h>
#include <ATen/native/npu/frame/command/Fast.h>
#include <ATen/native/npu/frame/inference/ImageRules.h>
#include <ATen/native/npu/frame/inference/MetaRules.h>
#include <ATen/native/npu/frame/command/OpCommand.h>
#include <ATen/native/npu/frame/command/PlainLaunch.h>
#include <ATen/native/npu/frame/registration/SameDevice.h>
#include <ATen/native/npu/frame/inference/Structured.h>
#include <c10/core/Scalar.h>
