// npu_grouped_matmul: products with one weight for each group of rows, as mixtures of experts need them. The groups'
// sizes are on the device, and nobody waits for them.

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/native/npu/frame/command/DeviceOf.h>
#include <ATen/native/npu/frame/command/OpCommand.h>
#include <ATen/native/npu/frame/inference/NewLike.h>
#include <ATen/native/npu/frame/inference/Wide.h>
#include <ATen/native/npu/frame/registration/CustomAutograd.h>

namespace at::native::npu {
namespace {

constexpr int64_t kRows = 0, kInner = 2;  // CANN's numbers of the axis that is grouped: m, k

bool given(const std::optional<TensorList>& list) { return list.has_value() && !list->empty(); }

// The part of npu_grouped_matmul's arguments that both overloads have.
struct Grouped {
  TensorList x, weight;
  std::optional<TensorList> bias;
  int64_t split_item;

  bool one_result() const { return split_item == 2 || split_item == 3; }
  // The bias of group i, or an undefined tensor.
  Tensor bias_of(size_t i) const {
    if (!given(bias)) return {};
    return bias->size() == 1 && weight.size() != 1 ? (*bias)[0].select(0, static_cast<int64_t>(i)) : (*bias)[i];
  }
  std::vector<Tensor> results(std::vector<Tensor> each) const {
    return one_result() ? std::vector<Tensor>{at::cat(each, 0)} : std::move(each);
  }
};

Tensor with_bias(const Tensor& y, const Tensor& bias) { return bias.defined() ? (y + bias).to(y.scalar_type()) : y; }

// One product each.
std::vector<Tensor> separate(const Grouped& g, TensorList x) {
  TORCH_CHECK(x.size() == g.weight.size(), "npu_grouped_matmul: as many weights as groups expected, got ",
              g.weight.size(), " weights for ", x.size(), " groups");
  const NoAutocast guard;
  std::vector<Tensor> each;
  for (size_t i = 0; i < x.size(); ++i) each.push_back(with_bias(at::matmul(x[i], g.weight[i]), g.bias_of(i)));
  return g.results(std::move(each));
}

// The weights as one tensor (groups, k, n).
Tensor stacked(TensorList weight) {
  if (weight.size() == 1 && weight[0].dim() == 3) return weight[0];
  return at::stack(weight, 0);
}

void refuse_quantised(std::initializer_list<std::pair<const char*, bool>> arguments) {
  for (const auto& [name, present] : arguments) {
    TORCH_CHECK_NOT_IMPLEMENTED(!present, "npu_grouped_matmul: ", name,
                                " belongs to products of quantised tensors, which are not supported");
  }
}

Grouped read_grouped(TensorList x, TensorList weight, const std::optional<TensorList>& bias,
                     std::optional<int64_t> split_item, std::optional<int64_t> act_type) {
  TORCH_CHECK(!x.empty() && !weight.empty(), "npu_grouped_matmul: x and weight must not be empty lists");
  TORCH_CHECK_NOT_IMPLEMENTED(act_type.value_or(0) == 0, "npu_grouped_matmul: act_type ", act_type.value_or(0),
                              " belongs to products of quantised tensors, which are not supported");
  for (const TensorList list : {x, weight}) {
    for (const Tensor& t : list) {
      TORCH_CHECK_NOT_IMPLEMENTED(at::isFloatingType(t.scalar_type()), "\"npu_grouped_matmul\" not implemented for '",
                                  toString(t.scalar_type()), "'");
    }
  }
  const int64_t split = split_item.value_or(0);
  TORCH_CHECK(split >= 0 && split <= 3,
              "npu_grouped_matmul: split_item is 0 or 1 (one result for each weight), or 2 "
              "or 3 (one result), got ",
              split);
  return {x, weight, bias, split};
}

std::vector<Tensor> in_dtype(std::vector<Tensor> results, std::optional<ScalarType> dtype) {
  if (dtype.has_value()) {
    for (Tensor& t : results) t = t.to(*dtype);
  }
  return results;
}

// The end of each group.
Tensor ends_of(const Tensor& group_list, int64_t type) {
  TORCH_CHECK_NOT_IMPLEMENTED(type == 0 || type == 1, "npu_grouped_matmul: group_list_type ", type,
                              " belongs to products of quantised tensors; 0 (ends) and 1 (sizes) are supported");
  TORCH_CHECK(group_list.dim() == 1, "npu_grouped_matmul: group_list must have one dimension, but is ",
              group_list.sizes());
  const Tensor list = group_list.to(kLong);
  return type == 1 ? list.cumsum(0) : list;
}

// Adds to each row the bias of its group; rows after the last group have none.
Tensor with_group_bias(const Tensor& y, const Grouped& g, const Tensor& ends) {
  if (!given(g.bias)) return y;
  const Tensor bias = (*g.bias)[0].dim() == 2 ? (*g.bias)[0] : at::stack(*g.bias, 0);
  const Tensor padded = at::cat({bias, at::zeros({1, bias.size(1)}, bias.options())}, 0);
  const Tensor group = at::searchsorted(ends, at::arange(y.size(0), ends.options()), /*out_int32=*/false,
                                        /*right=*/true);
  return with_bias(y, padded.index_select(0, group));
}

Tensor product(const Tensor& x, const Tensor& weight, const Tensor& ends, int64_t group_type) {
  return NPU_CUSTOM_OP(npu_grouped_product, "_npu_grouped_product", "").call(x, weight, ends, group_type);
}

struct GroupedProduct : Function<GroupedProduct> {
  static Tensor forward(AutogradContext* ctx, const Tensor& x, const Tensor& weight, const Tensor& ends,
                        int64_t group_type) {
    const at::AutoDispatchBelowADInplaceOrView below;
    ctx->save_for_backward({x, weight, ends});
    ctx->saved_data["group_type"] = group_type;
    return product(x, weight, ends, group_type);
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const auto saved = ctx->get_saved_variables();
    const Tensor &x = saved[0], &weight = saved[1], &ends = saved[2], &dy = grads[0];
    Tensor dx, dweight;
    if (ctx->saved_data["group_type"].toInt() == kRows) {
      if (ctx->needs_input_grad(0)) dx = product(dy, weight.transpose(1, 2), ends, kRows);
      if (ctx->needs_input_grad(1)) dweight = product(x.t(), dy, ends, kInner);
    } else {
      if (ctx->needs_input_grad(0)) dx = product(weight, dy.transpose(1, 2), ends, kRows).t();
      if (ctx->needs_input_grad(1)) dweight = product(x.t(), dy, ends, kRows);
    }
    return {dx, dweight, {}, {}};
  }
};

}  // namespace

// x (m, k), weight (groups, k, n), ends of the groups of rows: (m, n); rows after the last group are zero.
// Or, with groups of k: x (m, k), weight (k, n): (groups, m, n).
Tensor npu_grouped_product(const Tensor& x, const Tensor& weight, const Tensor& ends, int64_t group_type) {
  DeviceOf guard(x);
  const bool rows = group_type == kRows;
  TORCH_CHECK(rows || group_type == kInner,
              "npu_grouped_matmul: group_type is -1 (no groups), 0 (groups of m) or 2 "
              "(groups of k), got ",
              group_type);
  TORCH_CHECK(x.dim() == 2 && weight.dim() == (rows ? 3 : 2) && ends.dim() == 1 &&
                  x.size(1) == weight.size(rows ? 1 : 0) && (!rows || ends.size(0) == weight.size(0)),
              "npu_grouped_matmul: with group_type ", group_type, " x is (m, k), weight is ",
              rows ? "(groups, k, n)" : "(k, n)", " and group_list is (groups), but they are ", x.sizes(), ", ",
              weight.sizes(), " and ", ends.sizes());
  TORCH_CHECK(x.scalar_type() == weight.scalar_type(),
              "npu_grouped_matmul: x and weight must have one dtype, but have ", x.scalar_type(), " and ",
              weight.scalar_type());
  const int64_t m = x.size(0), n = weight.size(-1);
  const Tensor y = rows ? new_like(x, {m, n}) : new_like(x, {ends.size(0), m, n});
  if (y.is_meta() || elements(y) == 0) return y;
  OpCommand cmd;
  cmd.Name("GroupedMatmul").Input(rows ? x : x.t()).Input(weight);
  for (int absent = 0; absent < 5; ++absent) cmd.Input();  // bias, scale, offset, antiquant_scale, antiquant_offset
  cmd.Input(ends).Output(y).Attr("split_item", 3).Attr("transpose_x", !rows).Attr("group_type", group_type).Run();
  return y;
}

Tensor npu_grouped_product_autograd(const Tensor& x, const Tensor& weight, const Tensor& ends, int64_t group_type) {
  return GroupedProduct::apply(x, weight, ends, group_type);
}

std::vector<Tensor> npu_grouped_matmul(
    TensorList x, TensorList weight, std::optional<TensorList> bias, std::optional<TensorList> scale,
    std::optional<TensorList> offset, std::optional<TensorList> antiquant_scale,
    std::optional<TensorList> antiquant_offset, std::optional<TensorList> per_token_scale,
    const std::optional<Tensor>& group_list, std::optional<TensorList> activation_input,
    std::optional<TensorList> activation_quant_scale, std::optional<TensorList> activation_quant_offset,
    std::optional<int64_t> split_item, std::optional<int64_t> group_type, std::optional<int64_t> group_list_type,
    std::optional<int64_t> act_type, OptionalIntArrayRef /*tuning_config*/, std::optional<int64_t> output_dtype,
    std::optional<int64_t> x_dtype, std::optional<int64_t> weight_dtype, std::optional<int64_t> scale_dtype,
    std::optional<int64_t> per_token_scale_dtype) {
  refuse_quantised({{"scale", given(scale)},
                    {"offset", given(offset)},
                    {"antiquant_scale", given(antiquant_scale)},
                    {"antiquant_offset", given(antiquant_offset)},
                    {"per_token_scale", given(per_token_scale)},
                    {"activation_input", given(activation_input)},
                    {"activation_quant_scale", given(activation_quant_scale)},
                    {"activation_quant_offset", given(activation_quant_offset)},
                    {"x_dtype", x_dtype.has_value()},
                    {"weight_dtype", weight_dtype.has_value()},
                    {"scale_dtype", scale_dtype.has_value()},
                    {"per_token_scale_dtype", per_token_scale_dtype.has_value()}});
  const Grouped g = read_grouped(x, weight, bias, split_item, act_type);
  std::optional<ScalarType> dtype;
  if (output_dtype.has_value()) dtype = static_cast<ScalarType>(*output_dtype);
  const int64_t axis = group_type.value_or(given(group_list) ? kRows : -1);
  // Several left operands are the groups, whatever the list says.
  if (axis == -1 || x.size() > 1) return in_dtype(separate(g, x), dtype);
  TORCH_CHECK(given(group_list), "npu_grouped_matmul: group_type ", axis, " needs group_list");
  TORCH_CHECK(g.one_result(), "npu_grouped_matmul: with group_type ", axis,
              " and a group_list on the device there is one result: split_item must be 2 or 3, got ", g.split_item);
  const Tensor ends = ends_of(*group_list, group_list_type.value_or(0));
  if (axis != kRows) return in_dtype({product(x[0], weight[0], ends, axis)}, dtype);
  return in_dtype({with_group_bias(product(x[0], stacked(weight), ends, kRows), g, ends)}, dtype);
}

std::vector<Tensor> npu_grouped_matmul_list(
    TensorList x, TensorList weight, std::optional<TensorList> bias, std::optional<TensorList> scale,
    std::optional<TensorList> offset, std::optional<TensorList> antiquant_scale,
    std::optional<TensorList> antiquant_offset, std::optional<TensorList> per_token_scale,
    OptionalIntArrayRef group_list, std::optional<TensorList> activation_input,
    std::optional<TensorList> activation_quant_scale, std::optional<TensorList> activation_quant_offset,
    std::optional<int64_t> split_item, std::optional<int64_t> /*group_type: by m*/,
    std::optional<int64_t> /*group_list_type: ends*/, std::optional<int64_t> act_type,
    std::optional<ScalarType> output_dtype) {
  refuse_quantised({{"scale", given(scale)},
                    {"offset", given(offset)},
                    {"antiquant_scale", given(antiquant_scale)},
                    {"antiquant_offset", given(antiquant_offset)},
                    {"per_token_scale", given(per_token_scale)},
                    {"activation_input", given(activation_input)},
                    {"activation_quant_scale", given(activation_quant_scale)},
                    {"activation_quant_offset", given(activation_quant_offset)}});
  const Grouped g = read_grouped(x, weight, bias, split_item, act_type);
  if (!group_list.has_value() || x.size() > 1) return in_dtype(separate(g, x), output_dtype);
  const std::vector<Tensor> single = weight.size() == 1 ? stacked(weight).unbind(0) : std::vector<Tensor>{};
  const Grouped by_group{x, single.empty() ? weight : TensorList(single), bias, g.split_item};
  std::vector<Tensor> groups;
  int64_t start = 0;
  for (const int64_t end : *group_list) {
    TORCH_CHECK(end >= start && end <= x[0].size(0), "npu_grouped_matmul: group_list must rise to at most the ",
                x[0].size(0), " rows of x, but is ", *group_list);
    groups.push_back(x[0].narrow(0, start, end - start));
    start = end;
  }
  return in_dtype(separate(by_group, groups), output_dtype);
}

}  // namespace at::native::npu
