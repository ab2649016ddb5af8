// Bindings of devices: choosing, counting, waiting, properties, default generators, start and end.

#include <ATen/npu/NPUGeneratorImpl.h>
#include <acl_loader.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/npu/NPUException.h>
#include <c10/npu/NPUFunctions.h>
#include <c10/npu/NPUOptions.h>
#include <c10/npu/NPUSyncDebug.h>
#include <c10/npu/impl/Interrupt.h>
#include <c10/npu/impl/Uuid.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/Generator.h>
#include <torch/csrc/npu/Bindings.h>

#include <pybind11/stl.h>

#include <pthread.h>

#include <array>
#include <cctype>
#include <vector>

namespace torch::npu {
namespace {

namespace py = pybind11;
using c10::DeviceIndex;

// Python ints are checked before they are cut down to a DeviceIndex: 256 must not mean 0.
DeviceIndex to_index(int64_t index) {
  TORCH_CHECK(index >= -1 && index <= std::numeric_limits<DeviceIndex>::max(), "Invalid npu device index: ", index);
  return static_cast<DeviceIndex>(index);
}

// The number in a chip's name, split: Ascend910B2 is (9, 10), Ascend310P3 is (3, 10).
std::pair<int, int> capability(const std::string& name) {
  int number = 0;
  for (char c : name) {
    if (std::isdigit(static_cast<unsigned char>(c)) && number < 100) {
      number = number * 10 + (c - '0');
    } else if (number != 0) {
      break;
    }
  }
  return {number / 100, number % 100};
}

// Ctrl-C while the main thread waits for a device: Python's handler runs, and what it raises ends the wait.
unsigned long main_thread = 0;

bool check_signals() {
  if (static_cast<unsigned long>(pthread_self()) != main_thread || Py_IsInitialized() == 0) return false;
  // The handler is the user's program, which does not run below autograd though the wait may.
  const c10::impl::ForceDispatchKeyGuard keys(c10::default_included_set, c10::default_excluded_set);
  const py::gil_scoped_acquire gil;
  if (PyErr_CheckSignals() == 0) return true;
  python_error error;
  error.persist();
  throw error;
}

struct Uuid {
  std::array<uint8_t, 16> bytes;
};

struct Properties : c10::npu::DeviceProperties {
  Uuid uuid;
};

std::string describe_uuid(const Uuid& uuid) {
  std::string text;
  for (size_t i = 0; i < uuid.bytes.size(); ++i) {
    constexpr const char* kDigits = "0123456789abcdef";
    if (i == 4 || i == 6 || i == 8 || i == 10) {
      text += '-';
    }
    text += kDigits[uuid.bytes[i] >> 4];
    text += kDigits[uuid.bytes[i] & 15];
  }
  return text;
}

std::string describe(const Properties& p) {
  std::ostringstream out;
  out << "_NPUDeviceProperties(name='" << p.name << "', total_memory=" << p.total_memory / (1024 * 1024)
      << "MB, cube_core_num=" << p.cube_core_num << ", vector_core_num=" << p.vector_core_num
      << ", uuid=" << describe_uuid(p.uuid) << ")";
  return out.str();
}

void bind_properties(py::module_& m) {
  using c10::npu::DeviceProperties;
  py::class_<Uuid>(m, "_NPUuuid")
      .def_property_readonly("bytes", [](const Uuid& u) { return std::vector<int>(u.bytes.begin(), u.bytes.end()); })
      .def("__str__", &describe_uuid)
      .def("__repr__", &describe_uuid)
      .def(
          "__eq__", [](const Uuid& a, const Uuid& b) { return a.bytes == b.bytes; }, py::is_operator())
      .def("__hash__", [](const Uuid& u) { return py::hash(py::str(describe_uuid(u))); });
  py::class_<Properties>(m, "_NPUDeviceProperties")
      .def_readonly("name", &DeviceProperties::name)
      .def_readonly("total_memory", &DeviceProperties::total_memory)
      .def_readonly("cube_core_num", &DeviceProperties::cube_core_num)
      .def_readonly("vector_core_num", &DeviceProperties::vector_core_num)
      .def_readonly("multi_processor_count", &DeviceProperties::cube_core_num)
      .def_property_readonly("major", [](const Properties& p) { return capability(p.name).first; })
      .def_property_readonly("minor", [](const Properties& p) { return capability(p.name).second; })
      .def_property_readonly("uuid", [](const Properties& p) { return p.uuid; })
      .def_property_readonly("is_simulated", [](const Properties&) { return c10::npu::is_simulator(); })
      .def("__repr__", &describe);
}

}  // namespace

void bind_device(py::module_& m) {
  bind_properties(m);
  main_thread = py::module_::import("threading").attr("main_thread")().attr("ident").cast<unsigned long>();
  c10::npu::impl::set_interrupt_check(&check_signals);
  m.attr("_npu_deviceType") = static_cast<int>(c10::DeviceType::PrivateUse1);

  m.def("_npu_init", torch::wrap_pybind_function_no_gil([]() { c10::npu::device_count_ensure_non_zero(); }));
  m.def("_npu_shutdown", torch::wrap_pybind_function_no_gil([]() { c10::npu::npu_shutdown(); }));
  m.def("_npu_isInBadFork", []() { return c10::npu::is_in_bad_fork(); });
  m.def("_npu_saturates", torch::wrap_pybind_function([]() { return c10::npu::options().saturates; }));
  m.def("_npu_isSimulator", torch::wrap_pybind_function([]() { return c10::npu::is_simulator(); }));
  m.def("_npu_hasPrimaryContext",
        torch::wrap_pybind_function([](int64_t i) { return c10::npu::hasPrimaryContext(to_index(i)); }));

  m.def("_npu_getDeviceCount", []() { return static_cast<int>(c10::npu::device_count()); });
  m.def("_npu_getDevice", torch::wrap_pybind_function([]() { return static_cast<int>(c10::npu::current_device()); }));
  m.def("_npu_setDevice", torch::wrap_pybind_function_no_gil([](int64_t i) { c10::npu::set_device(to_index(i)); }));
  // As on CUDA, a negative index changes nothing and returns -1.
  m.def("_npu_exchangeDevice", torch::wrap_pybind_function([](int64_t i) {
          return i < 0 ? -1 : static_cast<int>(c10::npu::ExchangeDevice(to_index(i)));
        }));
  m.def("_npu_maybeExchangeDevice", torch::wrap_pybind_function([](int64_t i) {
          return i < 0 ? -1 : static_cast<int>(c10::npu::MaybeExchangeDevice(to_index(i)));
        }));
  m.def("_npu_synchronize", torch::wrap_pybind_function_no_gil([]() {
          const c10::npu::impl::InterruptScope scope;
          c10::npu::device_synchronize();
        }));
  m.def("_npu_setOpTimeout", torch::wrap_pybind_function_no_gil([](uint32_t ms) {
          c10::npu::activate_device();
          if (c10::npu::acl::has_function("aclrtSetOpExecuteTimeOutWithMs")) {
            NPU_CHECK(c10::npu::acl::aclrtSetOpExecuteTimeOutWithMs(ms));
          } else {
            TORCH_CHECK(c10::npu::acl::has_function("aclrtSetOpExecuteTimeOut"),
                        "set_op_timeout_ms: this CANN has no bound for operators: it lacks aclrtSetOpExecuteTimeOut, "
                        "which CANN 8.1 has.");
            // It counts seconds.
            NPU_CHECK(c10::npu::acl::aclrtSetOpExecuteTimeOut(ms / 1000 + (ms % 1000 != 0)));
          }
        }));
  m.def("_npu_setSyncDebugMode", torch::wrap_pybind_function([](int mode) {
          TORCH_CHECK_VALUE(mode >= 0 && mode <= 2, "invalid value of debug_mode, expected one of 0, 1, 2");
          c10::npu::detail::sync_debug_mode.store(static_cast<c10::npu::SyncDebugMode>(mode));
        }));
  m.def("_npu_getSyncDebugMode", []() { return static_cast<int>(c10::npu::detail::sync_debug_mode.load()); });

  m.def("_npu_getDeviceName",
        torch::wrap_pybind_function([](int64_t i) { return c10::npu::get_device_name(to_index(i)); }));
  m.def("_npu_getDeviceProperties", torch::wrap_pybind_function([](int64_t i) {
          return Properties{c10::npu::get_device_properties(to_index(i)), {c10::npu::impl::device_uuid(to_index(i))}};
        }));
  m.def("_npu_canDeviceAccessPeer", torch::wrap_pybind_function([](int64_t device, int64_t peer) {
          return c10::npu::can_access_peer(to_index(device), to_index(peer));
        }));
  m.def("_npu_getDefaultGenerator", torch::wrap_pybind_function([](int64_t i) {
          const auto& generator = at::npu::detail::getDefaultNPUGenerator(to_index(i));
          return py::reinterpret_steal<py::object>(THPGenerator_initDefaultGenerator(generator));
        }));
}

}  // namespace torch::npu
