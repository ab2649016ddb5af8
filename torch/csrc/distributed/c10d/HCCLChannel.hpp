#pragma once
// A communicator of HCCL with a stream of its own, and what goes into HCCL's calls: types, reductions, error texts.

#include <ATen/core/Tensor.h>
#include <c10/npu/NPUStream.h>
#include <c10/npu/NPUTaskQueue.h>
#include <c10/util/Exception.h>
#include <hccl/hccl.h>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <torch/csrc/distributed/c10d/Types.hpp>

#include <memory>
#include <mutex>
#include <string>

namespace c10d {

// HCCL's type for the elements of a tensor. What HCCL has no type for travels as bytes, which cannot be reduced.
struct HCCLElements {
  HcclDataType type;
  uint64_t per_element;  // of HCCL's elements
  bool reducible;
};
HCCLElements hccl_elements(at::ScalarType dtype);

// HCCL's reduction for one of upstream's; AVG and PREMUL_SUM are sums with work around them. Throws for the others.
HcclReduceOp hccl_reduction(const ReduceOp& op, at::ScalarType dtype);

// What an error of HCCL means, with its own reason where it gives one.
std::string hccl_error(HcclResult code);

// Throws DistBackendError with `what` and HCCL's reason.
void hccl_check(HcclResult code, const std::string& what);

// Throws unless libhccl can be opened.
void hccl_require();

class HCCLChannel {
 public:
  // All `size` ranks call it with the same key; rank 0 makes the meeting place and puts it into the store.
  HCCLChannel(const c10::intrusive_ptr<Store>& store, const std::string& key, int size, int rank,
              c10::DeviceIndex device, bool high_priority);
  ~HCCLChannel();
  HCCLChannel(const HCCLChannel&) = delete;
  HCCLChannel& operator=(const HCCLChannel&) = delete;

  HcclComm comm() const { return comm_; }
  const c10::npu::NPUStream& stream() const { return stream_; }
  c10::DeviceIndex device() const { return stream_.device_index(); }
  int rank() const { return rank_; }

  // Calls HCCL for the communicator on the current stream, in the order of the host's other launches.
  template <class F>
  void call(const char* name, F function) const {
    c10::npu::launch(c10::npu::getCurrentNPUStream(device()), name,
                     [name, function, comm = comm_](aclrtStream stream) mutable -> aclError {
                       const HcclResult code = function(comm, stream);
                       if (C10_LIKELY(code == HCCL_SUCCESS)) return ACL_SUCCESS;
                       hccl_check(code, name);
                       return ACL_ERROR_INTERNAL_ERROR;
                     });
  }

  // The text that errors of the next operation show, where the library takes one.
  void describe(const std::string& text) const;
  // "" while all is well.
  std::string failure() const;
  // Ends what waits; later operations fail. Does nothing a second time.
  void abort(const std::string& reason);
  // What each rank has done last, where the library tells.
  std::string state() const;
  std::string name() const;
  // Waits for what has been launched and closes the communicator.
  void destroy();

 private:
  mutable std::mutex mutex_;  // of the handle's life
  HcclComm comm_ = nullptr;
  c10::npu::NPUStream stream_;
  int rank_;
  bool aborted_ = false;
};

}  // namespace c10d
