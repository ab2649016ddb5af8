#pragma once
// How an operator of the simulated device is written: one OpDef per IR type, registered by name, run on
// aliases of device memory. This is all that a file in sim/ops/ needs; streams, memory, descriptors and the
// compile cache stay behind it.
//
//   static void relu(OpContext& c) { auto y = c.out_as(0, c.in_any(0)); at::clamp_min_out(y, c.in_any(0), 0); }
//   SIM_OP(Relu).inputs(1).outputs(1).dtypes(kRealTypes).run(relu);
//
// An operator never allocates device memory, never touches a stream, and reports misuse by throwing OpError.
// The header is also what a library of your own operators includes, see custom_op.h beside it: nothing that such a
// library needs is defined out of line.

#include <acl/acl_base.h>

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "../../core/error.h"

namespace acl_sim {

// Thrown by an operator; carries the ACL code that the failing stream reports at its next synchronisation.
class OpError : public Error {
 public:
  using Error::Error;
};

// Attributes of one compiled operator. Absent names give the default; a present one of another type throws OpError.
class Attrs {
 public:
  virtual ~Attrs() = default;
  virtual bool has(std::string_view name) const = 0;
  virtual bool boolean(std::string_view name, bool otherwise) const = 0;
  virtual int64_t integer(std::string_view name, int64_t otherwise) const = 0;
  virtual double real(std::string_view name, double otherwise) const = 0;
  virtual std::string text(std::string_view name, const std::string& otherwise) const = 0;
  virtual std::vector<int64_t> integers(std::string_view name, std::vector<int64_t> otherwise = {}) const = 0;
  virtual std::vector<double> reals(std::string_view name, std::vector<double> otherwise = {}) const = 0;
};

// The classes of operators whose fp32 operands the cube unit may round, see exec/compilation/options.h.
enum class CubeClass : uint8_t { None, MatMul, Conv };
// What it rounds them to.
enum class CubeRounding : uint8_t { None, Hf32, Fp16 };

// One execution of a compiled operator. Tensors it hands out alias device memory (or a by-value copy of a
// host-placed operand) and are valid only while `run` executes.
class OpContext {
 public:
  virtual ~OpContext() = default;

  virtual size_t num_inputs() const = 0;
  virtual size_t num_outputs() const = 0;
  // False for an optional input passed as an ACL_DT_UNDEFINED descriptor, or not passed at all.
  virtual bool has_input(size_t i) const = 0;
  virtual const Attrs& attrs() const = 0;

  // Input i in the descriptor's dims, contiguous. Relayouts into scratch if the device stores it otherwise.
  virtual at::Tensor in(size_t i) = 0;
  // Input i in the descriptor's dims, in whatever strides the device keeps it (channels-last for 4-D tensors
  // the device stores that way). For operators that compute on any strides.
  virtual at::Tensor in_any(size_t i) = 0;
  // Input i as channels-last strides, relayouted into scratch if it is stored contiguous. 4-D only.
  virtual at::Tensor in_channels_last(size_t i) = 0;
  // The values of a small integer input (axes, shapes): int32 or int64, on host or device.
  virtual std::vector<int64_t> in_values(size_t i) = 0;
  // The value of a one-element input.
  virtual at::Scalar in_scalar(size_t i) = 0;

  // Output i, contiguous in the descriptor's dims.
  virtual at::Tensor out(size_t i) = 0;
  // Output i stored channels-last by the device; whoever reads it as contiguous gets it relayouted. 4-D only.
  virtual at::Tensor out_channels_last(size_t i) = 0;
  // Output i stored in the same layout as `like` (an in_any of the same dims): contiguous or channels-last.
  virtual at::Tensor out_as(size_t i, const at::Tensor& like) = 0;
  // For kernels that have no out= form: hands `result` to output i. No copy happens when the result already
  // lives there, which `place_next_allocation(i)` arranges: the next host allocation of exactly that many
  // bytes made by this thread returns output i's memory.
  virtual void place_next_allocation(size_t i) = 0;
  virtual void set_out(size_t i, const at::Tensor& result) = 0;

  virtual std::string describe() const = 0;  // op type, shapes and dtypes, for error texts

  // What an operator of a CubeClass is to round its fp32 operands to.
  virtual CubeRounding rounding() const { return CubeRounding::None; }

  // As the descriptors have them.
  virtual aclFormat in_format(size_t /*i*/) const { return ACL_FORMAT_ND; }
  virtual aclFormat out_format(size_t /*i*/) const { return ACL_FORMAT_ND; }
  // The dims of output i, without asking for it.
  virtual at::IntArrayRef out_dims(size_t /*i*/) const { return {}; }
};

// Type sets for OpDef::dtypes.
using DtypeSet = uint64_t;  // bit n stands for aclDataType n
constexpr DtypeSet dtype_bit(aclDataType t) { return DtypeSet{1} << static_cast<unsigned>(t); }
namespace detail {
template <class... T>
constexpr DtypeSet dtype_bits(T... types) {
  return (dtype_bit(types) | ... | DtypeSet{0});
}
}  // namespace detail
constexpr DtypeSet kFloatTypes = detail::dtype_bits(ACL_FLOAT16, ACL_FLOAT, ACL_DOUBLE, ACL_BF16);
constexpr DtypeSet kIntTypes =
    detail::dtype_bits(ACL_INT8, ACL_INT16, ACL_INT32, ACL_INT64, ACL_UINT8, ACL_UINT16, ACL_UINT32, ACL_UINT64);
constexpr DtypeSet kRealTypes = kFloatTypes | kIntTypes;
constexpr DtypeSet kNumericTypes = kRealTypes | detail::dtype_bits(ACL_COMPLEX32, ACL_COMPLEX64, ACL_COMPLEX128);
constexpr DtypeSet kComputeTypes = kNumericTypes | detail::dtype_bits(ACL_BOOL);
constexpr DtypeSet kAllTypes =  // fp8 too, which can be moved, cast and compared, but not computed with
    kComputeTypes | detail::dtype_bits(ACL_FLOAT8_E5M2, ACL_FLOAT8_E4M3FN);

// Runs without tensors when every operand is contiguous, plainly stored, of one size, and small: a, b, ... are
// aliases, n the element count. All operands have the given dtype, except that a function given to tiny_to_bool writes
// bools. Return false to take the general road for this dtype.
using TinyFn = bool (*)(aclDataType dtype, void* out, const void* const* in, int64_t n);

struct OpDef {
  std::string type;
  int min_inputs = 0, max_inputs = 0, min_outputs = 1, max_outputs = 1;
  std::vector<DtypeSet> input_dtypes;  // one per input, or one for all; checked when the operator is compiled
  // "axis:int", "keep_dims:bool", "pads:ints", "alpha:float", "mode:str"; further types are floats, bools, strs, dtype,
  // dtypes and lists (of ints). Other names are refused.
  std::vector<std::string> attr_names;
  std::vector<std::string> required_attrs;
  void (*run_fn)(OpContext&) = nullptr;
  TinyFn tiny_fn = nullptr;
  bool tiny_makes_bool = false;
  bool cube = false;  // runs on the cube unit: fp16 in, fp32 accumulation
  CubeClass cube_class = CubeClass::None;
  bool on_ai_cpu = false;
  bool costs_more = false;  // an element costs far more than to move its bytes
  bool takes_image_formats = false;

  OpDef& inputs(int n) { return inputs(n, n); }
  OpDef& inputs(int least, int most) {
    min_inputs = least;
    max_inputs = most;
    return *this;
  }
  OpDef& outputs(int n) { return outputs(n, n); }
  OpDef& outputs(int least, int most) {
    min_outputs = least;
    max_outputs = most;
    return *this;
  }
  OpDef& dtypes(DtypeSet all) {
    input_dtypes = {all};
    return *this;
  }
  OpDef& dtypes(std::vector<DtypeSet> each) {
    input_dtypes = std::move(each);
    return *this;
  }
  OpDef& attrs(std::vector<std::string> names) {
    attr_names = std::move(names);
    return *this;
  }
  OpDef& require(std::vector<std::string> names) {
    required_attrs = std::move(names);
    return *this;
  }
  OpDef& on_cube(CubeClass of_class = CubeClass::None) {
    cube = true;
    cube_class = of_class;
    return *this;
  }
  // 4-D operands that are described as NHWC or HWCN, too: the operator gets them in the dims of NCHW all the same. Of
  // any other operator such a format means nothing, and the dims are taken as they are.
  OpDef& image_formats() {
    takes_image_formats = true;
    return *this;
  }
  OpDef& ai_cpu() {
    on_ai_cpu = true;
    return *this;
  }
  OpDef& costly() {
    costs_more = true;
    return *this;
  }
  OpDef& tiny(TinyFn fn) {
    tiny_fn = fn;
    return *this;
  }
  OpDef& tiny_to_bool(TinyFn fn) {
    tiny_makes_bool = true;
    return tiny(fn);
  }
  OpDef& run(void (*fn)(OpContext&)) {
    run_fn = fn;
    return *this;
  }
};

constexpr int kManyInputs = 1 << 20;  // for dynamic-input operators such as ConcatD and Pack

// Adds an operator; the reference stays valid for the life of the process. A second definition of a type throws.
OpDef& register_op(const char* type);
const OpDef* find_op(std::string_view type);
std::string list_ops();  // see aclsimListOps

#define SIM_OP(TYPE) [[maybe_unused]] static ::acl_sim::OpDef& sim_op_##TYPE = ::acl_sim::register_op(#TYPE)

}  // namespace acl_sim
