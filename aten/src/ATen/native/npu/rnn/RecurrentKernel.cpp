// Upstream's lstm, gru, rnn_tanh and rnn_relu. Upstream makes them of cells, step by step; where the device has a whole
// layer as one operator they are made of layers. Everything else (projections, traced or wrapped tensors, forward mode,
// operands that do not fit, a device that lacks the operator) goes on to upstream's function, errors included.

#include <ATen/TensorSubclassLikeUtils.h>
#include <ATen/autocast_mode.h>
#include <ATen/native/npu/frame/command/Missing.h>
#include <ATen/native/npu/frame/inference/Wide.h>
#include <ATen/native/npu/rnn/RecurrentLayer.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/gru_native.h>
#include <ATen/ops/lstm_native.h>
#include <ATen/ops/rnn_relu_native.h>
#include <ATen/ops/rnn_tanh_native.h>
#include <ATen/ops/stack.h>
#include <torch/library.h>

#include <optional>
#include <tuple>

namespace at::native::npu {
namespace {

// A call for which whole layers serve; nothing where they do not.
class Network {
 public:
  static std::optional<Network> of(RecurrentCell cell, const Tensor& data, const std::optional<Tensor>& batch_sizes,
                                   TensorList states, TensorList params, bool has_biases, int64_t num_layers,
                                   double dropout, bool train, bool bidirectional) {
    if (lacks("RecurrentLayer") || lacks("RecurrentLayerGrad") || states.empty()) return std::nullopt;
    Network net{cell, has_biases, num_layers, bidirectional ? 2 : 1, train ? dropout : 0.0};
    if (!net.take(data, states, params) || !net.fits(batch_sizes)) return std::nullopt;
    return net;
  }

  // y, h, c (of an LSTM)
  RecurrentStates run(bool batch_first) {
    const NoAutocast no_autocast;
    std::vector<Tensor> last_h, last_c;
    const auto h0 = states_[0].unbind(0);
    const auto c0 = states_.size() > 1 ? states_[1].unbind(0) : std::vector<Tensor>(h0.size());
    Tensor x = batch_first ? data_.transpose(0, 1) : data_;
    for (int64_t layer = 0; layer < layers_; ++layer) {
      std::vector<Tensor> results;
      for (int64_t direction = 0; direction < directions_; ++direction) {
        const int64_t i = layer * directions_ + direction;
        const auto out = recurrent_layer(cell_, x, sizes_, h0[i], c0[i], weights(i), direction == 1);
        results.push_back(out.y);
        last_h.push_back(out.h);
        last_c.push_back(out.c);
      }
      x = directions_ == 1 ? results[0] : at::cat(results, -1);
      if (dropout_ != 0 && layer + 1 < layers_) x = at::dropout(x, dropout_, true);
    }
    const auto joined = [](const std::vector<Tensor>& t) { return t.size() == 1 ? t[0].unsqueeze(0) : at::stack(t); };
    return {batch_first ? x.transpose(0, 1) : x, joined(last_h), states_.size() > 1 ? joined(last_c) : Tensor()};
  }

 private:
  Network(RecurrentCell cell, bool biases, int64_t layers, int64_t directions, double dropout)
      : cell_(cell), biases_(biases), layers_(layers), directions_(directions), dropout_(dropout) {}

  // Under autocast everything is cast at once, as it is for CUDA's networks.
  static Tensor cast(const Tensor& t) {
    const auto device = DeviceType::PrivateUse1;
    return autocast::is_autocast_enabled(device)
               ? autocast::cached_cast(autocast::get_autocast_dtype(device), t, device)
               : t;
  }

  bool take(const Tensor& data, TensorList states, TensorList params) {
    const auto plain = [&](const Tensor& t) {
      return t.defined() && t.device() == data.device() && !isTensorSubclassLike(t) && !t._fw_grad(0).defined() &&
             t.layout() == kStrided && !t.is_quantized() && !t.is_nested();
    };
    for (const TensorList list : {TensorList(data), states, params}) {
      for (const Tensor& t : list) {
        if (!plain(t)) return false;
      }
    }
    data_ = cast(data);
    for (const Tensor& t : states) states_.push_back(cast(t));
    for (const Tensor& t : params) params_.push_back(cast(t));
    const ScalarType dtype = data_.scalar_type();
    const auto same = [&](const Tensor& t) { return t.scalar_type() == dtype; };
    return (dtype == kFloat || dtype == kDouble || dtype == kHalf || dtype == kBFloat16) &&
           std::all_of(states_.begin(), states_.end(), same) && std::all_of(params_.begin(), params_.end(), same);
  }

  bool fits(const std::optional<Tensor>& batch_sizes) {
    const int64_t each = biases_ ? 4 : 2, all = layers_ * directions_;
    if (layers_ < 1 || data_.dim() != (batch_sizes ? 2 : 3) || data_.numel() == 0 || states_[0].dim() != 3 ||
        static_cast<int64_t>(params_.size()) != all * each) {
      return false;
    }
    return fits_states(batch_sizes) && fits_weights();
  }

  bool fits_states(const std::optional<Tensor>& batch_sizes) {
    if (states_.size() != (cell_ == RecurrentCell::Lstm ? 2 : 1)) return false;
    const int64_t batch = states_[0].size(1), hidden = states_[0].size(2);
    for (const Tensor& state : states_) {
      if (state.sizes() != IntArrayRef({layers_ * directions_, batch, hidden}) || state.numel() == 0) return false;
    }
    if (!batch_sizes) return true;
    const Tensor& sizes = *batch_sizes;
    if (!sizes.defined() || !sizes.is_cpu() || sizes.scalar_type() != kLong || sizes.dim() != 1 || sizes.numel() == 0) {
      return false;
    }
    const Tensor dense = sizes.contiguous();
    sizes_.assign(dense.const_data_ptr<int64_t>(), dense.const_data_ptr<int64_t>() + dense.numel());
    int64_t sum = 0, most = batch;
    for (const int64_t n : sizes_) {
      if (n < 1 || n > most) return false;
      sum += n, most = n;
    }
    return sizes_[0] == batch && sum == data_.size(0);
  }

  // With the batch in the first dim a layer's rows are told by the state.
  bool fits_weights() const {
    const int64_t hidden = states_[0].size(2), gates = gates_of(cell_) * hidden;
    for (int64_t i = 0; i < layers_ * directions_; ++i) {
      const RecurrentWeights w = weights(i);
      const int64_t inputs = i < directions_ ? data_.size(-1) : directions_ * hidden;
      if (w.w_ih.sizes() != IntArrayRef({gates, inputs}) || w.w_hh.sizes() != IntArrayRef({gates, hidden}))
        return false;
      if (biases_ && (w.b_ih.sizes() != IntArrayRef({gates}) || w.b_hh.sizes() != IntArrayRef({gates}))) return false;
    }
    return true;
  }

  RecurrentWeights weights(int64_t i) const {
    const Tensor* const first = &params_[i * (biases_ ? 4 : 2)];
    return {first[0], first[1], biases_ ? first[2] : Tensor(), biases_ ? first[3] : Tensor()};
  }

  RecurrentCell cell_;
  bool biases_;
  int64_t layers_, directions_;
  double dropout_;
  Tensor data_;
  std::vector<Tensor> states_, params_;
  std::vector<int64_t> sizes_;
};

bool batch_fits(const Tensor& input, TensorList states, bool batch_first) {
  return input.dim() == 3 && !states.empty() && states[0].dim() == 3 &&
         input.size(batch_first ? 0 : 1) == states[0].size(1);
}

std::tuple<Tensor, Tensor, Tensor> lstm(const Tensor& input, TensorList hx, TensorList params, bool has_biases,
                                        int64_t num_layers, double dropout, bool train, bool bidirectional,
                                        bool batch_first) {
  auto net = batch_fits(input, hx, batch_first) ? Network::of(RecurrentCell::Lstm, input, std::nullopt, hx, params,
                                                              has_biases, num_layers, dropout, train, bidirectional)
                                                : std::nullopt;
  if (!net) {
    return at::native::lstm(input, hx, params, has_biases, num_layers, dropout, train, bidirectional, batch_first);
  }
  const auto out = net->run(batch_first);
  return {out.y, out.h, out.c};
}

std::tuple<Tensor, Tensor, Tensor> lstm_packed(const Tensor& data, const Tensor& batch_sizes, TensorList hx,
                                               TensorList params, bool has_biases, int64_t num_layers, double dropout,
                                               bool train, bool bidirectional) {
  auto net = Network::of(RecurrentCell::Lstm, data, batch_sizes, hx, params, has_biases, num_layers, dropout, train,
                         bidirectional);
  if (!net) {
    return at::native::lstm(data, batch_sizes, hx, params, has_biases, num_layers, dropout, train, bidirectional);
  }
  const auto out = net->run(false);
  return {out.y, out.h, out.c};
}

// The networks with one state; the two functions of each are upstream's, with padded and with packed sequences.
template <RecurrentCell cell, auto upstream>
std::tuple<Tensor, Tensor> network(const Tensor& input, const Tensor& hx, TensorList params, bool has_biases,
                                   int64_t num_layers, double dropout, bool train, bool bidirectional,
                                   bool batch_first) {
  auto net = batch_fits(input, hx, batch_first) ? Network::of(cell, input, std::nullopt, hx, params, has_biases,
                                                              num_layers, dropout, train, bidirectional)
                                                : std::nullopt;
  if (!net) return upstream(input, hx, params, has_biases, num_layers, dropout, train, bidirectional, batch_first);
  const auto out = net->run(batch_first);
  return {out.y, out.h};
}

template <RecurrentCell cell, auto upstream>
std::tuple<Tensor, Tensor> packed(const Tensor& data, const Tensor& batch_sizes, const Tensor& hx, TensorList params,
                                  bool has_biases, int64_t num_layers, double dropout, bool train, bool bidirectional) {
  auto net = Network::of(cell, data, batch_sizes, hx, params, has_biases, num_layers, dropout, train, bidirectional);
  if (!net) return upstream(data, batch_sizes, hx, params, has_biases, num_layers, dropout, train, bidirectional);
  const auto out = net->run(false);
  return {out.y, out.h};
}

using Padded = std::tuple<Tensor, Tensor> (*)(const Tensor&, const Tensor&, TensorList, bool, int64_t, double, bool,
                                              bool, bool);
using Packed = std::tuple<Tensor, Tensor> (*)(const Tensor&, const Tensor&, const Tensor&, TensorList, bool, int64_t,
                                              double, bool, bool);

void register_networks(torch::Library& m) {
  m.impl("lstm.input", TORCH_FN(lstm));
  m.impl("lstm.data", TORCH_FN(lstm_packed));
  m.impl("gru.input", &network<RecurrentCell::Gru, static_cast<Padded>(&at::native::gru)>);
  m.impl("gru.data", &packed<RecurrentCell::Gru, static_cast<Packed>(&at::native::gru)>);
  m.impl("rnn_tanh.input", &network<RecurrentCell::Tanh, static_cast<Padded>(&at::native::rnn_tanh)>);
  m.impl("rnn_tanh.data", &packed<RecurrentCell::Tanh, static_cast<Packed>(&at::native::rnn_tanh)>);
  m.impl("rnn_relu.input", &network<RecurrentCell::Relu, static_cast<Padded>(&at::native::rnn_relu)>);
  m.impl("rnn_relu.data", &packed<RecurrentCell::Relu, static_cast<Packed>(&at::native::rnn_relu)>);
}

}  // namespace

// Gradients are those of the layers and of the operators that join them.
TORCH_LIBRARY_IMPL(aten, AutogradPrivateUse1, m) { register_networks(m); }
TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) { register_networks(m); }

}  // namespace at::native::npu
