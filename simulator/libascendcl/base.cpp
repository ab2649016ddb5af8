// acl.h and acl_base.h: initialisation, messages, tensor descriptions, data buffers.

#include "core/config.h"
#include "core/device.h"
#include "core/error.h"
#include "core/fault.h"
#include "core/free_list.h"
#include "core/json.h"
#include "core/log.h"
#include "exec/definition/custom.h"
#include "exec/definition/tensor_desc.h"
#include "exec/running/scratch.h"
#include "exec/watching/dump.h"
#include "libascendcl/dump_state.h"
#include "sim_api.h"

#include <atomic>
#include <bit>
#include <cstdio>
#include <cstring>
#include <new>

namespace acl_sim::api {
namespace {

std::atomic<int> initialised{0};  // 1 after aclInit, 2 after aclFinalize

aclTensorDesc& desc_of(const aclTensorDesc* desc) {
  if (!desc || !desc->valid())
    throw Error(ACL_ERROR_INVALID_PARAM, "the tensor description is null or not a live aclTensorDesc");
  return *const_cast<aclTensorDesc*>(desc);
}

aclDataBuffer& buffer_of(const aclDataBuffer* buffer) {
  if (!buffer || !buffer->valid())
    throw Error(ACL_ERROR_INVALID_PARAM, "the data buffer is null or not a live aclDataBuffer");
  return *const_cast<aclDataBuffer*>(buffer);
}

bool good_dims(int count, const int64_t* dims) {
  return count >= 0 && count <= aclTensorDesc::kMostDims && (count == 0 || dims);
}

size_t elements_of(const aclTensorDesc& desc) {
  size_t elements = 1;
  for (int i = 0; i < desc.ndim; ++i) {
    if (desc.dims()[i] < 0 || __builtin_mul_overflow(elements, static_cast<size_t>(desc.dims()[i]), &elements))
      return 0;
  }
  return elements;
}

}  // namespace

aclError aclInit(const char* config_path) {
  const bool configured = config_path && *config_path;
  const Json configuration = configured ? read_json_file(config_path) : Json{};
  check_config();
  check_faults();
  load_custom_ops();
  int before = 0;
  if (!initialised.compare_exchange_strong(before, 1)) {
    throw Error(ACL_ERROR_REPEAT_INITIALIZE,
                before == 1 ? "aclInit was called before" : "AscendCL cannot be initialised again after aclFinalize");
  }
  if (configuration.find("dump")) {
    try {
      start_dump(config_path, configuration);
      dump_is_of_init();
    } catch (...) {
      initialised.store(0);
      throw;
    }
  }
  // Before there is a thread of ours that could allocate meanwhile.
  install_scratch_allocator();
  return ACL_SUCCESS;
}

aclError aclFinalize() {
  int before = 1;
  if (initialised.compare_exchange_strong(before, 2)) return ACL_SUCCESS;
  throw Error(before == 0 ? ACL_ERROR_UNINITIALIZE : ACL_ERROR_REPEAT_FINALIZE,
              before == 0 ? "aclInit was not called" : "aclFinalize was called before");
}

aclError aclrtGetVersion(int32_t* major, int32_t* minor, int32_t* patch) {
  if (!major || !minor || !patch) throw Error(ACL_ERROR_INVALID_PARAM, "a pointer is null");
  *major = ACL_MAJOR_VERSION;
  *minor = ACL_MINOR_VERSION;
  *patch = ACL_PATCH_VERSION;
  return ACL_SUCCESS;
}

const char* aclGetRecentErrMsg() { return take_recent_message(); }
const char* aclrtGetSocName() { return kSocName; }

void aclAppLog(aclLogLevel level, const char* function, const char* file, uint32_t line, const char* pattern,
               va_list rest) {
  if (level < ACL_DEBUG || level > ACL_ERROR || !pattern || !log_enabled(static_cast<LogLevel>(level))) return;
  char text[2048];
  std::vsnprintf(text, sizeof text, pattern, rest);
  log_line(static_cast<LogLevel>(level), "APP", file ? file : "", static_cast<int>(line),
           std::string(function ? function : "") + ": " + text);
}

// Both as documented for CANN 9.0: no infinities and NaNs, which products that saturate lack; the exponent that stands
// for them elsewhere is an ordinary one.
float aclFloat16ToFloat(aclFloat16 value) {
  const uint32_t sign = static_cast<uint32_t>(value & 0x8000) << 16, exponent = value >> 10 & 0x1F,
                 fraction = value & 0x3FF;
  if (exponent != 0) return std::bit_cast<float>(sign | (exponent + 112) << 23 | fraction << 13);
  const float magnitude = static_cast<float>(fraction) * 0x1p-24F;
  return sign ? -magnitude : magnitude;
}

aclFloat16 aclFloatToFloat16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint16_t>(bits >> 16 & 0x8000);
  const uint32_t magnitude = bits & 0x7FFFFFFF;
  if (magnitude >= 0x477FF000) return static_cast<aclFloat16>(sign | 0x7BFF);  // 65520, half a step above 65504
  if (magnitude < 0x38800000) {
    // Adding 0.5 lines up the subnormal's bits at the end of the fraction, rounded to even by the addition.
    return static_cast<aclFloat16>(
        sign | (std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5F) - std::bit_cast<uint32_t>(0.5F)));
  }
  const uint32_t rounded = magnitude + 0xFFF + (magnitude >> 13 & 1);
  return static_cast<aclFloat16>(sign | (rounded - 0x38000000) >> 13);
}

size_t aclDataTypeSize(aclDataType dtype) { return dtype_bytes(dtype); }

aclDataBuffer* aclCreateDataBuffer(void* data, size_t size) {
  aclDataBuffer* buffer = FreeList<aclDataBuffer>::take();
  buffer->magic = aclDataBuffer::kMagic;
  buffer->data = data;
  buffer->size = size;
  return buffer;
}

aclError aclDestroyDataBuffer(const aclDataBuffer* buffer) {
  auto& mine = buffer_of(buffer);
  mine.magic = 0;
  FreeList<aclDataBuffer>::give(&mine);
  return ACL_SUCCESS;
}

aclError aclUpdateDataBuffer(aclDataBuffer* buffer, void* data, size_t size) {
  auto& mine = buffer_of(buffer);
  mine.data = data;
  mine.size = size;
  return ACL_SUCCESS;
}

void* aclGetDataBufferAddr(const aclDataBuffer* buffer) { return buffer_of(buffer).data; }
uint32_t aclGetDataBufferSize(const aclDataBuffer* buffer) { return static_cast<uint32_t>(buffer_of(buffer).size); }
size_t aclGetDataBufferSizeV2(const aclDataBuffer* buffer) { return buffer_of(buffer).size; }

aclTensorDesc* aclCreateTensorDesc(aclDataType dtype, int count, const int64_t* dims, aclFormat format) {
  if (!good_dims(count, dims))
    throw Error(ACL_ERROR_INVALID_PARAM,
                acl_sim::format("%d dims at %p are impossible", count, static_cast<const void*>(dims)));
  if (__builtin_expect(dtype < ACL_DT_UNDEFINED || dtype > ACL_FLOAT4_E1M2 || format < ACL_FORMAT_UNDEFINED ||
                           format > ACL_FORMAT_FRACTAL_NZ_C0_32,
                       0)) {
    throw Error(ACL_ERROR_INVALID_PARAM, acl_sim::format("dtype %d or format %d does not exist",
                                                         static_cast<int>(dtype), static_cast<int>(format)));
  }
  aclTensorDesc* desc = FreeList<aclTensorDesc>::take();
  desc->magic = aclTensorDesc::kMagic;
  desc->dtype = dtype;
  desc->format = format;
  desc->placement = ACL_MEMTYPE_DEVICE;
  desc->storage_format = ACL_FORMAT_UNDEFINED;
  if (!desc->storage_dims.empty()) desc->storage_dims.clear();
  desc->set_dims(count, dims);
  desc->renew();
  if (!desc->constant.empty()) desc->constant.clear();
  if (!desc->name.empty()) desc->name.clear();
  return desc;
}

void aclDestroyTensorDesc(const aclTensorDesc* desc) {
  if (!desc || !desc->valid()) return;
  auto* mine = const_cast<aclTensorDesc*>(desc);
  mine->magic = 0;
  FreeList<aclTensorDesc>::give(mine);
}

aclDataType aclGetTensorDescType(const aclTensorDesc* desc) { return desc_of(desc).dtype; }
aclFormat aclGetTensorDescFormat(const aclTensorDesc* desc) { return desc_of(desc).format; }
size_t aclGetTensorDescElementCount(const aclTensorDesc* desc) { return elements_of(desc_of(desc)); }
size_t aclGetTensorDescSize(const aclTensorDesc* desc) { return elements_of(desc_of(desc)) * dtype_bytes(desc->dtype); }
size_t aclGetTensorDescNumDims(const aclTensorDesc* desc) { return static_cast<size_t>(desc_of(desc).ndim); }

int64_t aclGetTensorDescDim(const aclTensorDesc* desc, size_t index) {
  const auto& d = desc_of(desc);
  return index < static_cast<size_t>(d.ndim) ? d.dims()[index] : -1;
}

aclError aclGetTensorDescDimV2(const aclTensorDesc* desc, size_t index, int64_t* size) {
  const auto& d = desc_of(desc);
  if (!size) throw Error(ACL_ERROR_INVALID_PARAM, "dimSize is null");
  if (index >= static_cast<size_t>(d.ndim))
    throw Error(ACL_ERROR_INVALID_PARAM, acl_sim::format("there is no dim %zu of %d", index, d.ndim));
  *size = d.dims()[index];
  return ACL_SUCCESS;
}

void aclSetTensorDescName(aclTensorDesc* desc, const char* name) { desc_of(desc).name = name ? name : ""; }
const char* aclGetTensorDescName(aclTensorDesc* desc) { return desc && desc->valid() ? desc->name.c_str() : ""; }

// The device's storage format is its own business; what the host says is kept and shown, not obeyed.
aclError aclSetTensorFormat(aclTensorDesc* desc, aclFormat format) {
  auto& d = desc_of(desc);
  if (!known_format(format))
    throw Error(ACL_ERROR_INVALID_PARAM, acl_sim::format("format %d does not exist", static_cast<int>(format)));
  d.storage_format = format;
  return ACL_SUCCESS;
}

aclError aclSetTensorShape(aclTensorDesc* desc, int count, const int64_t* dims) {
  auto& d = desc_of(desc);
  if (!good_dims(count, dims))
    throw Error(ACL_ERROR_INVALID_PARAM,
                acl_sim::format("%d dims at %p are impossible", count, static_cast<const void*>(dims)));
  d.storage_dims.assign(dims, dims + count);
  return ACL_SUCCESS;
}

aclError aclSetTensorConst(aclTensorDesc* desc, void* data, size_t length) {
  auto& d = desc_of(desc);
  if (!data || length == 0) throw Error(ACL_ERROR_INVALID_PARAM, "the constant is null or empty");
  d.constant.assign(static_cast<const char*>(data), static_cast<const char*>(data) + length);
  d.placement = ACL_MEMTYPE_HOST;
  d.renew();
  return ACL_SUCCESS;
}

aclError aclSetTensorPlaceMent(aclTensorDesc* desc, aclMemType type) {
  auto& d = desc_of(desc);
  if (type < ACL_MEMTYPE_DEVICE || type > ACL_MEMTYPE_HOST_COMPILE_INDEPENDENT) {
    throw Error(ACL_ERROR_INVALID_PARAM, acl_sim::format("there is no memory type %d", static_cast<int>(type)));
  }
  d.placement = type;
  d.renew();
  return ACL_SUCCESS;
}

aclError aclSetTensorShapeRange(aclTensorDesc* desc, size_t count, int64_t range[][2]) {
  desc_of(desc);
  if (count > 0 && !range) throw Error(ACL_ERROR_INVALID_PARAM, "dimsRange is null");
  return ACL_SUCCESS;  // the simulator compiles for the shape at hand
}

aclError aclGetCannAttribute(aclCannAttr attr, int32_t* value) {
  if (!value) throw Error(ACL_ERROR_INVALID_PARAM, "value is null");
  switch (attr) {
    case ACL_CANN_ATTR_INF_NAN:
    case ACL_CANN_ATTR_BF16:
    case ACL_CANN_ATTR_JIT_COMPILE:
      *value = 1;
      return ACL_SUCCESS;
    default:
      throw Error(ACL_ERROR_INVALID_PARAM, acl_sim::format("there is no attribute %d", static_cast<int>(attr)));
  }
}

aclError aclGetDeviceCapability(uint32_t device_id, aclDeviceInfo info, int64_t* value) {
  if (!value) throw Error(ACL_ERROR_INVALID_PARAM, "value is null");
  if (device_id >= static_cast<uint32_t>(device_count()))
    throw Error(ACL_ERROR_INVALID_DEVICE, acl_sim::format("there is no device %u", device_id));
  switch (info) {
    case ACL_DEVICE_INFO_AI_CORE_NUM:
      *value = 24;
      return ACL_SUCCESS;
    case ACL_DEVICE_INFO_VECTOR_CORE_NUM:
      *value = 48;
      return ACL_SUCCESS;
    case ACL_DEVICE_INFO_L2_SIZE:
      *value = int64_t{192} << 20;
      return ACL_SUCCESS;
    default:
      throw Error(ACL_ERROR_INVALID_PARAM, acl_sim::format("there is no capability %d", static_cast<int>(info)));
  }
}

}  // namespace acl_sim::api
