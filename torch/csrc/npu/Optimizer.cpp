// What torch/npu/_one_pass.py asks of parameters before each step, in C++ because small networks step often.

#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/npu/Bindings.h>

namespace torch::npu {
namespace {

namespace py = pybind11;

bool is_plain(const at::Tensor& t) {
  return (t.scalar_type() == at::kFloat || t.scalar_type() == at::kDouble) && t.layout() == at::kStrided &&
         t.is_non_overlapping_and_dense();
}

bool lies_as(const at::Tensor& t, const at::Tensor& param) {
  return t.scalar_type() == param.scalar_type() && t.layout() == at::kStrided && t.device() == param.device() &&
         t.sizes() == param.sizes() && t.strides() == param.strides();
}

// Whether the first list's tensors are of no subclass, fp32 or fp64, without holes, and those of the other lists at the
// same places lie in memory as they do.
bool lie_alike(const py::list& params, const py::args& others) {
  for (size_t i = 0; i < params.size(); ++i) {
    const py::handle object = params[i];
    if (!THPVariable_CheckExact(object.ptr())) return false;
    const at::Tensor& param = THPVariable_Unpack(object.ptr());
    if (!is_plain(param)) return false;
    for (const py::handle list : others) {
      const auto tensors = py::reinterpret_borrow<py::list>(list);
      if (tensors.size() != params.size()) return false;
      const py::handle other = tensors[i];
      if (!THPVariable_Check(other.ptr()) || !lies_as(THPVariable_Unpack(other.ptr()), param)) return false;
    }
  }
  return true;
}

}  // namespace

void bind_optimizer(py::module_& m) { m.def("_npu_lieAlike", &lie_alike); }

}  // namespace torch::npu
