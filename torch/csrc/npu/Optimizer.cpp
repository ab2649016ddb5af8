// Whole steps of torch.optim's default forms, see torch/npu/_one_pass.py: in C++ because small networks step often.

#include <ATen/native/npu/frame/command/Missing.h>
#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_fused_adam.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/_fused_sgd.h>
#include <ATen/ops/ones.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/npu/Bindings.h>
#include <torch/csrc/utils/pybind.h>

#include <algorithm>
#include <initializer_list>
#include <vector>

namespace torch::npu {
namespace {

namespace py = pybind11;

using Tensors = std::vector<at::Tensor>;

bool is_plain(const at::Tensor& t) {
  return t.is_privateuseone() && (t.scalar_type() == at::kFloat || t.scalar_type() == at::kDouble) &&
         t.layout() == at::kStrided && t.is_non_overlapping_and_dense();
}

bool lies_as(const at::Tensor& t, const at::Tensor& param) {
  return t.scalar_type() == param.scalar_type() && t.layout() == at::kStrided && t.device() == param.device() &&
         t.sizes() == param.sizes() && t.strides() == param.strides();
}

// The tensors of a list; none where something else is among them.
Tensors unpack(const py::list& list) {
  Tensors tensors;
  tensors.reserve(list.size());
  for (const py::handle object : list) {
    if (!THPVariable_Check(object.ptr())) return {};
    tensors.push_back(THPVariable_Unpack(object.ptr()));
  }
  return tensors;
}

// The lists of a step, if one operator updates them: the first has tensors of no subclass, fp32 or fp64 as all of them,
// of one npu, without holes; those of the others at the same places lie in memory as they do. Else none.
std::vector<Tensors> lists_alike(std::initializer_list<const py::list*> given) {
  std::vector<Tensors> lists;
  for (const py::list* list : given) lists.push_back(unpack(*list));
  const Tensors& params = lists[0];
  const auto exact = [](py::handle object) { return THPVariable_CheckExact(object.ptr()); };
  if (params.empty() || !std::all_of((*given.begin())->begin(), (*given.begin())->end(), exact)) return {};
  for (const Tensors& list : lists) {
    if (list.size() != params.size()) return {};
  }
  for (size_t i = 0; i < params.size(); ++i) {
    const at::Tensor& param = params[i];
    if (!is_plain(param) || param.scalar_type() != params[0].scalar_type() || param.device() != params[0].device())
      return {};
    for (size_t l = 1; l < lists.size(); ++l) {
      if (!lies_as(lists[l][i], param)) return {};
    }
  }
  return lists;
}

// Counts of steps on the host, one more each.
void count_steps(const Tensors& steps) {
  const auto is_number = [](const at::Tensor& t) {
    return t.is_cpu() && t.scalar_type() == at::kFloat && t.numel() == 1 && !t.is_inference() && !t.requires_grad();
  };
  if (std::all_of(steps.begin(), steps.end(), is_number)) {
    for (const at::Tensor& step : steps) {
      *step.mutable_data_ptr<float>() += 1;
      step.unsafeGetTensorImpl()->bump_version();
    }
  } else {
    at::_foreach_add_(steps, at::ones({}), 1);
  }
}

// A step of SGD; false if nothing was done because it does not apply: a first step, whose buffers upstream makes, is
// among that.
bool sgd_step(const py::list& params, const py::list& grads, const py::list& momenta, bool maximize,
              double weight_decay, double momentum, double lr, double dampening, bool nesterov) {
  if (at::native::npu::lacks("FusedSgd")) return false;
  const std::vector<Tensors> lists =
      momentum != 0 ? lists_alike({&params, &grads, &momenta}) : lists_alike({&params, &grads});
  if (lists.empty()) return false;
  const py::gil_scoped_release no_gil;
  at::_fused_sgd_(lists[0], lists[1], momentum != 0 ? at::TensorList(lists[2]) : at::TensorList(), weight_decay,
                  momentum, lr, dampening, nesterov, maximize, /*is_first_step=*/false);
  return true;
}

// A step of Adam, or, if decoupled, of AdamW, with its counts of steps on the host; with maxima it is AMSGrad.
bool adam_step(const py::list& params, const py::list& grads, const py::list& exp_avgs, const py::list& exp_avg_sqs,
               const py::list& max_exp_avg_sqs, const py::list& steps, bool amsgrad, bool decoupled, bool maximize,
               double lr, double beta1, double beta2, double weight_decay, double eps) {
  if (at::native::npu::lacks("FusedAdam")) return false;
  const std::vector<Tensors> lists = amsgrad ? lists_alike({&params, &grads, &exp_avgs, &exp_avg_sqs, &max_exp_avg_sqs})
                                             : lists_alike({&params, &grads, &exp_avgs, &exp_avg_sqs});
  const Tensors counts = unpack(steps);
  if (lists.empty() || counts.size() != lists[0].size()) return false;
  count_steps(counts);
  const py::gil_scoped_release no_gil;
  const at::TensorList maxima = amsgrad ? at::TensorList(lists[4]) : at::TensorList();
  if (decoupled) {
    at::_fused_adamw_(lists[0], lists[1], lists[2], lists[3], maxima, counts, lr, beta1, beta2, weight_decay, eps,
                      amsgrad, maximize);
  } else {
    at::_fused_adam_(lists[0], lists[1], lists[2], lists[3], maxima, counts, lr, beta1, beta2, weight_decay, eps,
                     amsgrad, maximize);
  }
  return true;
}

}  // namespace

void bind_optimizer(py::module_& m) {
  m.def("_npu_sgdStep", torch::wrap_pybind_function(&sgd_step));
  m.def("_npu_adamStep", torch::wrap_pybind_function(&adam_step));
}

}  // namespace torch::npu
