#pragma once
// Tensor descriptions and data buffers: what a caller says about an operand.

#include <acl/acl.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

struct aclTensorDesc {
  static constexpr uint32_t kMagic = 0x41544431;
  static constexpr int kInline = 8;
  static constexpr int kMostDims = 64;

  uint32_t magic = 0;                         // kMagic while a caller owns it
  mutable std::atomic<bool> launched{false};  // with this stamp
  // Number of this content: a new one whenever what an operator is compiled for may have changed.
  uint64_t stamp = 0;
  aclDataType dtype = ACL_DT_UNDEFINED;
  aclFormat format = ACL_FORMAT_ND;
  aclMemType placement = ACL_MEMTYPE_DEVICE;
  int ndim = 0;
  int64_t small[kInline];
  std::vector<int64_t> large;                       // the dims when there are more than kInline
  std::vector<char> constant;                       // aclSetTensorConst
  aclFormat storage_format = ACL_FORMAT_UNDEFINED;  // aclSetTensorFormat
  std::vector<int64_t> storage_dims;                // aclSetTensorShape
  std::string name;
  aclTensorDesc* next_free = nullptr;

  const int64_t* dims() const { return ndim <= kInline ? small : large.data(); }
  void set_dims(int count, const int64_t* values);

  bool valid() const { return magic == kMagic; }
  void renew();
};

struct aclDataBuffer {
  static constexpr uint32_t kMagic = 0x41444231;

  uint32_t magic = 0;
  void* data = nullptr;
  size_t size = 0;
  aclDataBuffer* next_free = nullptr;

  bool valid() const { return magic == kMagic; }
};

namespace [[gnu::visibility("hidden")]] acl_sim {

// Bytes of one element; 0 for a type without a byte size of its own (strings, sub-byte types, undefined).
size_t dtype_bytes(aclDataType dtype);
const char* dtype_name(aclDataType dtype);
const char* format_name(aclFormat format);
bool known_dtype(aclDataType dtype);
bool known_format(aclFormat format);
std::string describe_tensor(aclDataType dtype, const int64_t* dims, int ndim, aclFormat format);

}  // namespace acl_sim
