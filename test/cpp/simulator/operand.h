#pragma once
// Operators driven through the C ABI with operands of any dtype, whose values a test writes and reads as doubles.

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <cstdint>
#include <functional>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "acl_session.h"

namespace acl_sim::testing {

using Dims = std::vector<int64_t>;

template <class Use>
void with_type(aclDataType dtype, Use&& use) {
  switch (dtype) {
    case ACL_FLOAT:
      return use(float{});
    case ACL_FLOAT16:
      return use(c10::Half{});
    case ACL_BF16:
      return use(c10::BFloat16{});
    case ACL_INT32:
      return use(int32_t{});
    case ACL_INT64:
      return use(int64_t{});
    default:
      FAIL() << "no values of dtype " << dtype << " here";
  }
}

// A tensor on the device.
class Operand {
 public:
  Operand(Dims dims, std::vector<double> values, aclDataType dtype = ACL_FLOAT, aclFormat format = ACL_FORMAT_ND)
      : dims_(std::move(dims)), dtype_(dtype), memory_(bytes()) {
    EXPECT_EQ(values.size(), count());
    with_type(dtype_, [&]<class T>(T) {
      std::vector<T> typed;
      typed.reserve(values.size());
      for (const double value : values) typed.push_back(static_cast<T>(value));
      EXPECT_ACL_OK(aclrtMemcpy(memory_.get(), bytes(), typed.data(), bytes(), ACL_MEMCPY_HOST_TO_DEVICE));
    });
    desc_ = aclCreateTensorDesc(dtype_, static_cast<int>(dims_.size()), dims_.data(), format);
    buffer_ = aclCreateDataBuffer(memory_.get(), bytes());
  }
  // A result, with something in it that no operator leaves there.
  explicit Operand(Dims dims, aclDataType dtype = ACL_FLOAT, aclFormat format = ACL_FORMAT_ND)
      : Operand(dims, std::vector<double>(product(dims), 99), dtype, format) {}
  ~Operand() {
    aclDestroyTensorDesc(desc_);
    aclDestroyDataBuffer(buffer_);
  }
  Operand(const Operand&) = delete;
  Operand& operator=(const Operand&) = delete;

  std::vector<double> values() const {
    std::vector<double> wide;
    with_type(dtype_, [&]<class T>(T) {
      std::vector<T> typed(count());
      fetch(typed.data(), memory_.get(), bytes());
      for (const T value : typed) wide.push_back(static_cast<double>(value));
    });
    return wide;
  }
  size_t count() const { return product(dims_); }
  aclTensorDesc* desc() const { return desc_; }
  aclDataBuffer* buffer() const { return buffer_; }

 private:
  static size_t product(const Dims& dims) {
    return static_cast<size_t>(std::accumulate(dims.begin(), dims.end(), int64_t{1}, std::multiplies<>()));
  }
  size_t bytes() const { return count() * aclDataTypeSize(dtype_); }

  Dims dims_;
  aclDataType dtype_;
  DeviceMemory memory_;
  aclTensorDesc* desc_ = nullptr;
  aclDataBuffer* buffer_ = nullptr;
};

// One operator; `run` waits for it.
class Call {
 public:
  explicit Call(std::string type) : type_(std::move(type)), attributes_(aclopCreateAttr()) {}
  ~Call() { aclopDestroyAttr(attributes_); }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  Call& attr(const char* name, double value) {
    EXPECT_ACL_OK(aclopSetAttrFloat(attributes_, name, static_cast<float>(value)));
    return *this;
  }
  Call& attr(const char* name, bool value) {
    EXPECT_ACL_OK(aclopSetAttrBool(attributes_, name, value ? 1 : 0));
    return *this;
  }
  Call& attr(const char* name, int64_t value) {
    EXPECT_ACL_OK(aclopSetAttrInt(attributes_, name, value));
    return *this;
  }
  Call& attr(const char* name, const Dims& values) {
    EXPECT_ACL_OK(aclopSetAttrListInt(attributes_, name, static_cast<int>(values.size()), values.data()));
    return *this;
  }
  void run(const std::vector<const Operand*>& inputs, const std::vector<const Operand*>& outputs) {
    OwnStream stream;
    std::vector<aclTensorDesc*> descs[2];
    std::vector<aclDataBuffer*> buffers[2];
    for (const bool out : {false, true}) {
      for (const Operand* operand : out ? outputs : inputs) {
        descs[out ? 1 : 0].push_back(operand->desc());
        buffers[out ? 1 : 0].push_back(operand->buffer());
      }
    }
    EXPECT_ACL_OK(aclopCompileAndExecute(type_.c_str(), static_cast<int>(inputs.size()), descs[0].data(),
                                         buffers[0].data(), static_cast<int>(outputs.size()), descs[1].data(),
                                         buffers[1].data(), attributes_, ACL_ENGINE_SYS, ACL_COMPILE_SYS, nullptr,
                                         stream))
        << type_;
    EXPECT_ACL_OK(aclrtSynchronizeStream(stream)) << type_;
  }

 private:
  std::string type_;
  aclopAttr* attributes_;
};

}  // namespace acl_sim::testing
