#pragma once
// What the generated kernels use.

#include <ATen/native/npu/IndexArgs.h>
#include <ATen/native/npu/NnArgs.h>
#include <ATen/native/npu/VisionArgs.h>
#include <ATen/native/npu/frame/Allocate.h>
#include <ATen/native/npu/frame/Checks.h>
#include <ATen/native/npu/frame/DeviceOf.h>
#include <ATen/native/npu/frame/Dims.h>
#include <ATen/native/npu/frame/Dtype.h>
#include <ATen/native/npu/frame/Fast.h>
#include <ATen/native/npu/frame/ImageRules.h>
#include <ATen/native/npu/frame/MetaRules.h>
#include <ATen/native/npu/frame/OpCommand.h>
#include <ATen/native/npu/frame/PlainLaunch.h>
#include <ATen/native/npu/frame/SameDevice.h>
#include <ATen/native/npu/frame/Structured.h>
#include <c10/core/Scalar.h>
