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
                     std::optional<int64_t> split_item) {
  TORCH_CHECK(!x.empty() && !weight.empty(), "npu_grouped_matmul: x and weight must not be empty lists");
  const int64_t split = split_item.value_or(0);
  TORCH_CHECK(split >= 0 && split <= 3,
              "npu_grouped_matmul: split_item is 0 or 1 (one result for each weight), or 2 "
              "or 3 (one result), got ",
              split);
  return {x, weight, bias, split};
}

void check_plain(const Grouped& g, std::optional<int64_t> act_type) {
  TORCH_CHECK_NOT_IMPLEMENTED(act_type.value_or(0) == 0, "npu_grouped_matmul: act_type ", act_type.value_or(0),
                              " belongs to products of quantised tensors");
  for (const TensorList list : {g.x, g.weight}) {
    for (const Tensor& t : list) {
      TORCH_CHECK_NOT_IMPLEMENTED(at::isFloatingType(t.scalar_type()), "\"npu_grouped_matmul\" not implemented for '",
                                  toString(t.scalar_type()), "'");
    }
  }
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

// The factors of quantised groups: a tensor (groups, ...), or one for each group.
struct Factors {
  std::optional<TensorList> scale, antiquant_scale, antiquant_offset, per_token_scale;

  bool any() const {
    return given(scale) || given(antiquant_scale) || given(antiquant_offset) || given(per_token_scale);
  }
};

Tensor table_of(const char* argument, const std::optional<TensorList>& list, int64_t groups) {
  const Tensor table = list->size() == 1 && (*list)[0].dim() > 1 ? (*list)[0] : at::stack(*list, 0);
  TORCH_CHECK(table.size(0) == groups, "npu_grouped_matmul: ", argument, " must have one row for each of the ", groups,
              " groups, but is ", table.sizes());
  return table;
}

Tensor activated(const Tensor& y, int64_t act_type) {
  switch (act_type) {
    case 0:
      return y;
    case 1:
      return at::relu(y);
    case 2:
      return at::gelu(y, "tanh");
    case 4:
      return y * at::sigmoid(y * 1.702);
    case 5:
      return at::silu(y);
    default:
      TORCH_CHECK_NOT_IMPLEMENTED(
          false, "npu_grouped_matmul: act_type ", act_type,
          " is not supported, only 0 (none), 1 (relu), 2 (gelu, tanh), 4 (fast gelu), 5 (silu)");
  }
}

// The row of `table` for each row of y, by its group; rows after the last group get zeros.
Tensor by_rows(const Tensor& table, const Tensor& ends, int64_t rows) {
  const Tensor padded = at::cat({table, at::zeros_like(table.narrow(0, 0, 1))}, 0);
  return padded.index_select(
      0, at::searchsorted(ends, at::arange(rows, ends.options()), /*out_int32=*/false, /*right=*/true));
}

// Groups of rows of bytes, each with a weight of bytes: (x @ weight + bias) * scale * per_token_scale; a floating bias
// is added at the end. Sums of products of bytes are exact.
Tensor product_of_bytes(const Grouped& g, const Factors& factors, const Tensor& ends, const Tensor& x,
                        const Tensor& weight, int64_t act_type, std::optional<ScalarType> dtype) {
  const bool by_token = given(factors.per_token_scale);
  TORCH_CHECK_NOT_IMPLEMENTED(weight.scalar_type() == kChar && given(factors.scale) && !given(factors.antiquant_scale),
                              "npu_grouped_matmul: x of int8 goes with weight of int8 and scale");
  TORCH_CHECK_NOT_IMPLEMENTED(act_type == 0 || by_token, "npu_grouped_matmul: act_type goes with per_token_scale");
  const Tensor scale = table_of("scale", factors.scale, weight.size(0));
  const bool packed = scale.scalar_type() == kLong;
  const ScalarType result = dtype.value_or(kChar);
  TORCH_CHECK_NOT_IMPLEMENTED(
      packed ? result == kChar && !by_token
             : (scale.scalar_type() == kBFloat16 && result == kBFloat16) ||
                   (scale.scalar_type() == kFloat && result == kHalf),
      "npu_grouped_matmul: scale of int64 goes with a result of int8 and without per_token_scale, of bfloat16 with one "
      "of bfloat16 and of float32 with one of float16, but it is of ",
      scale.scalar_type(), " for one of ", result);
  const ScalarType wide = x.size(1) <= 1024 ? kFloat : kDouble;
  Tensor y = product(x.to(wide), weight.to(wide), ends, kRows);
  const auto bias = [&] {
    return by_rows((*g.bias)[0].dim() == 2 ? (*g.bias)[0] : at::stack(*g.bias, 0), ends, y.size(0)).to(wide);
  };
  const bool early = given(g.bias) && (*g.bias)[0].scalar_type() == kInt;
  if (early) y = y + bias();
  // npu_trans_quant_param keeps a factor's bits in the lower half.
  const Tensor low = packed ? scale.bitwise_and(0xFFFFFFFFLL) : scale;
  const Tensor factor =
      packed ? at::where(low.gt(0x7FFFFFFFLL), low - (int64_t{1} << 32), low).to(kInt).view(kFloat) : scale;
  y = y * by_rows(factor.to(wide), ends, y.size(0));
  if (by_token) y = y * (*factors.per_token_scale)[0].to(wide).unsqueeze(1);
  if (given(g.bias) && !early) y = y + bias();
  if (result == kChar) return at::round(y).clamp(-128, 127).to(kChar);
  return activated(y, act_type).to(result);
}

// Groups of rows, each with a weight of small integers: x @ ((weight + antiquant_offset) * antiquant_scale) + bias.
Tensor product_with_integers(const Grouped& g, const Factors& factors, const Tensor& ends, const Tensor& x,
                             const Tensor& weight) {
  TORCH_CHECK_NOT_IMPLEMENTED(weight.scalar_type() == kChar && given(factors.antiquant_scale) &&
                                  !given(factors.scale) && !given(factors.per_token_scale),
                              "npu_grouped_matmul: a floating x goes with weight of int8 and antiquant_scale");
  const int64_t groups = weight.size(0);
  const auto spread = [&](const char* argument, const std::optional<TensorList>& list) {
    const Tensor table = table_of(argument, list, groups).to(kFloat);
    return table.dim() == 2 ? table.unsqueeze(1) : table;
  };
  Tensor wide = weight.to(kFloat);
  if (given(factors.antiquant_offset)) wide = wide + spread("antiquant_offset", factors.antiquant_offset);
  wide = wide * spread("antiquant_scale", factors.antiquant_scale);
  Tensor y = product(x.to(kFloat), wide, ends, kRows);
  if (given(g.bias)) {
    y = y + by_rows((*g.bias)[0].dim() == 2 ? (*g.bias)[0] : at::stack(*g.bias, 0), ends, y.size(0)).to(kFloat);
  }
  return y.to(x.scalar_type());
}

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
  refuse_quantised({{"offset", given(offset)},
                    {"activation_input", given(activation_input)},
                    {"activation_quant_scale", given(activation_quant_scale)},
                    {"activation_quant_offset", given(activation_quant_offset)},
                    {"x_dtype", x_dtype.has_value()},
                    {"weight_dtype", weight_dtype.has_value()},
                    {"scale_dtype", scale_dtype.has_value()},
                    {"per_token_scale_dtype", per_token_scale_dtype.has_value()}});
  const Grouped g = read_grouped(x, weight, bias, split_item);
  std::optional<ScalarType> dtype;
  if (output_dtype.has_value()) dtype = static_cast<ScalarType>(*output_dtype);
  const int64_t axis = group_type.value_or(given(group_list) ? kRows : -1);
  const Factors factors{scale, antiquant_scale, antiquant_offset, per_token_scale};
  if (factors.any()) {
    const NoAutocast guard;
    TORCH_CHECK_NOT_IMPLEMENTED(axis == kRows && x.size() == 1 && given(group_list) && g.one_result(),
                                "npu_grouped_matmul: quantised tensors go with one x, group_type 0, group_list and "
                                "split_item 2 or 3");
    const Tensor ends = ends_of(*group_list, group_list_type.value_or(0)), matrices = stacked(weight);
    if (x[0].scalar_type() == kChar) {
      return {product_of_bytes(g, factors, ends, x[0].detach(), matrices, act_type.value_or(0), dtype)};
    }
    check_plain(Grouped{x, x, bias, g.split_item}, act_type);
    return in_dtype({product_with_integers(g, factors, ends, x[0], matrices)}, dtype);
  }
  check_plain(g, act_type);
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
  const Grouped g = read_grouped(x, weight, bias, split_item);
  check_plain(g, act_type);
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
