// Private formats of device memory in copies and files: what copy.deepcopy asks for, and what torch.save keeps beside
// the logical values, through upstream's registry of what back ends add to a tensor's record.

#include <ATen/native/npu/frame/command/FormatCast.h>
#include <torch/csrc/DynamicTypes.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/jit/serialization/pickler_helper.h>
#include <torch/csrc/npu/Bindings.h>
#include <torch/csrc/utils/pybind.h>

#include <string>
#include <unordered_map>

namespace torch::npu {
namespace {

namespace py = pybind11;
using Metadata = std::unordered_map<std::string, bool>;

// Fake tensors say that they are on npu and have no memory there.
bool has_memory(const at::Tensor& t) { return !t.key_set().has(c10::DispatchKey::Python) && t.has_storage(); }

void save(const at::Tensor& t, Metadata& metadata) {
  if (!has_memory(t)) return;
  if (std::string format = at::native::npu::saved_format(t); !format.empty()) metadata[std::move(format)] = true;
}

void restore(const at::Tensor& t, Metadata& metadata) {
  if (!has_memory(t)) return;
  for (const auto& [name, set] : metadata) {
    if (set) at::native::npu::restore_format(t, name);
  }
}

}  // namespace

void bind_formats(py::module_& m) {
  torch::jit::TensorBackendMetaRegistry(c10::DeviceType::PrivateUse1, &save, &restore);
  m.def("_npu_followFormat", torch::wrap_pybind_function([](const py::object& from, const py::object& to) {
          at::native::npu::follow_format(torch::createStorage(from.ptr()), torch::createStorage(to.ptr()));
        }));
  m.def("_npu_inPrivateFormat", torch::wrap_pybind_function([](const at::Tensor& t) {
          return has_memory(t) && at::native::npu::in_private_format(t);
        }));
}

}  // namespace torch::npu
