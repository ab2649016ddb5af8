// Results of upstream's meta kernels, remembered: some are Python functions, which take a hundred times longer than a
// look-up.

#include <ATen/native/npu/frame/registration/AtenOp.h>

#include <ATen/EmptyTensor.h>
#include <ATen/core/stack.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <cstring>
#include <exception>
#include <string>
#include <string_view>
#include <unordered_map>

namespace at::native::npu {
namespace {

constexpr size_t kRemembered = 4096;  // then the table starts anew

Tensor to_meta(const Tensor& t) {
  if (!t.defined()) return t;
  Tensor meta = at::detail::empty_strided_meta(t.sizes(), t.strides(), t.scalar_type());
  if (t.unsafeGetTensorImpl()->is_wrapped_number()) meta.unsafeGetTensorImpl()->set_wrapped_number(true);
  meta._set_conj(t.is_conj());
  meta._set_neg(t.is_neg());
  return meta;
}

c10::IValue to_meta(const c10::IValue& value) {
  if (value.isTensor()) return to_meta(value.toTensor());
  if (value.isTensorList()) {
    c10::List<Tensor> list;
    for (const Tensor& t : value.toTensorVector()) list.push_back(to_meta(t));
    return list;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<Tensor>> list;
    for (const std::optional<Tensor>& t : value.toOptionalTensorVector()) {
      list.push_back(t.has_value() ? std::optional(to_meta(*t)) : std::nullopt);
    }
    return list;
  }
  if (value.isDevice()) return c10::Device(kMeta);
  if (value.isGenerator()) return {};
  return value;
}

// Everything about the arguments that results can depend on.
class Key {
 public:
  explicit Key(const c10::OperatorHandle& op) { number(reinterpret_cast<int64_t>(&op.schema())); }

  void add(const c10::IValue& value) {
    if (value.isTensor()) {
      tensor(value.toTensor());
    } else if (value.isInt()) {
      number('i');
      number(value.toInt());
    } else if (value.isBool()) {
      number(value.toBool() ? 't' : 'f');
    } else if (value.isDouble()) {
      number('d');
      const double d = value.toDouble();
      int64_t bits = 0;
      std::memcpy(&bits, &d, sizeof bits);
      number(bits);
    } else if (value.isString()) {
      number('s');
      number(static_cast<int64_t>(value.toStringRef().size()));
      bytes_ += value.toStringRef();
    } else if (value.isComplexDouble()) {
      const auto z = value.toComplexDouble();
      add(z.real());
      add(z.imag());
    } else if (value.isList()) {
      number('l');
      const auto items = value.toListRef();
      number(static_cast<int64_t>(items.size()));
      for (const c10::IValue& item : items) add(item);
    } else {
      number('n');  // None, a generator or a device: nothing that a shape depends on
    }
  }

  std::string take() { return std::move(bytes_); }

 private:
  void number(int64_t n) { bytes_.append(reinterpret_cast<const char*>(&n), sizeof n); }

  void tensor(const Tensor& t) {
    if (!t.defined()) {
      number('u');
      return;
    }
    number('T' | static_cast<int64_t>(t.scalar_type()) << 8 | t.dim() << 16 |
           static_cast<int64_t>(t.unsafeGetTensorImpl()->is_wrapped_number()) << 32 |
           static_cast<int64_t>(t.is_conj()) << 33 | static_cast<int64_t>(t.is_neg()) << 34);
    for (const int64_t n : t.sizes()) number(n);
    for (const int64_t n : t.strides()) number(n);
  }

  std::string bytes_;
};

OutputSpec spec_of(const Tensor& t) {
  if (!t.defined()) return {};
  const bool plain = t.strides() == c10::contiguous_strides(t.sizes());
  return {t.scalar_type(), DimVector(t.sizes()), plain ? DimVector() : DimVector(t.strides())};
}

// Meta kernels in Python assert what others check.
void call_meta(const c10::OperatorHandle& op, torch::jit::Stack& stack) {
  constexpr std::string_view kAssertion = "AssertionError: ";
  try {
    op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::Meta), &stack);
  } catch (const c10::Error&) {
    throw;
  } catch (const std::exception& error) {
    const std::string_view text = error.what();
    if (text.substr(0, kAssertion.size()) != kAssertion) throw;
    const std::string_view said = text.substr(kAssertion.size());
    TORCH_CHECK(false, said.substr(0, said.find("\n\nAt:")));
  }
}

OutputSpecs ask(const c10::OperatorHandle& op, const c10::IValue* values) {
  torch::jit::Stack stack;
  for (size_t i = 0; i < op.schema().arguments().size(); ++i) stack.push_back(to_meta(values[i]));
  call_meta(op, stack);
  OutputSpecs specs;
  for (const c10::IValue& value : stack) {
    if (value.isTensorList()) {
      for (const Tensor& t : value.toTensorVector()) specs.push_back(spec_of(t));
    } else {
      specs.push_back(value.isTensor() ? spec_of(value.toTensor()) : OutputSpec());
    }
  }
  return specs;
}

}  // namespace

OutputSpecs meta_outputs(const c10::OperatorHandle& op, const c10::IValue* values) {
  Key key(op);
  for (size_t i = 0; i < op.schema().arguments().size(); ++i) key.add(values[i]);
  thread_local std::unordered_map<std::string, OutputSpecs> remembered;
  const std::string bytes = key.take();
  const auto found = remembered.find(bytes);
  if (found != remembered.end()) return found->second;
  OutputSpecs specs = ask(op, values);
  if (remembered.size() >= kRemembered) remembered.clear();
  return remembered.emplace(bytes, std::move(specs)).first->second;
}

}  // namespace at::native::npu
