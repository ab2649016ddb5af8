// Copies between devices for torch.nn.parallel: torch._C._broadcast, _scatter, _gather and what goes with them, which
// upstream's Python calls and builds for CUDA only. Copies are the dispatcher's: streams and events are its business.

#include <ATen/ATen.h>
#include <c10/core/StreamGuard.h>
#include <c10/npu/NPUFunctions.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/npu/Bindings.h>
#include <torch/csrc/utils/pybind.h>

namespace torch::npu {
namespace {

namespace py = pybind11;
using at::Tensor;
using Tensors = std::vector<Tensor>;
using Streams = std::optional<std::vector<std::optional<c10::Stream>>>;

c10::Device device_of(int64_t index) {
  TORCH_CHECK(index >= 0 && index < c10::npu::device_count(), "Expected an npu of 0 to ", c10::npu::device_count() - 1,
              ", but got device index ", index);
  return {c10::DeviceType::PrivateUse1, static_cast<c10::DeviceIndex>(index)};
}

void check_on_npu(const Tensor& t, const char* caller, size_t i) {
  TORCH_CHECK(t.device().is_privateuseone(), caller, ": expected all tensors to be on an npu, but tensor ", i,
              " is on ", t.device());
}

Tensors broadcast_out(const Tensor& tensor, const Tensors& outs) {
  for (size_t i = 0; i < outs.size(); ++i) {
    check_on_npu(outs[i], "broadcast", i);
    TORCH_CHECK(outs[i].sizes() == tensor.sizes(), "Expected all output tensors to have the shape ", tensor.sizes(),
                " of the source, but output ", i, " has ", outs[i].sizes());
  }
  for (const Tensor& out : outs) out.copy_(tensor, /*non_blocking=*/true);
  return outs;
}

// The tensor itself where it is on the device already.
Tensor on(const Tensor& tensor, c10::Device device) {
  if (tensor.device() == device) return tensor;
  return tensor.to(tensor.options().device(device), /*non_blocking=*/true, /*copy=*/true);
}

Tensors broadcast(const Tensor& tensor, const std::vector<int64_t>& devices) {
  Tensors copies;
  for (const int64_t index : devices) copies.push_back(on(tensor, device_of(index)));
  return copies;
}

// Small tensors of one dtype travel as one; each device's copies have version counters of their own.
std::vector<Tensors> broadcast_coalesced(const Tensors& tensors, const std::vector<int64_t>& devices,
                                         int64_t buffer_size) {
  TORCH_CHECK(!devices.empty(), "Expected at least one device to broadcast to");
  for (size_t i = 0; i < tensors.size(); ++i) {
    TORCH_CHECK(tensors[i].device() == tensors[0].device(),
                "Expected all tensors to be on one device, but tensor 0 is on ", tensors[0].device(), " and tensor ", i,
                " on ", tensors[i].device());
  }
  std::vector<Tensors> results(devices.size(), Tensors(tensors.size()));
  const auto send = [&](const std::vector<size_t>& chunk) {
    Tensors flat;
    for (const size_t i : chunk) flat.push_back(tensors[i].contiguous().view(-1));
    const Tensor sent = flat.size() == 1 ? flat[0] : at::cat(flat);
    for (size_t d = 0; d < devices.size(); ++d) {
      const c10::Device device = device_of(devices[d]);
      const bool there = tensors[chunk[0]].device() == device;
      const Tensor copy = there ? sent : on(sent, device);
      int64_t begin = 0;
      for (const size_t i : chunk) {
        const Tensor part = there ? tensors[i] : copy.narrow(0, begin, tensors[i].numel()).view(tensors[i].sizes());
        results[d][i] = there ? part : part.variable_data();
        begin += tensors[i].numel();
      }
    }
  };
  std::vector<size_t> chunk;
  int64_t bytes = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const bool fits = bytes + static_cast<int64_t>(tensors[i].nbytes()) <= buffer_size;
    if (!chunk.empty() && (!fits || tensors[chunk[0]].scalar_type() != tensors[i].scalar_type())) {
      send(chunk);
      chunk.clear();
      bytes = 0;
    }
    chunk.push_back(i);
    bytes += static_cast<int64_t>(tensors[i].nbytes());
  }
  if (!chunk.empty()) send(chunk);
  return results;
}

// Runs a copy on the stream given for part i, if there is one.
template <class Copy>
void on_stream(const Streams& streams, size_t i, c10::Device device, const Copy& copy) {
  c10::OptionalStreamGuard guard;
  if (streams.has_value() && i < streams->size() && (*streams)[i].has_value()) {
    const c10::Stream& stream = *(*streams)[i];
    TORCH_CHECK(stream.device() == device, "Expected the stream of part ", i, " to be on ", device, ", but it is on ",
                stream.device());
    guard.reset_stream(stream);
  }
  copy();
}

Tensors scatter(const Tensor& tensor, const std::vector<int64_t>& devices,
                const std::optional<std::vector<int64_t>>& chunk_sizes, int64_t dim, const Streams& streams) {
  TORCH_CHECK(!devices.empty(), "Expected at least one device to scatter to");
  dim = c10::maybe_wrap_dim(dim, tensor.dim());
  TORCH_CHECK(!chunk_sizes.has_value() || chunk_sizes->size() == devices.size(),
              "Expected devices and chunk_sizes to be of the same length, but got ", devices.size(),
              " devices and chunk_sizes of length ", chunk_sizes.has_value() ? chunk_sizes->size() : 0);
  Tensors chunks = chunk_sizes.has_value() ? tensor.split_with_sizes(*chunk_sizes, dim)
                                           : tensor.chunk(static_cast<int64_t>(devices.size()), dim);
  for (size_t i = 0; i < chunks.size(); ++i) {
    const c10::Device device = device_of(devices[i]);
    on_stream(streams, i, device, [&] { chunks[i] = on(chunks[i], device); });
  }
  return chunks;
}

Tensors scatter_out(const Tensor& tensor, const Tensors& outs, int64_t dim, const Streams& streams) {
  TORCH_CHECK(!outs.empty(), "Expected at least one output tensor to scatter to");
  dim = c10::maybe_wrap_dim(dim, tensor.dim());
  std::vector<int64_t> sizes;
  int64_t total = 0;
  for (size_t i = 0; i < outs.size(); ++i) {
    check_on_npu(outs[i], "scatter", i);
    auto expected = tensor.sizes().vec();
    if (outs[i].dim() == tensor.dim()) expected[dim] = outs[i].size(dim);
    TORCH_CHECK(outs[i].sizes() == expected, "Output tensor ", i, " has shape ", outs[i].sizes(),
                ", which differs from the input's ", tensor.sizes(), " in more than dimension ", dim);
    sizes.push_back(outs[i].size(dim));
    total += sizes.back();
  }
  TORCH_CHECK(total == tensor.size(dim), "Output tensors have ", total, " elements in dimension ", dim,
              ", but the input has ", tensor.size(dim));
  const Tensors chunks = tensor.split_with_sizes(sizes, dim);
  for (size_t i = 0; i < outs.size(); ++i) {
    on_stream(streams, i, outs[i].device(), [&] { outs[i].copy_(chunks[i], /*non_blocking=*/true); });
  }
  return outs;
}

// The extent of all of them in `dim`, after checking that they differ in it only.
int64_t gathered_size(const Tensors& tensors, int64_t dim) {
  TORCH_CHECK(!tensors.empty(), "Expected at least one tensor to gather from");
  int64_t total = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    check_on_npu(tensors[i], "gather", i);
    auto expected = tensors[0].sizes().vec();
    if (tensors[i].dim() == tensors[0].dim()) expected[dim] = tensors[i].size(dim);
    TORCH_CHECK(tensors[i].sizes() == expected, "Gather input tensor ", i, " has shape ", tensors[i].sizes(),
                ", but expected ", c10::IntArrayRef(expected), " as of tensor 0");
    total += tensors[i].size(dim);
  }
  return total;
}

void gather_into(const Tensors& tensors, const Tensor& out, int64_t dim) {
  int64_t begin = 0;
  for (const Tensor& tensor : tensors) {
    // To the host a copy has to wait: the caller may read it at once.
    out.narrow(dim, begin, tensor.size(dim)).copy_(tensor, /*non_blocking=*/out.device().is_privateuseone());
    begin += tensor.size(dim);
  }
}

Tensor gather_out(const Tensors& tensors, const Tensor& out, int64_t dim) {
  TORCH_CHECK(!tensors.empty(), "Expected at least one tensor to gather from");
  dim = c10::maybe_wrap_dim(dim, tensors[0].dim());
  auto expected = tensors[0].sizes().vec();
  expected[dim] = gathered_size(tensors, dim);
  TORCH_CHECK(out.sizes() == expected, "Expected out tensor to have shape ", c10::IntArrayRef(expected), ", but got ",
              out.sizes());
  gather_into(tensors, out, dim);
  return out;
}

Tensor gather(const Tensors& tensors, int64_t dim, const std::optional<int64_t>& destination) {
  TORCH_CHECK(!tensors.empty(), "Expected at least one tensor to gather from");
  dim = c10::maybe_wrap_dim(dim, tensors[0].dim());
  auto sizes = tensors[0].sizes().vec();
  sizes[dim] = gathered_size(tensors, dim);
  const c10::Device device = !destination.has_value() ? device_of(c10::npu::current_device())
                             : *destination == -1     ? c10::Device(c10::kCPU)
                                                      : device_of(*destination);
  const Tensor result =
      at::empty(sizes, tensors[0].options().device(device).memory_format(tensors[0].suggest_memory_format()));
  gather_into(tensors, result, dim);
  return result;
}

}  // namespace

void bind_comm(py::module_& m) {
  m.def("_broadcast_coalesced", torch::wrap_pybind_function_no_gil(&broadcast_coalesced), py::arg("tensors"),
        py::arg("devices"), py::arg("buffer_size"));
  m.def("_broadcast", torch::wrap_pybind_function_no_gil(&broadcast), py::arg("tensor"), py::arg("devices"));
  m.def("_broadcast_out", torch::wrap_pybind_function_no_gil(&broadcast_out), py::arg("tensor"), py::arg("out"));
  m.def("_scatter", torch::wrap_pybind_function_no_gil(&scatter), py::arg("tensor"), py::arg("devices"),
        py::arg("chunk_sizes"), py::arg("dim"), py::arg("streams") = py::none());
  m.def("_scatter_out", torch::wrap_pybind_function_no_gil(&scatter_out), py::arg("tensor"), py::arg("out"),
        py::arg("dim"), py::arg("streams") = py::none());
  m.def("_gather", torch::wrap_pybind_function_no_gil(&gather), py::arg("tensors"), py::arg("dim"),
        py::arg("destination_index"));
  m.def("_gather_out", torch::wrap_pybind_function_no_gil(&gather_out), py::arg("tensors"), py::arg("out"),
        py::arg("dim"));
}

}  // namespace torch::npu
