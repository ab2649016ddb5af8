#pragma once
// A function of tensors that is a chain of element-wise operators, and runs as one fused command.
//
// Note [Fused groups]
// torch.compile finds chains in a graph, but not what the operators are on the device: which IR operators, with which
// casts, numbers and layouts. So the first call with operands of certain shapes runs the function as it is while its
// commands are gathered instead of sent. They become one fused command, which later calls with such operands launch
// with other addresses. What cannot become one (Note [Fusing commands]) is sent as it came, and the function runs
// operator by operator from then on.

#include <ATen/core/Tensor.h>
#include <ATen/native/npu/frame/graph/Fusion.h>
#include <c10/util/FunctionRef.h>
#include <c10/util/SmallVector.h>

#include <memory>
#include <mutex>
#include <vector>

namespace at::native::npu::graph {

class FusedGroup {
 public:
  FusedGroup();
  ~FusedGroup();
  FusedGroup(const FusedGroup&) = delete;
  FusedGroup& operator=(const FusedGroup&) = delete;

  // The outputs for these inputs by one command; nothing if they are to be computed by `record`, or by the function.
  bool replay(c10::ArrayRef<Tensor> inputs, std::vector<Tensor>& outputs);
  // Whether `record` is worth its while for inputs that `replay` could not serve.
  bool records(c10::ArrayRef<Tensor> inputs) const;
  // What `function` returns, which is called once.
  std::vector<Tensor> record(c10::ArrayRef<Tensor> inputs, c10::function_ref<std::vector<Tensor>()> function);

  // How many kinds of operands there is a fused command for, and how many there is none for.
  std::pair<size_t, size_t> counts() const;

 private:
  struct Plan;
  using Words = c10::SmallVector<int64_t, 48>;
  // False if the inputs are of a kind that no fused command takes.
  static bool describe(c10::ArrayRef<Tensor> inputs, Words& words);
  std::shared_ptr<const Plan> find(const Words& words) const;
  void keep(std::shared_ptr<const Plan> plan);

  static constexpr size_t kMostPlans = 64;
  mutable std::mutex mutex_;
  std::vector<std::shared_ptr<const Plan>> plans_;
};

}  // namespace at::native::npu::graph
