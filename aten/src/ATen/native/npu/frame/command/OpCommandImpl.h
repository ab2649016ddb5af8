#pragma once
// The state of one command between OpCommand() and its launch. Objects are reused, so that a repeated operator
// allocates nothing on the host.

#include <ATen/core/Tensor.h>
#include <ATen/native/npu/frame/command/HeldTensor.h>
#include <ATen/native/npu/frame/command/OpCommand.h>
#include <ATen/native/npu/frame/command/PreparedCache.h>
#include <c10/npu/NPUStream.h>
#include <c10/util/DimVector.h>

#include <cstddef>
#include <memory>
#include <vector>

namespace at::native::npu {

// An operand as the kernel gave it.
struct Operand {
  enum class Kind : uint8_t { kAbsent, kTensor, kTensorAs, kStorage, kHost };
  Kind kind = Kind::kAbsent;
  HeldTensor tensor;
  c10::SmallVector<int64_t, 6> dims;         // kTensorAs, kStorage, kHost (empty or one)
  ScalarType dtype = ScalarType::Undefined;  // kHost; outputs: the dtype that the operator gives, if it may differ
  aclFormat format = ACL_FORMAT_UNDEFINED;   // kTensorAs: undefined means what the number of dims says
  int64_t offset = 0;                        // kStorage: elements from the storage's start; kHost: bytes in host_
};

class OpCommandImpl {
 public:
  static OpCommandImpl* acquire();
  static void release(OpCommandImpl* impl);

  Operand& add_input(Operand::Kind kind);
  Operand& add_output(Operand::Kind kind);
  void add_host_scalar(const Scalar& value, ScalarType dtype);
  void add_host_list(IntArrayRef values, ScalarType dtype);
  // Attributes go into attribute_words_ as name, kind and length, value.
  void add_attr(const char* name, int64_t kind, const void* data, size_t bytes);

  // Makes operands what the encoder takes, lists their memory, and finds what is prepared for them.
  Prepared& prepare();
  // What prepare() found out.
  c10::npu::NPUStream stream() const { return c10::npu::getCurrentNPUStream(device_.index()); }
  Memory* memory() { return memory_.data(); }
  const Memory* memory() const { return memory_.data(); }

  // A result that was computed aside, and its place; or the plain copy of a storage whose format is private.
  struct Aside {
    Tensor target;
    Tensor computed;
    bool is_storage = false;
  };
  bool has_write_back() const { return !aside_.empty(); }
  std::vector<Aside> take_aside() { return std::move(aside_); }
  static void write_back(const std::vector<Aside>& aside);
  // The operands' tensors: a launch needs only their memory.
  std::unique_ptr<std::vector<Tensor>> take_tensors();

  const char* name = nullptr;
  bool elementwise = false;
  ScalarType compute = ScalarType::Undefined;

 private:
  void clear();
  void find_device();
  // Operands whose storage is in a private format become views of plain copies; outputs are stored back.
  void resolve_formats();
  Tensor plain_view(const Tensor& t);
  // What is expanded goes as it was before, to an operator that broadcasts.
  void undo_expansion();
  // The first input is gathered where the result will be, and the operator computes in place: one block of memory less
  // goes through the caches.
  void gather_in_place(IntArrayRef order);
  // Strided inputs and outputs of a reduction become contiguous ones where other axes do the same.
  void order_axes();
  // Channels-last images become NHWC images.
  void describe_rows();
  // Strided operands of operators of a known kind are looked at in another way instead of being copied. Returns the
  // order in which all operands' dimensions are taken; empty: as they are.
  DimVector arrange();
  void resolve_input(Operand& input, IntArrayRef order);
  void resolve_output(Operand& output, IntArrayRef order);
  void to_host_scalar(Operand& input);
  // Adds the operand to the key and to the list of memory.
  void bind(const Operand& operand, size_t slot);
  void bind_strided(const Operand& operand, size_t slot);
  bool is_strided(const Operand& operand) const;
  void* host_space(size_t bytes, int64_t& offset);

  std::vector<Operand> inputs_;
  std::vector<Operand> outputs_;
  size_t num_inputs_ = 0;
  size_t num_outputs_ = 0;
  CommandKey key_;
  KeyWords attribute_words_;
  c10::SmallVector<Memory, 8> memory_;  // inputs, then outputs
  std::vector<std::byte> host_;
  size_t host_used_ = 0;
  std::vector<Aside> aside_;
  std::vector<Aside> plain_;  // storages in private formats that this command meets, and their plain copies
  Device device_{kPrivateUse1, -1};
  bool strides_stay_ = false;  // the encoder takes views as they are
};

}  // namespace at::native::npu
