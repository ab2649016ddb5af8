// Which line of the user's script called an operator: what upstream's traces do not tell, since their Python frames
// have the line where a function begins.

#include <ATen/record_function.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <torch/csrc/npu/Bindings.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

namespace torch::npu {
namespace {

namespace py = pybind11;

struct Place {
  py::object code;
  int line;
};

// All of it is touched under Python's lock only.
struct Lines {
  at::CallbackHandle callback = at::INVALID_CALLBACK_HANDLE;
  std::vector<Place> places;
  std::unordered_map<int64_t, uint32_t> place_numbers;             // by number of the code, and line
  std::unordered_map<PyObject*, std::pair<uint32_t, bool>> codes;  // number, and whether it is a library's
  std::vector<std::pair<uint64_t, uint32_t>> calls;                // a RecordFunction's handle, its place
};

Lines& lines() {
  static auto* const kept = new Lines;  // outlives the interpreter
  return *kept;
}

// A call of an operator by another has no line of its own.
thread_local int open_operators = 0;

bool is_library(PyObject* code) {
  const auto file = py::handle(code).attr("co_filename").cast<std::string>();
  const std::string_view name = file;
  for (const char* part : {"/site-packages/", "/lib/python3", "/torch/"}) {
    if (name.find(part) != std::string_view::npos) return true;
  }
  return name.empty() || name.front() == '<';
}

void note_place(uint64_t handle) {
  Lines& l = lines();
  auto frame =
      py::reinterpret_steal<py::object>(reinterpret_cast<PyObject*>(PyThreadState_GetFrame(PyThreadState_Get())));
  while (frame) {
    auto* const at = reinterpret_cast<PyFrameObject*>(frame.ptr());
    auto code = py::reinterpret_steal<py::object>(reinterpret_cast<PyObject*>(PyFrame_GetCode(at)));
    auto found = l.codes.find(code.ptr());
    if (found == l.codes.end()) {
      const auto number = static_cast<uint32_t>(l.codes.size());
      found = l.codes.emplace(code.ptr(), std::pair(number, is_library(code.ptr()))).first;
      code.inc_ref();  // while its address stands for it, see take()
    }
    const auto [number, library] = found->second;
    if (!library) {
      const int line = PyFrame_GetLineNumber(at);
      const int64_t key = (static_cast<int64_t>(number) << 32) | static_cast<uint32_t>(line);
      const auto [place, fresh] = l.place_numbers.emplace(key, static_cast<uint32_t>(l.places.size()));
      if (fresh) l.places.push_back({code, line});
      l.calls.emplace_back(handle, place->second);
      return;
    }
    frame = py::reinterpret_steal<py::object>(reinterpret_cast<PyObject*>(PyFrame_GetBack(at)));
  }
}

struct Open final : at::ObserverContext {};

std::unique_ptr<at::ObserverContext> begin_call(const at::RecordFunction& function) {
  const bool is_operator = function.scope() == at::RecordScope::FUNCTION;
  if ((is_operator && open_operators++ > 0) || !Py_IsInitialized())
    return is_operator ? std::make_unique<Open>() : nullptr;
  try {
    const py::gil_scoped_acquire locked;
    note_place(function.handle());
  } catch (const std::exception&) {
    // An operator is not to fail for its line.
  }
  return is_operator ? std::make_unique<Open>() : nullptr;
}

void end_call(const at::RecordFunction& /*function*/, at::ObserverContext* context) {
  if (context != nullptr) --open_operators;
}

void begin() {
  if (lines().callback != at::INVALID_CALLBACK_HANDLE) return;
  lines().callback = at::addGlobalCallback(at::RecordFunctionCallback(begin_call, end_call)
                                               .needsIds(true)
                                               .scopes({at::RecordScope::FUNCTION, at::RecordScope::USER_SCOPE}));
}

// Ends it; returns (file, line, function) of each place, and (handle, place) of each call.
std::pair<std::vector<std::tuple<py::object, int, py::object>>, std::vector<std::pair<uint64_t, uint32_t>>> take() {
  Lines& l = lines();
  if (l.callback != at::INVALID_CALLBACK_HANDLE) {
    at::removeCallback(l.callback);
    l.callback = at::INVALID_CALLBACK_HANDLE;
  }
  std::vector<std::tuple<py::object, int, py::object>> places;
  places.reserve(l.places.size());
  for (const Place& place : l.places) {
    places.emplace_back(place.code.attr("co_filename"), place.line, place.code.attr("co_name"));
  }
  l.places.clear();
  l.place_numbers.clear();
  for (const auto& [code, facts] : std::exchange(l.codes, {})) py::handle(code).dec_ref();
  return {std::move(places), std::exchange(l.calls, {})};
}

}  // namespace

void bind_operator_lines(py::module_& m) {
  m.def("_npu_beginLines", begin);
  m.def("_npu_takeLines", take);
}

}  // namespace torch::npu
