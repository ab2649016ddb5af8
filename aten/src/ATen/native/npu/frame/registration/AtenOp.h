#pragma once
// Kernels of operators that are one IR operator with the operands of the aten overload itself: `aten_ops` and `outs` in
// the operator table. One boxed function serves them all.
//
// Note [Aten operators]
// Operands follow from the schema's arguments, but for out= tensors, devices, layouts, memory formats, pin_memory:
// - A tensor is an input. A list of tensors is an attribute of its name (1 for each that is given, 0 for each that is
//   not), and inputs.
// - A number is an input on the host, since attributes are fp32. A list of numbers is an attribute of its name, how
//   many, and as many inputs. A generator is one input on the host: two int64, seed and offset.
// - int, bool, str, dtype and lists of them are attributes, left out if None.
// Outputs are the arguments that are written (inputs, too, unless they are out= tensors), then the results. Shapes and
// dtypes of results come from upstream's meta kernel, called with meta tensors and remembered for equal arguments, or,
// where there is none, from a rule that the table names.

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/native/npu/frame/inference/Dtype.h>
#include <c10/util/DimVector.h>
#include <torch/library.h>

#include <string_view>
#include <vector>

namespace at::native::npu {

// What a result is; without strides: contiguous. Undefined results have dtype Undefined.
struct OutputSpec {
  ScalarType dtype = ScalarType::Undefined;
  DimVector sizes;
  DimVector strides;
};
using OutputSpecs = std::vector<OutputSpec>;

inline OutputSpec output_of(ScalarType dtype, IntArrayRef sizes) { return {dtype, DimVector(sizes), {}}; }

// The arguments of one call, by name.
class AtenArguments {
 public:
  AtenArguments(const c10::FunctionSchema& schema, const c10::IValue* values) : schema_(schema), values_(values) {}
  const c10::IValue& operator[](std::string_view name) const;
  bool has(std::string_view name) const;
  const Tensor& tensor(std::string_view name) const { return (*this)[name].toTensor(); }
  // Shape and dtype of an argument.
  OutputSpec like(std::string_view name) const;

 private:
  const c10::FunctionSchema& schema_;
  const c10::IValue* values_;
};

using OutputRule = OutputSpecs (*)(const AtenArguments&);
// The rule of operators that change their operands only.
OutputSpecs no_outputs(const AtenArguments& arguments);
// The results (those that are not written to arguments) of other operators, where the device lacks this one.
using Composition = std::vector<Tensor> (*)(const AtenArguments&);
using SpecialCase = std::optional<std::vector<Tensor>> (*)(const AtenArguments&);
// Throws for arguments that the CPU's kernel refuses and upstream's meta kernel does not.
using ArgumentCheck = void (*)(const AtenArguments&);

struct AtenEntry {
  const char* overload;
  const char* ir;
  DtypeMask dtypes = kDtypeAny;  // of the first tensor
  OutputRule rule = nullptr;     // nullptr: upstream's meta kernel
  // Of out= overloads without a rule: the overload that tells the dtypes of the results; and whether out= tensors of
  // others are refused, as structured operators do, instead of cast to.
  const char* functional = nullptr;
  bool exact = false;
  ArgumentCheck check = nullptr;
  DtypeMask wide = 0;              // dtypes of tensors that are computed with in a wider one (widened())
  Composition composed = nullptr;  // nullptr: the CPU's kernel
  SpecialCase special = nullptr;   // nullptr: the IR operator has right results for all arguments
  DtypeMask refused = 0;           // dtypes of the first tensor that the simulated device's kernel refuses
};

// Registers the boxed kernel for an overload of aten.
void register_aten_op(torch::Library& library, const AtenEntry& entry);

// Registers an out= overload that computes by the functional one and copies. `exact`: other dtypes are refused, as
// structured operators do, instead of cast.
void register_give(torch::Library& library, const char* overload, const char* functional, bool exact);

// The results of upstream's meta kernel.
OutputSpecs meta_outputs(const c10::OperatorHandle& op, const c10::IValue* values);

}  // namespace at::native::npu
