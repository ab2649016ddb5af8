// Which kernels serve sparse tensors.
//
// Note [Sparse tensors]
// A sparse tensor is dense tensors on npu, its indices and values, and a few numbers on the host. Where upstream gives
// one function to the CPU and to CUDA, that function knows no device: it calls operators on the parts, so it serves npu
// too. kUnary and the lists after it are those (test_sparse.py compares them with upstream's table). The rest of what
// the CPU has is either a kernel of this drawer, made of dense operators, or runs on the CPU through copies, as any
// operator without an npu kernel does; see Note [Fallback].
// The host waits where a size depends on values: coalesce(), products of two sparse tensors, to_sparse(), index_select
// of a sparse dimension. Everything else is as asynchronous as the dense operators that it is made of.

#include <ATen/native/npu/frame/registration/Fallback.h>
#include <ATen/native/npu/sparse/SparseKernels.h>

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

namespace at::native::npu::sparse {
namespace {

// Functional, in-place and out= forms.
constexpr const char* kUnary[] = {"abs",    "asin",  "asinh", "atan", "atanh", "ceil", "deg2rad", "erf",
                                  "erfinv", "expm1", "floor", "frac", "log1p", "neg",  "rad2deg", "round",
                                  "sgn",    "sign",  "sin",   "sinh", "sqrt",  "tan",  "tanh",    "trunc"};

constexpr const char* kBoth[] = {"_nnz",
                                 "_to_dense",
                                 "_to_sparse",
                                 "_to_sparse.sparse_dim",
                                 "_to_sparse_csc",
                                 "_to_sparse_csr",
                                 "add.Tensor",
                                 "add_.Tensor",
                                 "clone",
                                 "conj_physical.out",
                                 "copy_",
                                 "dense_dim",
                                 "empty.memory_format",
                                 "empty_like",
                                 "is_pinned",
                                 "isinf",
                                 "isnan",
                                 "isneginf",
                                 "isneginf.out",
                                 "isposinf",
                                 "isposinf.out",
                                 "mm",
                                 "mm.out",
                                 "mul.Tensor",
                                 "mul_.Tensor",
                                 "relu",
                                 "relu_",
                                 "resize_as_sparse_",
                                 "signbit",
                                 "signbit.out",
                                 "sparse_dim",
                                 "sum",
                                 "sum.dim_IntList",
                                 "threshold_backward",
                                 "threshold_backward.grad_input",
                                 "values",
                                 "zero_",
                                 "_pin_memory"};

constexpr const char* kCoo[] = {"_coalesced_",
                                "_dimI",
                                "_dimV",
                                "_indices",
                                "_sparse_broadcast_to",
                                "_sparse_coo_tensor_with_dims",
                                "_sparse_coo_tensor_with_dims_and_tensors",
                                "_to_sparse_bsc",
                                "_to_sparse_bsr",
                                "_values",
                                "any",
                                "cat",
                                "copy_sparse_to_sparse_",
                                "div.Tensor",
                                "div.Tensor_mode",
                                "div.out",
                                "div.out_mode",
                                "div_.Tensor",
                                "div_.Tensor_mode",
                                "floor_divide",
                                "floor_divide.out",
                                "floor_divide_.Tensor",
                                "indices",
                                "is_coalesced",
                                "mv",
                                "nan_to_num",
                                "nan_to_num.out",
                                "nan_to_num_",
                                "narrow_copy",
                                "native_norm",
                                "native_norm.ScalarOpt_dim_dtype",
                                "norm.ScalarOpt_dim",
                                "norm.ScalarOpt_dim_dtype",
                                "permute",
                                "pow.Tensor_Scalar",
                                "pow.Tensor_Scalar_out",
                                "sparse_resize_",
                                "sparse_resize_and_clear_",
                                "sub.Tensor",
                                "sub.out",
                                "sub_.Tensor",
                                "unsqueeze",
                                "view_as_complex",
                                "view_as_real",
                                "zeros.out"};

constexpr const char* kCompressed[] = {
    "_conj_physical", "addmm",        "angle",        "angle.out",  "ccol_indices",    "col_indices",
    "conj_physical_", "crow_indices", "fill_.Scalar", "mul.Scalar", "mul.out",         "mul_.Scalar",
    "normal_",        "resize_",      "row_indices",  "select.int", "select_copy.int", "sparse_mask"};

// Dense tensors that become sparse.
constexpr const char* kFromDense[] = {"_to_sparse",     "_to_sparse.sparse_dim", "_to_sparse_bsc",
                                      "_to_sparse_bsr", "_to_sparse_csc",        "_to_sparse_csr"};

// Where the call computes: the device that it names, or that of its first tensor there.
std::optional<Device> device_of(const c10::OperatorHandle& op, const torch::jit::Stack& stack) {
  std::optional<Device> device;
  const auto consider = [&](const Tensor& t) {
    if (!device.has_value() && t.defined() && t.is_privateuseone()) device = t.device();
  };
  for (const c10::IValue& value : torch::jit::last(stack, op.schema().arguments().size())) {
    if (value.isDevice() && value.toDevice().is_privateuseone()) return value.toDevice();
    if (value.isTensor()) consider(value.toTensor());
    if (value.isTensorList()) {
      for (const Tensor& t : value.toTensorVector()) consider(t);
    }
  }
  return device;
}

// A new tensor has parts on the current device until it gets its own, so that must be the tensor's.
template <c10::DispatchKey key>
void on_the_parts(const c10::OperatorHandle& op, c10::DispatchKeySet /*keys*/, torch::jit::Stack* stack) {
  const c10::OptionalDeviceGuard guard(device_of(op, *stack));
  op.callBoxedForDispatchKey(key, *stack);
}

template <c10::DispatchKey key>
void on_the_cpu(const c10::OperatorHandle& op, c10::DispatchKeySet /*keys*/, torch::jit::Stack* stack) {
  TORCH_CHECK_NOT_IMPLEMENTED(op.hasComputedKernelForDispatchKey(key), "Could not run '",
                              c10::toString(op.operator_name()), "' with arguments from the '",
                              key == c10::DispatchKey::SparseCPU ? "Sparsenpu" : "SparseCsrnpu",
                              "' backend: neither npu nor the CPU has a kernel of it for sparse tensors.");
  run_on_cpu(op, stack, key);
}

template <c10::DispatchKey key>
void register_upstream(torch::Library& m, const std::string& name) {
  m.impl(name.c_str(), torch::CppFunction::makeFromBoxedFunction<&on_the_parts<key>>());
}

template <c10::DispatchKey key>
void register_shared(torch::Library& m) {
  for (const std::string name : kUnary) {
    for (const char* form : {"", "_", ".out"}) register_upstream<key>(m, name + form);
  }
  for (const char* name : kBoth) register_upstream<key>(m, name);
}

}  // namespace

TORCH_LIBRARY_IMPL(_, SparsePrivateUse1, m) {
  if (fallback_enabled()) {
    m.fallback(torch::CppFunction::makeFromBoxedFunction<&on_the_cpu<c10::DispatchKey::SparseCPU>>());
  }
}

TORCH_LIBRARY_IMPL(_, SparseCsrPrivateUse1, m) {
  if (fallback_enabled()) {
    m.fallback(torch::CppFunction::makeFromBoxedFunction<&on_the_cpu<c10::DispatchKey::SparseCsrCPU>>());
  }
}

TORCH_LIBRARY_IMPL(aten, SparsePrivateUse1, m) {
  constexpr auto key = c10::DispatchKey::SparseCPU;
  register_shared<key>(m);
  for (const char* name : kCoo) register_upstream<key>(m, name);
  m.impl("_coalesce", TORCH_FN(coalesce));
  m.impl("_sparse_log_softmax", TORCH_FN(log_softmax));
  m.impl("_sparse_log_softmax_backward_data", TORCH_FN(log_softmax_backward));
  m.impl("_sparse_mask_projection", TORCH_FN(sparse_mask_projection));
  m.impl("_sparse_softmax", TORCH_FN(softmax));
  m.impl("_sparse_softmax_backward_data", TORCH_FN(softmax_backward));
  m.impl("_sparse_sparse_matmul", TORCH_FN(sparse_sparse_matmul));
  m.impl("_sparse_sum_backward", TORCH_FN(sparse_sum_backward));
  m.impl("add.out", TORCH_FN(add_out));
  m.impl("addmm", TORCH_FN(addmm));
  m.impl("addmm.out", TORCH_FN(addmm_out));
  m.impl("addmm_", TORCH_FN(addmm_));
  m.impl("bmm", TORCH_FN(bmm));
  m.impl("bmm.out", TORCH_FN(bmm_out));
  m.impl("hspmm", TORCH_FN(hspmm));
  m.impl("hspmm.out", TORCH_FN(hspmm_out));
  m.impl("index_select", TORCH_FN(index_select));
  m.impl("mul.out", TORCH_FN(mul_out));
  m.impl("sparse_mask", TORCH_FN(sparse_mask));
  m.impl("sspaddmm.out", TORCH_FN(sspaddmm_out));
}

TORCH_LIBRARY_IMPL(aten, SparseCsrPrivateUse1, m) {
  constexpr auto key = c10::DispatchKey::SparseCsrCPU;
  register_shared<key>(m);
  for (const char* name : kCompressed) register_upstream<key>(m, name);
  m.impl("_sparse_csr_sum.dim_dtype", TORCH_FN(compressed_sum));
  m.impl("_sparse_mm_reduce_impl", TORCH_FN(mm_reduce));
  m.impl("_sparse_mm_reduce_impl_backward", TORCH_FN(mm_reduce_backward));
  m.impl("_to_sparse_bsc", TORCH_FN(compressed_to_bsc));
  m.impl("_to_sparse_bsr", TORCH_FN(compressed_to_bsr));
  m.impl("add.out", TORCH_FN(compressed_add_out));
  m.impl("addmm.out", TORCH_FN(compressed_addmm_out));
  m.impl("addmv.out", TORCH_FN(compressed_addmv_out));
  m.impl("sparse_sampled_addmm", TORCH_FN(sampled_addmm));
  m.impl("sparse_sampled_addmm.out", TORCH_FN(sampled_addmm_out));
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  for (const char* name : kFromDense) register_upstream<c10::DispatchKey::CPU>(m, name);
  m.impl("_validate_compressed_sparse_indices", TORCH_FN(validate));
}

}  // namespace at::native::npu::sparse
