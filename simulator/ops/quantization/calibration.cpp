// IFMR: the scale (and offset) with which 8-bit quantisation loses least.

#include <cmath>

#include "ops/nn_util.h"

namespace acl_sim {
namespace {

using at::Tensor;

// data, its minimum and maximum, cumulated histogram -> scale, offset
void ifmr(OpContext& c) {
  const Tensor data = widen(c.in(0)).reshape({-1}), cumulated = c.in(3).to(at::kFloat);
  const float least = c.in_scalar(1).toFloat(), most = c.in_scalar(2).toFloat();
  const auto real = [&](const char* name, double otherwise) { return c.attrs().real(name, otherwise); };
  const bool with_offset = c.attrs().boolean("with_offset", true);
  const Tensor share = cumulated / static_cast<float>(data.numel());
  const auto bins = static_cast<float>(cumulated.numel());
  // The bin in which the share of smaller elements reaches a percentile.
  const auto edge = [&](double percentile) {
    const float bin = (share < static_cast<float>(percentile)).sum().item<float>();
    return bin / bins * (most - least) + least;
  };
  float high = edge(real("max_percentile", 0.999999)), low = edge(1 - real("min_percentile", 0.999999));
  if (with_offset) {
    high = std::max(high, 0.0F);
    low = std::min(low, 0.0F);
  } else {
    high = std::max(std::abs(high), std::abs(low));
  }
  const std::vector<double> range = c.attrs().reals("search_range", {0.7, 1.3});
  const double step = real("search_step", 0.01);
  if (range.size() != 2 || !(step > 0)) refuse("IFMR: search_range has two numbers and search_step is above 0");
  const auto tries = static_cast<int64_t>(std::ceil((range[1] - range[0]) / step - 1e-6));
  float best_loss = INFINITY, best_scale = 1, best_offset = 0;
  for (int64_t i = 0; i < tries; ++i) {
    const float top = high * static_cast<float>(range[0] + static_cast<double>(i) * step);
    float scale = with_offset ? (top - low) / 255 : top / 127;
    if (scale < 1.192092896e-07F) scale = 1;
    const float offset = with_offset ? -(std::nearbyint(low / scale) + 128) : 0;
    const Tensor restored = (((data / scale).round() + offset).clamp(-128, 127) - offset) * scale;
    const float loss = (restored - data).square().sum().item<float>();
    if (loss < best_loss) best_loss = loss, best_scale = scale, best_offset = offset;
  }
  c.out(0).fill_(best_scale);
  c.out(1).fill_(best_offset);
}
SIM_OP(IFMR)
    .inputs(4)
    .outputs(2)
    .dtypes({kFloatTypes, kFloatTypes, kFloatTypes, kIntTypes})
    .attrs({"min_percentile:float", "max_percentile:float", "search_range:floats", "search_step:float",
            "with_offset:bool"})
    .require({"min_percentile", "max_percentile", "search_range", "search_step", "with_offset"})
    .run(ifmr);

}  // namespace
}  // namespace acl_sim
