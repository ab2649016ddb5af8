// The collectives of ProcessGroupHCCL: from upstream's forms (lists of tensors, uneven sizes, all reductions) to
// HCCL's. What lies on the group's stream around a call (copies, divisions) are operators of ours, on that stream.

#include <ATen/ATen.h>
#include <ATen/native/npu/frame/command/FormatCast.h>
#include <acl_loader.h>
#include <c10/npu/NPUFunctions.h>
#include <torch/csrc/distributed/c10d/ProcessGroupHCCL.hpp>

#include <algorithm>
#include <numeric>
#include <utility>

namespace c10d {

namespace acl = c10::npu::acl;

namespace {

using at::Tensor;
using Tensors = std::vector<Tensor>;

// Real, plain memory without gaps: HCCL gets an address and a number of elements. A private format ends here.
Tensor view_of(const Tensor& t) {
  if (at::native::npu::in_private_format(t)) at::native::npu::make_storage_plain(t.storage().unsafeGetStorageImpl());
  return t.is_complex() ? at::view_as_real(t) : t;
}

void check_dense(const Tensor& t, const char* what) {
  TORCH_CHECK_VALUE(t.is_non_overlapping_and_dense(), what,
                    ": hccl needs tensors whose memory has no gaps, but got one "
                    "of shape ",
                    t.sizes(), " with strides ", t.strides(), "; pass tensor.contiguous()");
}

void check_contiguous(const Tensor& t, const char* what) {
  TORCH_CHECK_VALUE(t.is_contiguous(), what, ": hccl needs contiguous tensors, but got one of shape ", t.sizes(),
                    " with strides ", t.strides(), "; pass tensor.contiguous()");
}

const Tensor& only(const Tensors& tensors, const char* what) {
  TORCH_CHECK_VALUE(tensors.size() == 1, what, ": a rank gives one tensor, but got ", tensors.size());
  return tensors[0];
}

void check_same_dtype(const Tensor& a, const Tensor& b, const char* what) {
  TORCH_CHECK_TYPE(a.scalar_type() == b.scalar_type(), what, ": tensors must have one dtype, but got ", a.scalar_type(),
                   " and ", b.scalar_type());
}

struct Memory {
  void* data;
  uint64_t count;
  HcclDataType type;
};

Memory memory_of(const Tensor& t) {
  const HCCLElements e = hccl_elements(t.scalar_type());
  return {t.data_ptr(), static_cast<uint64_t>(t.numel()) * e.per_element, e.type};
}

void check_reduction(const ReduceOp& op, const Tensor& t) {
  TORCH_CHECK_VALUE(
      !t.is_complex() || isComplexViewAsRealAllowed(op),
      "hccl does not reduce complex tensors with this ReduceOp: only sums and means are the same for both "
      "parts");
  hccl_reduction(op, t.is_complex() ? c10::toRealValueType(t.scalar_type()) : t.scalar_type());
}

// Calls launch(input, output, reduction) with what HCCL shall see, and does what HCCL has no reduction for around it.
template <class F>
void reduced(const ReduceOp& op, int size, const Tensor& input, const Tensor& output, F&& launch) {
  const auto dtype = input.scalar_type();
  const HcclReduceOp reduction = hccl_reduction(op, dtype);
  if (op == ReduceOp::PREMUL_SUM) {
    const auto* factor = dynamic_cast<PreMulSumSupplement*>(op.supplement_.get());
    TORCH_CHECK_VALUE(factor, "PREMUL_SUM without a factor");
    const Tensor scaled = factor->tensor_factor.defined() ? input.mul(factor->tensor_factor.to(input.options()))
                                                          : input.mul(factor->double_factor);
    return launch(scaled.to(dtype), output, reduction);
  }
  if (op != ReduceOp::AVG) return launch(input, output, reduction);
  if (dtype == at::kHalf || dtype == at::kBFloat16) {
    // The sum may be out of the type's range where the mean is not.
    const Tensor wide = input.to(at::kFloat);
    const Tensor mean = at::empty_like(output, at::kFloat);
    launch(wide, mean, reduction);
    output.copy_(mean.div_(size));
  } else {
    launch(input, output, reduction);
    c10::isFloatingType(dtype) ? output.div_(size) : output.div_(size, "trunc");
  }
}

struct Splits {
  std::vector<uint64_t> counts, places;  // by rank, in HCCL's elements
};

// Splits of the first dimension; none means even ones.
Splits splits_of(const Tensor& t, const std::vector<int64_t>& sizes, int ranks, const char* what) {
  Splits splits;
  const int64_t rows = t.dim() == 0 ? 1 : t.size(0);
  const auto per_row =
      static_cast<uint64_t>(rows == 0 ? 0 : t.numel() / rows) * hccl_elements(t.scalar_type()).per_element;
  if (sizes.empty()) {
    TORCH_CHECK_VALUE(rows % ranks == 0, what, ": a first dimension of ", rows, " is not divisible by ", ranks,
                      " ranks");
  } else {
    TORCH_CHECK_VALUE(static_cast<int>(sizes.size()) == ranks, what, ": got ", sizes.size(), " split sizes for ", ranks,
                      " ranks");
    TORCH_CHECK_VALUE(std::all_of(sizes.begin(), sizes.end(), [](int64_t size) { return size >= 0; }), what,
                      ": split sizes must not be negative");
    const int64_t sum = std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
    TORCH_CHECK_VALUE(sum == rows, what, ": split sizes ", sizes, " add up to ", sum, ", the first dimension is ",
                      rows);
  }
  uint64_t at = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    const auto size = static_cast<uint64_t>(sizes.empty() ? rows / ranks : sizes[static_cast<size_t>(rank)]);
    splits.counts.push_back(size * per_row);
    splits.places.push_back(at);
    at += size * per_row;
  }
  return splits;
}

// The same for a list of tensors that lie one behind the other.
Splits splits_of(const Tensors& tensors) {
  Splits splits;
  uint64_t at = 0;
  for (const Tensor& t : tensors) {
    splits.counts.push_back(static_cast<uint64_t>(t.numel()) * hccl_elements(t.scalar_type()).per_element);
    splits.places.push_back(at);
    at += splits.counts.back();
  }
  return splits;
}

void all_to_all_v(HCCLChannel& channel, const Tensor& send, Splits sent, const Tensor& recv, Splits received) {
  channel.call("HcclAlltoAllV", [from = memory_of(send), to = memory_of(recv), sent = std::move(sent),
                                 received = std::move(received)](HcclComm comm, aclrtStream stream) {
    return acl::HcclAlltoAllV(from.data, sent.counts.data(), sent.places.data(), from.type, to.data,
                              received.counts.data(), received.places.data(), to.type, comm, stream);
  });
}

// One tensor that holds those of the list one behind the other; their content, too, if `filled`.
Tensor flat(const Tensors& tensors, bool filled) {
  int64_t elements = 0;
  for (const Tensor& t : tensors) elements += t.numel();
  const Tensor whole = at::empty({elements}, tensors[0].options().memory_format(std::nullopt));
  if (!filled) return whole;
  int64_t at = 0;
  for (const Tensor& t : tensors) {
    if (t.numel() > 0) whole.narrow(0, at, t.numel()).view(t.sizes()).copy_(t);
    at += t.numel();
  }
  return whole;
}

void spread(const Tensor& whole, const Tensors& tensors) {
  int64_t at = 0;
  for (const Tensor& t : tensors) {
    if (t.numel() > 0) t.copy_(whole.narrow(0, at, t.numel()).view(t.sizes()));
    at += t.numel();
  }
}

bool even(const Tensors& tensors) {
  return std::all_of(tensors.begin(), tensors.end(), [&](const Tensor& t) { return t.numel() == tensors[0].numel(); });
}

Tensors views_of(const Tensors& tensors) {
  Tensors views;
  for (const Tensor& t : tensors) views.push_back(view_of(t));
  return views;
}

void check_list(const Tensors& list, const Tensor& one, int ranks, const char* what) {
  TORCH_CHECK_VALUE(static_cast<int>(list.size()) == ranks, what, ": the list must have one tensor for each of the ",
                    ranks, " ranks, but has ", list.size());
  for (const Tensor& t : list) check_same_dtype(one, t, what);
}

void all_gather(HCCLChannel& channel, const Tensor& input, const Tensor& output) {
  channel.call("HcclAllGather", [from = memory_of(input), to = output.data_ptr()](HcclComm comm, aclrtStream stream) {
    return acl::HcclAllGather(from.data, to, from.count, from.type, comm, stream);
  });
}

void all_reduce(HCCLChannel& channel, const ReduceOp& op, int size, const Tensor& tensor) {
  reduced(op, size, tensor, tensor, [&](const Tensor& in, const Tensor& out, HcclReduceOp reduction) {
    channel.call("HcclAllReduce",
                 [from = memory_of(in), to = out.data_ptr(), reduction](HcclComm comm, aclrtStream stream) {
                   return acl::HcclAllReduce(from.data, to, from.count, from.type, reduction, comm, stream);
                 });
  });
}

void reduce_and_scatter(HCCLChannel& channel, const ReduceOp& op, int size, const Tensor& input, const Tensor& output) {
  reduced(op, size, input, output, [&](const Tensor& in, const Tensor& out, HcclReduceOp reduction) {
    channel.call("HcclReduceScatter",
                 [from = in.data_ptr(), to = memory_of(out), reduction](HcclComm comm, aclrtStream stream) {
                   return acl::HcclReduceScatter(from, to.data, to.count, to.type, reduction, comm, stream);
                 });
  });
}

const char* op_name(const ReduceOp& op) {
  static const char* const names[] = {"sum", "avg", "product", "min", "max", "band", "bor", "bxor", "premul_sum"};
  return names[static_cast<size_t>(op.op_)];
}

}  // namespace

c10::intrusive_ptr<Work> ProcessGroupHCCL::broadcast(Tensors& tensors, const BroadcastOptions& options) {
  const Tensor& tensor = only(tensors, "broadcast");
  check_dense(tensor, "broadcast");
  const auto root = static_cast<uint32_t>(options.rootRank + options.rootTensor);
  Launch launch{OpType::BROADCAST, "hccl:broadcast", tensors, tensors, options};
  launch.more = "root " + std::to_string(root);
  launch.body = [tensor, root](HCCLChannel& channel) {
    channel.call("HcclBroadcast", [m = memory_of(view_of(tensor)), root](HcclComm comm, aclrtStream stream) {
      return acl::HcclBroadcast(m.data, m.count, m.type, root, comm, stream);
    });
  };
  return run(std::move(launch));
}

c10::intrusive_ptr<Work> ProcessGroupHCCL::allreduce(Tensors& tensors, const AllreduceOptions& options) {
  only(tensors, "all_reduce");
  AllreduceCoalescedOptions same;
  static_cast<AllreduceOptions&>(same) = options;
  return allreduce_coalesced(tensors, same);
}

c10::intrusive_ptr<Work> ProcessGroupHCCL::allreduce_coalesced(Tensors& tensors,
                                                               const AllreduceCoalescedOptions& options) {
  for (const Tensor& t : tensors) {
    check_dense(t, "all_reduce");
    check_reduction(options.reduceOp, t);
  }
  const bool one = tensors.size() == 1;
  Launch launch{one ? OpType::ALLREDUCE : OpType::ALLREDUCE_COALESCED,
                one ? "hccl:all_reduce" : "hccl:allreduce_coalesced", tensors, tensors, options};
  launch.more = op_name(options.reduceOp);
  launch.body = [this, tensors, op = options.reduceOp](HCCLChannel& channel) {
    for (const Tensor& t : tensors) all_reduce(channel, op, size_, view_of(t));
  };
  return run(std::move(launch));
}

c10::intrusive_ptr<Work> ProcessGroupHCCL::reduce(Tensors& tensors, const ReduceOptions& options) {
  const Tensor& tensor = only(tensors, "reduce");
  check_dense(tensor, "reduce");
  check_reduction(options.reduceOp, tensor);
  const auto root = static_cast<uint32_t>(options.rootRank + options.rootTensor);
  Launch launch{OpType::REDUCE, "hccl:reduce", tensors, tensors, options};
  launch.more = std::string(op_name(options.reduceOp)) + ", root " + std::to_string(root);
  launch.body = [this, tensor, root, op = options.reduceOp](HCCLChannel& channel) {
    const Tensor data = view_of(tensor);
    // Other ranks' tensors keep their content, so a mean's division has another tensor to write to.
    const Tensor result = static_cast<int>(root) == rank_ ? data : at::empty_like(data);
    reduced(op, size_, data, result, [&](const Tensor& in, const Tensor& out, HcclReduceOp reduction) {
      channel.call("HcclReduce",
                   [from = memory_of(in), to = out.data_ptr(), reduction, root](HcclComm comm, aclrtStream stream) {
                     return acl::HcclReduce(from.data, to, from.count, from.type, reduction, root, comm, stream);
                   });
    });
  };
  return run(std::move(launch));
}

c10::intrusive_ptr<Work> ProcessGroupHCCL::allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                                                     const AllgatherOptions& options) {
  const Tensor& input = only(inputs, "all_gather");
  TORCH_CHECK_VALUE(outputs.size() == 1, "all_gather: a rank gives one list of outputs, but got ", outputs.size());
  check_list(outputs[0], input, size_, "all_gather");
  TORCH_CHECK_VALUE(outputs[0][static_cast<size_t>(rank_)].numel() == input.numel(), "all_gather: output ", rank_,
                    " has ", outputs[0][static_cast<size_t>(rank_)].numel(), " elements, this rank's input ",
                    input.numel());
  Launch launch{OpType::ALLGATHER, "hccl:all_gather", inputs, outputs[0], options};
  launch.body = [this, input, list = outputs[0]](HCCLChannel& channel) {
    const Tensors views = views_of(list);
    const Tensor from = view_of(input).contiguous(), whole = flat(views, false);
    if (even(views)) {
      all_gather(channel, from, whole);
    } else {
      // Everybody gets all of this rank's tensor.
      Splits same;
      same.counts.assign(static_cast<size_t>(size_), memory_of(from).count);
      same.places.assign(static_cast<size_t>(size_), 0);
      all_to_all_v(channel, from, std::move(same), whole, splits_of(views));
    }
    spread(whole, views);
  };
  return run(std::move(launch));
}

c10::intrusive_ptr<Work> ProcessGroupHCCL::_allgather_base(Tensor& output, Tensor& input,
                                                           const AllgatherOptions& options) {
  Tensors outputs{output}, inputs{input};
  return allgather_into_tensor_coalesced(outputs, inputs, options);
}

c10::intrusive_ptr<Work> ProcessGroupHCCL::allgather_coalesced(std::vector<Tensors>& outputs, Tensors& inputs,
                                                               const AllgatherOptions& options) {
  TORCH_CHECK_VALUE(!inputs.empty() && static_cast<int>(outputs.size()) == size_,
                    "all_gather_coalesced: expected one list of outputs for each of the ", size_, " ranks");
  c10::intrusive_ptr<Work> last;
  Tensors all;
  for (size_t i = 0; i < inputs.size(); ++i) {
    std::vector<Tensors> list(1);
    Tensors input{inputs[i]};
    for (const Tensors& of_rank : outputs) {
      TORCH_CHECK_VALUE(of_rank.size() == inputs.size(), "all_gather_coalesced: expected ", inputs.size(),
                        " outputs of each rank, but got ", of_rank.size());
      list[0].push_back(of_rank[i]);
    }
    last = allgather(list, input, options);
  }
  return last;
}

c10::intrusive_ptr<Work> ProcessGroupHCCL::allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                                           const AllgatherOptions& options) {
  TORCH_CHECK_VALUE(outputs.size() == inputs.size() && !inputs.empty(), "all_gather_into_tensor: got ", outputs.size(),
                    " outputs for ", inputs.size(), " inputs");
  for (size_t i = 0; i < inputs.size(); ++i) {
    check_contiguous(outputs[i], "all_gather_into_tensor");
    check_contiguous(inputs[i], "all_gather_into_tensor");
    check_same_dtype(outputs[i], inputs[i], "all_gather_into_tensor");
    TORCH_CHECK_VALUE(outputs[i].numel() == inputs[i].numel() * size_, "all_gather_into_tensor: the output must be ",
                      size_, " times the input of ", inputs[i].numel(), " elements, but has ", outputs[i].numel());
  }
  Launch launch{OpType::_ALLGATHER_BASE, "hccl:_all_gather_base", inputs, outputs, options};
  launch.body = [inputs, outputs](HCCLChannel& channel) {
    for (size_t i = 0; i < inputs.size(); ++i) all_gather(channel, view_of(inputs[i]), view_of(outputs[i]));
  };
  return run(std::move(launch));
}

c10::intrusive_ptr<Work> ProcessGroupHCCL::gather(std::vector<Tensors>& outputs, Tensors& inputs,
                                                  const GatherOptions& options) {
  const Tensor& input = only(inputs, "gather");
  const auto root = options.rootRank;
  TORCH_CHECK_VALUE(root >= 0 && root < size_, "gather: the root ", root, " is out of range for ", size_, " ranks");
  const bool here = root == rank_;
  if (here) {
    TORCH_CHECK_VALUE(outputs.size() == 1, "gather: the root gives one list of outputs, but got ", outputs.size());
    check_list(outputs[0], input, size_, "gather");
  } else {
    TORCH_CHECK_VALUE(outputs.empty(), "gather: only the root gives outputs");
  }
  Launch launch{OpType::GATHER, "hccl:gather", inputs, here ? outputs[0] : Tensors{}, options};
  launch.more = "root " + std::to_string(root);
  launch.body = [this, input, root, here, list = here ? outputs[0] : Tensors{}](HCCLChannel& channel) {
    const Tensor from = view_of(input).contiguous();
    const Tensors views = views_of(list);
    const Tensor whole = here ? flat(views, false) : from.new_empty({1});
    Splits sent, received;
    sent.counts.assign(static_cast<size_t>(size_), 0);
    sent.places = sent.counts;
    received = sent;
    sent.counts[static_cast<size_t>(root)] = memory_of(from).count;
    all_to_all_v(channel, from, std::move(sent), whole, here ? splits_of(views) : received);
    if (here) spread(whole, views);
  };
  return run(std::move(launch));
}

c10::intrusive_ptr<Work> ProcessGroupHCCL::scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                                   const ScatterOptions& options) {
  const Tensor& output = only(outputs, "scatter");
  const auto root = options.rootRank;
  TORCH_CHECK_VALUE(root >= 0 && root < size_, "scatter: the root ", root, " is out of range for ", size_, " ranks");
  const bool here = root == rank_;
  if (here) {
    TORCH_CHECK_VALUE(inputs.size() == 1, "scatter: the root gives one list of inputs, but got ", inputs.size());
    check_list(inputs[0], output, size_, "scatter");
    for (const Tensor& t : inputs[0]) {
      TORCH_CHECK_VALUE(t.numel() == output.numel(), "scatter: the inputs must have the size of the output, ",
                        output.sizes(), ", but one has ", t.sizes());
    }
  } else {
    TORCH_CHECK_VALUE(inputs.empty(), "scatter: only the root gives inputs");
  }
  Launch launch{OpType::SCATTER, "hccl:scatter", here ? inputs[0] : Tensors{}, outputs, options};
  launch.more = "root " + std::to_string(root);
  launch.body = [output, root, here, list = here ? inputs[0] : Tensors{}](HCCLChannel& channel) {
    const Tensor to = view_of(output), place = to.is_contiguous() ? to : at::empty(to.sizes(), to.options());
    const Tensor whole = here ? flat(views_of(list), true) : Tensor();
    channel.call("HcclScatter", [from = here ? whole.data_ptr() : nullptr, m = memory_of(place), root](
                                    HcclComm comm, aclrtStream stream) {
      return acl::HcclScatter(from, m.data, m.count, m.type, static_cast<uint32_t>(root), comm, stream);
    });
    if (!place.is_same(to)) to.copy_(place);
  };
  return run(std::move(launch));
}

c10::intrusive_ptr<Work> ProcessGroupHCCL::reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                                          const ReduceScatterOptions& options) {
  const Tensor& output = only(outputs, "reduce_scatter");
  TORCH_CHECK_VALUE(inputs.size() == 1, "reduce_scatter: a rank gives one list of inputs, but got ", inputs.size());
  check_list(inputs[0], output, size_, "reduce_scatter");
  check_reduction(options.reduceOp, output);
  const auto own = static_cast<size_t>(rank_);
  TORCH_CHECK_VALUE(inputs[0][own].numel() == output.numel(), "reduce_scatter: input ", rank_, " has ",
                    inputs[0][own].numel(), " elements, the output ", output.numel());
  Launch launch{OpType::REDUCE_SCATTER, "hccl:reduce_scatter", inputs[0], outputs, options};
  launch.more = op_name(options.reduceOp);
  launch.body = [this, output, own, op = options.reduceOp, list = inputs[0]](HCCLChannel& channel) {
    const Tensors views = views_of(list);
    const Tensor to = view_of(output);
    if (even(views)) {
      const Tensor place = to.is_contiguous() ? to : at::empty(to.sizes(), to.options());
      reduce_and_scatter(channel, op, size_, flat(views, true), place);
      if (!place.is_same(to)) to.copy_(place);
      return;
    }
    // Pieces of different sizes: all of them are reduced everywhere, and each rank takes its own.
    const Tensor whole = flat(views, true);
    all_reduce(channel, op, size_, whole);
    int64_t at = 0;
    for (size_t rank = 0; rank < own; ++rank) at += views[rank].numel();
    if (to.numel() > 0) to.copy_(whole.narrow(0, at, to.numel()).view(to.sizes()));
  };
  return run(std::move(launch));
}

c10::intrusive_ptr<Work> ProcessGroupHCCL::_reduce_scatter_base(Tensor& output, Tensor& input,
                                                                const ReduceScatterOptions& options) {
  Tensors outputs{output}, inputs{input};
  return reduce_scatter_tensor_coalesced(outputs, inputs, options);
}

c10::intrusive_ptr<Work> ProcessGroupHCCL::reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                                           const ReduceScatterOptions& options) {
  TORCH_CHECK_VALUE(outputs.size() == inputs.size() && !inputs.empty(), "reduce_scatter_tensor: got ", outputs.size(),
                    " outputs for ", inputs.size(), " inputs");
  for (size_t i = 0; i < inputs.size(); ++i) {
    check_contiguous(outputs[i], "reduce_scatter_tensor");
    check_contiguous(inputs[i], "reduce_scatter_tensor");
    check_same_dtype(outputs[i], inputs[i], "reduce_scatter_tensor");
    check_reduction(options.reduceOp, inputs[i]);
    TORCH_CHECK_VALUE(inputs[i].numel() == outputs[i].numel() * size_, "reduce_scatter_tensor: the input must be ",
                      size_, " times the output of ", outputs[i].numel(), " elements, but has ", inputs[i].numel());
  }
  Launch launch{OpType::_REDUCE_SCATTER_BASE, "hccl:_reduce_scatter_base", inputs, outputs, options};
  launch.more = op_name(options.reduceOp);
  launch.body = [this, inputs, outputs, op = options.reduceOp](HCCLChannel& channel) {
    for (size_t i = 0; i < inputs.size(); ++i)
      reduce_and_scatter(channel, op, size_, view_of(inputs[i]), view_of(outputs[i]));
  };
  return run(std::move(launch));
}

c10::intrusive_ptr<Work> ProcessGroupHCCL::alltoall_base(Tensor& output, Tensor& input,
                                                         std::vector<int64_t>& output_sizes,
                                                         std::vector<int64_t>& input_sizes,
                                                         const AllToAllOptions& options) {
  check_contiguous(output, "all_to_all_single");
  check_contiguous(input, "all_to_all_single");
  check_same_dtype(output, input, "all_to_all_single");
  const Tensor to = view_of(output), from = view_of(input);
  Splits sent = splits_of(from, input_sizes, size_, "all_to_all_single input");
  Splits received = splits_of(to, output_sizes, size_, "all_to_all_single output");
  const bool uniform = input_sizes.empty() && output_sizes.empty();
  if (uniform) {
    TORCH_CHECK_VALUE(from.numel() == to.numel(), "all_to_all_single: input and output must have one size, but have ",
                      input.sizes(), " and ", output.sizes());
  }
  Launch launch{OpType::ALLTOALL_BASE, "hccl:all_to_all", {input}, {output}, options};
  launch.body = [this, from, to, sent, received, uniform](HCCLChannel& channel) {
    const Tensor source = from.storage().is_alias_of(to.storage()) ? from.clone() : from;
    if (!uniform) return all_to_all_v(channel, source, sent, to, received);
    channel.call("HcclAlltoAll", [a = memory_of(source), b = memory_of(to), n = static_cast<uint64_t>(size_)](
                                     HcclComm comm, aclrtStream stream) {
      return acl::HcclAlltoAll(a.data, a.count / n, a.type, b.data, b.count / n, b.type, comm, stream);
    });
  };
  return run(std::move(launch));
}

c10::intrusive_ptr<Work> ProcessGroupHCCL::alltoall(Tensors& outputs, Tensors& inputs, const AllToAllOptions& options) {
  TORCH_CHECK_VALUE(!inputs.empty(), "all_to_all: the lists are empty");
  check_list(inputs, inputs[0], size_, "all_to_all input");
  check_list(outputs, inputs[0], size_, "all_to_all output");
  Launch launch{OpType::ALLTOALL, "hccl:all_to_all", inputs, outputs, options};
  launch.body = [inputs, outputs](HCCLChannel& channel) {
    const Tensors from = views_of(inputs), to = views_of(outputs);
    const Tensor whole = flat(to, false);
    all_to_all_v(channel, flat(from, true), splits_of(from), whole, splits_of(to));
    spread(whole, to);
  };
  return run(std::move(launch));
}

c10::intrusive_ptr<Work> ProcessGroupHCCL::point_to_point(Tensors& tensors, int peer, int tag, bool sends) {
  const char* what = sends ? "send" : "recv";
  const Tensor& tensor = only(tensors, what);
  check_dense(tensor, what);
  TORCH_CHECK_VALUE(peer >= 0 && peer < size_, what, ": rank ", peer, " is out of range for ", size_, " ranks");
  TORCH_CHECK_VALUE(peer != rank_ || batch_.active, what, ": rank ", rank_, " cannot ",
                    sends ? "send to" : "receive from", " itself outside of a batch");
  TORCH_CHECK_VALUE(tensor.device().is_privateuseone(), "hccl works on npu tensors, but got one on ", tensor.device());
  if (batch_.active) {
    const Memory m = memory_of(view_of(tensor));
    batch_.items.push_back({sends ? HCCL_SEND : HCCL_RECV, m.data, m.count, m.type, static_cast<uint32_t>(peer)});
    (sends ? batch_.sent : batch_.received).push_back(tensor);
    return c10::intrusive_ptr<Work>();
  }
  Launch launch{sends ? OpType::SEND : OpType::RECV, "", sends ? tensors : Tensors{}, sends ? Tensors{} : tensors};
  // Upstream's names, from which torchfrtrace reads who talks to whom.
  const std::string title =
      sends ? c10::str("hccl:send ", rank_, "->", peer) : c10::str("hccl:recv ", rank_, "<-", peer);
  launch.title = title.c_str();
  launch.more = c10::str(sends ? "to rank " : "from rank ", peer, ", tag ", tag);
  launch.message = true;
  launch.channel = pair_channel(tensor.device(), peer, sends);
  launch.body = [tensor, sends](HCCLChannel& channel) {
    const uint32_t other = channel.rank() == 0 ? 1 : 0;
    channel.call(sends ? "HcclSend" : "HcclRecv",
                 [m = memory_of(view_of(tensor)), other, sends](HcclComm comm, aclrtStream stream) {
                   return sends ? acl::HcclSend(m.data, m.count, m.type, other, comm, stream)
                                : acl::HcclRecv(m.data, m.count, m.type, other, comm, stream);
                 });
  };
  return run(std::move(launch));
}

c10::intrusive_ptr<Work> ProcessGroupHCCL::send(Tensors& tensors, int destination, int tag) {
  return point_to_point(tensors, destination, tag, true);
}

c10::intrusive_ptr<Work> ProcessGroupHCCL::recv(Tensors& tensors, int source, int tag) {
  return point_to_point(tensors, source, tag, false);
}

c10::intrusive_ptr<Work> ProcessGroupHCCL::recvAnysource(Tensors&, int) {
  TORCH_CHECK_NOT_IMPLEMENTED(false,
                              "hccl cannot receive from any source: give torch.distributed.recv the rank (src=)");
}

c10::intrusive_ptr<Work> ProcessGroupHCCL::barrier(const BarrierOptions& options) {
  c10::Device device(c10::kPrivateUse1, c10::npu::current_device());
  if (options.device.has_value()) {
    device = *options.device;
  } else if (!options.device_ids.empty()) {
    device = c10::Device(c10::kPrivateUse1, static_cast<c10::DeviceIndex>(options.device_ids[0]));
  } else if (device_.has_value()) {
    device = *device_;
  } else if (bound_device_id_.has_value()) {
    device = *bound_device_id_;
  }
  if (!device.is_privateuseone() || !device.has_index())
    device = device_.value_or(c10::Device(c10::kPrivateUse1, c10::npu::current_device()));
  Tensors tensors{at::zeros({1}, at::TensorOptions().device(device).dtype(at::kFloat))};
  Launch launch{OpType::BARRIER, "hccl:barrier", tensors, tensors, options};
  launch.body = [this, tensors](HCCLChannel& channel) {
    static const bool there = acl::has_function("HcclBarrier");
    if (!there) return all_reduce(channel, ReduceOp::SUM, size_, tensors[0]);
    channel.call("HcclBarrier", [](HcclComm comm, aclrtStream stream) { return acl::HcclBarrier(comm, stream); });
  };
  auto work = run(std::move(launch));
  work->host_waits_ = true;
  return work;
}

}  // namespace c10d
