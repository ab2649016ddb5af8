#pragma once
// The one way a kernel issues an Ascend IR operator. A kernel names the operator, its operands and attributes;
// the frame makes operands contiguous, builds ACL descriptors, and hands the command to the current stream.
//
//   OpCommand cmd;
//   cmd.Name("Add").Input(self).Input(other).Output(result).Run();
//
// Names of operators and attributes are string literals: their addresses are part of the descriptor cache's key.

#include <ATen/core/Tensor.h>
#include <acl/acl_base.h>
#include <c10/core/Scalar.h>
#include <c10/core/ScalarType.h>
#include <c10/util/ArrayRef.h>
#include <c10/util/SmallVector.h>

#include <optional>
#include <string>

namespace at::native::npu {

class OpCommandImpl;

class OpCommand {
 public:
  OpCommand();
  ~OpCommand();
  OpCommand(const OpCommand&) = delete;
  OpCommand& operator=(const OpCommand&) = delete;

  OpCommand& Name(const char* ir_type);

  // The operator computes element by element: operands that share dense strides (channels-last, transposed) are
  // submitted in memory order instead of being copied.
  OpCommand& Elementwise();
  // Tensor inputs of another dtype are cast to this one first. Host values given without a dtype take it, too.
  OpCommand& Compute(ScalarType dtype);

  // A device tensor in its logical shape; copied to contiguous memory first if it is not. A 0-d CPU tensor is
  // copied by value. An undefined tensor is an absent optional input.
  OpCommand& Input(const Tensor& input);
  OpCommand& InputOptional(const std::optional<Tensor>& input);
  // Same, with the dims the operator should see (a reshape of the same memory), and the format if it is not the usual.
  OpCommand& InputAs(const Tensor& input, IntArrayRef dims, aclFormat format = ACL_FORMAT_UNDEFINED);
  // A host value by copy: one element of the given type (0-d), or a 1-D list of int64 or int32.
  OpCommand& Input(const Scalar& value, ScalarType dtype);
  OpCommand& Input(const std::optional<Scalar>& value, ScalarType dtype);
  OpCommand& Input(IntArrayRef values, ScalarType dtype = ScalarType::Long);
  // An optional input that is absent.
  OpCommand& Input();
  // The raw block of a view's storage from its first element, as a 1-D tensor of `numel` elements: for
  // AsStrided, ViewCopy and kin, which receive sizes, strides and offset themselves. `offset` counts elements of the
  // view's dtype from the start of the storage.
  OpCommand& InputStorage(const Tensor& view, int64_t offset, int64_t numel);
  OpCommand& OutputStorage(const Tensor& view, int64_t offset, int64_t numel);

  // A tensor that is not contiguous is computed aside and copied over. `natural` is the dtype that the operator
  // gives, where it may differ from the tensor's: the result is then cast.
  // An output that is absent.
  OpCommand& Output();
  OpCommand& Output(const Tensor& output);
  OpCommand& Output(const Tensor& output, ScalarType natural);
  // Other dims for the same memory; the tensor must be contiguous.
  OpCommand& OutputAs(const Tensor& output, IntArrayRef dims, aclFormat format = ACL_FORMAT_UNDEFINED);

  OpCommand& Attr(const char* name, bool value);
  OpCommand& Attr(const char* name, int64_t value);
  OpCommand& Attr(const char* name, int value) { return Attr(name, static_cast<int64_t>(value)); }
  OpCommand& Attr(const char* name, double value);
  OpCommand& Attr(const char* name, const char* value);
  OpCommand& Attr(const char* name, const std::string& value) { return Attr(name, value.c_str()); }
  OpCommand& Attr(const char* name, IntArrayRef value);
  OpCommand& Attr(const char* name, ArrayRef<double> value);
  OpCommand& Attr(const char* name, ArrayRef<bool> value);
  // An attribute of CANN's kind Type. One of kind Int that holds a dtype's number is given that number.
  OpCommand& Attr(const char* name, ScalarType value);

  // Puts the command on the current stream of the operands' device. Errors found while launching name the
  // operator; errors on the device surface at the next synchronisation.
  void Run();

 private:
  OpCommandImpl* impl_;  // from a thread-local free list
};

}  // namespace at::native::npu
