#pragma once
// An operator of your own for the simulated device, from a shared library that this repository knows nothing of:
//
//   #include <simulator/custom_op.h>
//   static void cube(acl_sim::OpContext& c) { auto y = c.out(0); at::pow_out(y, c.in(0), 3); }
//   SIM_CUSTOM_OPS(ops) { ops.add("Cube").inputs(1).dtypes(acl_sim::kFloatTypes).run(cube); }
//
// The library lies in <folder>/op_impl/simulator/, and ASCEND_CUSTOM_OPP_PATH names <folder> (several are separated by
// colons). aclInit opens it, compares the version below with its own, and adds what it defines. The library links
// libtorch_cpu and libc10, nothing of the simulator. torch.npu.utils.cpp_extension.build_simulator_ops compiles one.

#include <torch/headeronly/version.h>

#include "exec/definition/op.h"

namespace acl_sim {

// Changes whenever OpDef, OpContext or Attrs do.
constexpr uint32_t kCustomOpVersion = 2;

class CustomOps {
 public:
  virtual ~CustomOps() = default;
  // Adds an operator and returns its definition to fill in. Throws Error if the type exists already.
  virtual OpDef& add(const char* type) = 0;
};

// What a library exports as acl_sim_custom_ops. The first members never change, so that any version can be refused.
struct CustomOpLibrary {
  uint32_t version;
  uint32_t definition_bytes;
  const char* torch;  // version of PyTorch that it was compiled against
  void (*define)(CustomOps&);
};

}  // namespace acl_sim

#define SIM_CUSTOM_OPS(OPS)                                                                                     \
  static void acl_sim_define_custom_ops(::acl_sim::CustomOps& OPS);                                             \
  extern "C" __attribute__((visibility("default"), used)) const ::acl_sim::CustomOpLibrary acl_sim_custom_ops;  \
  const ::acl_sim::CustomOpLibrary acl_sim_custom_ops = {::acl_sim::kCustomOpVersion, sizeof(::acl_sim::OpDef), \
                                                         TORCH_VERSION, &acl_sim_define_custom_ops};            \
  static void acl_sim_define_custom_ops([[maybe_unused]] ::acl_sim::CustomOps& OPS)
