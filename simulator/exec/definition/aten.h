#pragma once
// Operators of the device that are one ATen operator: declared by IR type and overload, run by one general function.
//
//   SIM_ATEN(Cholesky, "cholesky.out");
//
// Note [Aten operators]
// Their operands and attributes follow from the overload's schema, its arguments taken in order without those that are
// out= tensors, devices, layouts, memory formats and pin_memory:
// - a tensor is an input, absent if undefined; a list of tensors is an attribute of its name with 1 for each tensor
// that
//   is given and 0 for each that is not, and its given tensors as inputs;
// - a number (Scalar, float) is a host input, since attributes are fp32; a list of them is an int attribute of its
// name,
//   how many, and as many inputs;
// - int, bool, str, dtype and lists of ints or bools are attributes of the argument's name, left out if None;
// - a generator is a host input of two int64, seed and offset.
// Outputs are first the arguments that are written to, in order (those that are no out= tensors are inputs, too, on the
// same memory), then the returned tensors that are none of the arguments.

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include "exec/definition/op.h"

namespace [[gnu::visibility("hidden")]] acl_sim {

class AtenOp {
 public:
  AtenOp(const char* type, const char* overload, void (*run)(OpContext&));
  // Computes, and hands every result to its output.
  void run(OpContext& c) const;
  // Computes, and leaves the results to the caller; for operators whose CPU kernel gives other results than it should.
  torch::jit::Stack call(OpContext& c) const;

 private:
  c10::OperatorHandle op_;
};

#define SIM_ATEN(TYPE, OVERLOAD) \
  static const ::acl_sim::AtenOp aten_##TYPE(#TYPE, OVERLOAD, [](::acl_sim::OpContext& c) { aten_##TYPE.run(c); })

// As above, but FN(OpContext&, const torch::jit::Stack& results) fills the outputs.
#define SIM_ATEN_THEN(TYPE, OVERLOAD, FN)                     \
  static const ::acl_sim::AtenOp aten_##TYPE(#TYPE, OVERLOAD, \
                                             [](::acl_sim::OpContext& c) { FN(c, aten_##TYPE.call(c)); })

// As SIM_ATEN, after CHECK(OpContext&) has found that the operands are in range.
#define SIM_ATEN_CHECKED(TYPE, OVERLOAD, CHECK)                                             \
  static const ::acl_sim::AtenOp aten_##TYPE(#TYPE, OVERLOAD, [](::acl_sim::OpContext& c) { \
    CHECK(c);                                                                               \
    aten_##TYPE.run(c);                                                                     \
  })

}  // namespace acl_sim
