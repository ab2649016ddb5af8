// Group normalisation and its gradient, computed in fp32 (fp64 for fp64, by libtorch).
//
// A channel of a sample is the unit: its statistics are those of a plane, or of the rows of one sample (norm_layout.h).
// Those of a group are joined of them, and a channel is then scaled and shifted as a whole.

#include <ATen/Parallel.h>

#include <cmath>

#include "ops/normalization/moments.h"
#include "ops/normalization/norm_layout.h"

namespace acl_sim {
namespace {

struct GroupShape {
  int64_t n, c, area, groups;
  GroupShape(const at::Tensor& x, const Attrs& attrs)
      : n(x.size(0)),
        c(x.size(1)),
        area(c10::multiply_integers(x.sizes().slice(2))),
        groups(attrs.integer("num_groups", 1)) {}
  int64_t planes() const { return n * c; }
  int64_t channels() const { return c / groups; }  // of a group
  double count() const { return static_cast<double>(channels() * area); }
};

// Runs body(first plane, memory offset, layout) for what is normalised at once: everything, or each sample whose memory
// is rows of channels.
template <class Body>
void for_parts(const at::Tensor& stored, const GroupShape& s, const Body& body) {
  NormLayout layout(stored);
  if (!layout.rows) {
    layout.shape = {1, s.planes(), s.area};
    body(0, 0, layout);
    return;
  }
  layout.shape = {1, s.c, s.area};
  // With few samples the rows of one are what threads share.
  const int64_t grain = s.n >= at::get_num_threads() ? 1 : s.n;
  at::parallel_for(0, s.n, grain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) body(i * s.c, i * s.c * s.area, layout);
  });
}

// Output 0 in fp32, so that the activation behind it sees no rounding: its memory, or scratch that store() narrows.
class NormOut {
 public:
  NormOut(OpContext& c, const at::Tensor& as)
      : target_(c.out_as(0, as)),
        values_(is_low_precision(target_) ? at::empty_like(target_, target_.options().dtype(at::kFloat)) : target_) {}
  const at::Tensor& values() const { return values_; }
  float* data() const { return values_.mutable_data_ptr<float>(); }
  void store() const {
    if (!values_.is_same(target_)) target_.copy_(values_);
  }

 private:
  at::Tensor target_, values_;
};

// inputs x, gamma, beta; outputs y, mean, rstd ([N, groups]); the activation behind it is on unless it is turned off
void group_norm(OpContext& c) {
  const double eps = c.attrs().real("eps", 1e-5);
  const bool silu = c.attrs().boolean("activate_silu", true);
  const at::Tensor stored = c.in_any(0), x = widen(stored);
  const GroupShape s(x, c.attrs());
  if (!normalizes_here(stored)) {
    auto [out, mean, rstd] = at::native_group_norm(x, some(widen(optional_in(c, 1))), some(widen(optional_in(c, 2))),
                                                   s.n, s.c, s.area, s.groups, eps);
    c.out_as(0, stored).copy_(silu ? at::silu(out) : out);
    c.out(1).copy_(mean);
    c.out(2).copy_(rstd);
    return;
  }
  const float* from = x.const_data_ptr<float>();
  std::vector<double> mean(s.planes()), m2(s.planes());
  for_parts(stored, s, [&](int64_t first, int64_t offset, const NormLayout& layout) {
    layout.statistics(from + offset, &mean[first], &m2[first]);
  });
  const std::vector<float> gamma = channel_values(c, 1, s.c, 1), beta = channel_values(c, 2, s.c, 0);
  std::vector<double> group_mean(s.n * s.groups), group_rstd(s.n * s.groups);
  std::vector<float> center(s.planes()), scale(s.planes()), shift(s.planes());
  for (int64_t g = 0; g < s.n * s.groups; ++g) {
    Moments all;
    const int64_t begin = g * s.channels(), end = begin + s.channels();
    for (int64_t j = begin; j < end; ++j) all.join({static_cast<double>(s.area), mean[j], m2[j]});
    group_mean[g] = all.mean;
    group_rstd[g] = 1 / std::sqrt(all.m2 / s.count() + eps);
    for (int64_t j = begin; j < end; ++j) {
      center[j] = static_cast<float>(all.mean);
      scale[j] = static_cast<float>(group_rstd[g] * gamma[j % s.c]);
      shift[j] = static_cast<float>(beta[j % s.c] + (center[j] - all.mean) * scale[j]);
    }
  }
  const NormOut y(c, stored);
  for_parts(stored, s, [&](int64_t first, int64_t offset, const NormLayout& layout) {
    layout.normalize(from + offset, &center[first], &scale[first], &shift[first], y.data() + offset);
  });
  if (silu) at::silu_(const_cast<at::Tensor&>(y.values()));
  y.store();
  write_values(c.out(1), group_mean);
  write_values(c.out(2), group_rstd);
}

// inputs dy, mean, rstd, x, gamma; outputs dx, dgamma, dbeta
void group_norm_grad(OpContext& c) {
  const at::Tensor stored = c.in_any(3);
  const GroupShape s(stored, c.attrs());
  const bool affine = c.has_input(4);
  if (!normalizes_here(stored) || c.in_any(0).scalar_type() != stored.scalar_type()) {
    const at::Tensor dy = widen(optional_in(c, 0)), x = widen(c.in(3)), gamma = widen(optional_in(c, 4));
    auto [dx, dg, db] = at::native_group_norm_backward(dy, x, widen(c.in(1)), widen(c.in(2)), some(gamma), s.n, s.c,
                                                       s.area, s.groups, {true, affine, affine});
    c.out(0).copy_(dx);
    if (affine) {
      c.out(1).copy_(dg);
      c.out(2).copy_(db);
    }
    return;
  }
  const at::Tensor dy = normalized_in(c, 0, stored), dx = c.out_as(0, stored);
  const std::vector<float> mean = channel_values(c, 1, s.n * s.groups, 0);
  const std::vector<float> rstd = channel_values(c, 2, s.n * s.groups, 1);
  const std::vector<float> gamma = channel_values(c, 4, s.c, 1);
  std::vector<float> center(s.planes()), by_dy(s.planes()), by_x(s.planes()), shift(s.planes());
  for (int64_t j = 0; j < s.planes(); ++j) center[j] = mean[j / s.channels()];
  std::vector<double> sum_dy(s.planes()), sum_dy_x(s.planes()), dgamma(s.c), dbeta(s.c);
  with_element_type(stored, [&]<class T>(T*) {
    const T *grad = dy.const_data_ptr<T>(), *from = stored.const_data_ptr<T>();
    for_parts(stored, s, [&](int64_t first, int64_t offset, const NormLayout& layout) {
      layout.gradient_sums(grad + offset, from + offset, &center[first], &sum_dy[first], &sum_dy_x[first]);
    });
  });
  for (int64_t g = 0; g < s.n * s.groups; ++g) {
    const int64_t begin = g * s.channels(), end = begin + s.channels();
    const double r = rstd[g];
    double of_dy = 0, of_dy_x = 0;
    for (int64_t j = begin; j < end; ++j) {
      of_dy += sum_dy[j] * gamma[j % s.c];
      of_dy_x += sum_dy_x[j] * gamma[j % s.c];
      dgamma[j % s.c] += sum_dy_x[j] * r;
      dbeta[j % s.c] += sum_dy[j];
    }
    for (int64_t j = begin; j < end; ++j) {
      by_dy[j] = static_cast<float>(gamma[j % s.c] * r);
      by_x[j] = static_cast<float>(-of_dy_x * r * r * r / s.count());
      shift[j] = static_cast<float>(-of_dy * r / s.count());
    }
  }
  with_element_type(stored, [&]<class T>(T*) {
    const T *grad = dy.const_data_ptr<T>(), *from = stored.const_data_ptr<T>();
    for_parts(stored, s, [&](int64_t first, int64_t offset, const NormLayout& layout) {
      layout.gradient(grad + offset, from + offset, &center[first], &by_dy[first], &by_x[first], &shift[first],
                      dx.mutable_data_ptr<T>() + offset);
    });
  });
  if (affine) {
    write_values(c.out(1), dgamma);
    write_values(c.out(2), dbeta);
  }
}

SIM_OP(GroupNormSilu)
    .inputs(1, 3)
    .outputs(3)
    .dtypes(kFloatTypes)
    .attrs({"num_groups:int", "eps:float", "activate_silu:bool"})
    .require({"num_groups"})
    .run(group_norm);
SIM_OP(GroupNormGrad)
    .inputs(5)
    .outputs(3)
    .dtypes(kFloatTypes)
    .attrs({"num_groups:int", "data_format:str"})
    .require({"num_groups"})
    .run(group_norm_grad);

}  // namespace
}  // namespace acl_sim
