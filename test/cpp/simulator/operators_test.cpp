// A dozen operators through the C ABI against scalar loops. Python tests compare all of them with the CPU; these show
// on a machine without Python that the kernels compute: under emulation (tools/cross), and without the vector code that
// x86 has (simulator_portable_test).

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <utility>
#include <vector>

#include "operand.h"

namespace acl_sim {
namespace {

using namespace testing;
using Values = std::vector<double>;

Values random_values(size_t count, uint32_t seed = 1) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> between(-1, 1);
  Values values(count);
  // Of few binary digits, so that every dtype has them exactly.
  for (double& value : values) value = std::round(between(random) * 64) / 64;
  return values;
}

void expect_near(const Values& found, const Values& expected, double tolerance) {
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i) {
    ASSERT_NEAR(found[i], expected[i], tolerance * std::max(1.0, std::abs(expected[i]))) << "element " << i;
  }
}

double tolerance_of(aclDataType dtype) { return dtype == ACL_FLOAT ? 1e-5 : dtype == ACL_FLOAT16 ? 1e-3 : 8e-3; }
const aclDataType kFloats[] = {ACL_FLOAT, ACL_FLOAT16, ACL_BF16};

TEST(Operators, AddBroadcasts) {
  const Values a = random_values(size_t{7 * 33}), b = random_values(33, 2);
  for (const aclDataType dtype : kFloats) {
    const Operand x({7, 33}, a, dtype), y({33}, b, dtype), z({7, 33}, dtype);
    Call("Add").run({&x, &y}, {&z});
    Values expected(a.size());
    for (size_t i = 0; i < a.size(); ++i) expected[i] = a[i] + b[i % 33];
    expect_near(z.values(), expected, tolerance_of(dtype));
  }
}

TEST(Operators, ElementwiseFunctions) {
  const Values a = random_values(1000);
  const std::pair<const char*, double (*)(double)> functions[] = {
      {"Exp", [](double v) { return std::exp(v); }},
      {"Tanh", [](double v) { return std::tanh(v); }},
      {"Sigmoid", [](double v) { return 1 / (1 + std::exp(-v)); }},
      {"Abs", [](double v) { return std::abs(v); }},
      {"Relu", [](double v) { return std::max(v, 0.0); }},
  };
  for (const auto& [type, function] : functions) {
    const Operand x({1000}, a), y({1000});
    Call(type).run({&x}, {&y});
    Values expected;
    for (const double v : a) expected.push_back(function(v));
    expect_near(y.values(), expected, 1e-6);
  }
}

TEST(Operators, MatMulTransposed) {
  constexpr int64_t m = 19, k = 37, n = 23;
  const Values a = random_values(size_t{k * m}), b = random_values(size_t{n * k}, 2);
  for (const aclDataType dtype : kFloats) {
    const Operand x({k, m}, a, dtype), y({n, k}, b, dtype), z({m, n}, dtype);
    Call("MatMul").attr("transpose_x1", true).attr("transpose_x2", true).run({&x, &y}, {&z});
    Values expected(size_t{m * n}, 0);
    for (int64_t i = 0; i < m; ++i)
      for (int64_t j = 0; j < n; ++j)
        for (int64_t p = 0; p < k; ++p) expected[i * n + j] += a[p * m + i] * b[j * k + p];
    expect_near(z.values(), expected, tolerance_of(dtype));
  }
}

TEST(Operators, Conv2DPaddedWithSteps) {
  constexpr int64_t images = 2, in = 5, size = 9, out = 6, kernel = 3, stride = 2, result = 5;
  const Values x_values = random_values(size_t{images * in * size * size});
  const Values w_values = random_values(size_t{out * in * kernel * kernel}, 2), b_values = random_values(out, 3);
  Values expected;
  for (int64_t i = 0; i < images; ++i)
    for (int64_t o = 0; o < out; ++o)
      for (int64_t r = 0; r < result; ++r)
        for (int64_t c = 0; c < result; ++c) {
          double sum = b_values[o];
          for (int64_t k = 0; k < in; ++k)
            for (int64_t p = 0; p < kernel; ++p)
              for (int64_t q = 0; q < kernel; ++q) {
                const int64_t row = r * stride + p - 1, column = c * stride + q - 1;
                if (row < 0 || column < 0 || row >= size || column >= size) continue;
                sum += x_values[((i * in + k) * size + row) * size + column] *
                       w_values[((o * in + k) * kernel + p) * kernel + q];
              }
          expected.push_back(sum);
        }
  for (const aclDataType dtype : kFloats) {
    const Operand x({images, in, size, size}, x_values, dtype, ACL_FORMAT_NCHW);
    const Operand w({out, in, kernel, kernel}, w_values, dtype, ACL_FORMAT_NCHW), b({out}, b_values, dtype);
    const Operand y({images, out, result, result}, dtype, ACL_FORMAT_NCHW);
    Call("Conv2D")
        .attr("strides", {1, 1, stride, stride})
        .attr("pads", {1, 1, 1, 1})
        .attr("dilations", {1, 1, 1, 1})
        .attr("groups", int64_t{1})
        .run({&x, &w, &b}, {&y});
    expect_near(y.values(), expected, tolerance_of(dtype));
  }
}

// Planes of more elements than fit in one block of the kernel, and an odd number of them.
TEST(Operators, BatchNormTrains) {
  constexpr int64_t images = 3, channels = 4, side = 67, area = side * side;
  constexpr double eps = 1e-5, momentum = 0.25;
  const Values x_values = random_values(size_t{images * channels * area});
  const Values weight = random_values(channels, 2), bias = random_values(channels, 3);
  Values means(channels), variances(channels), expected(x_values.size());
  const auto at = [&](int64_t i, int64_t c, int64_t k) { return static_cast<size_t>((i * channels + c) * area + k); };
  for (int64_t c = 0; c < channels; ++c) {
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < images; ++i)
      for (int64_t k = 0; k < area; ++k) sum += x_values[at(i, c, k)];
    means[c] = sum / (images * area);
    for (int64_t i = 0; i < images; ++i)
      for (int64_t k = 0; k < area; ++k) squares += std::pow(x_values[at(i, c, k)] - means[c], 2);
    variances[c] = squares / (images * area);
    for (int64_t i = 0; i < images; ++i)
      for (int64_t k = 0; k < area; ++k)
        expected[at(i, c, k)] =
            (x_values[at(i, c, k)] - means[c]) / std::sqrt(variances[c] + eps) * weight[c] + bias[c];
  }
  for (const aclDataType dtype : kFloats) {
    const Operand x({images, channels, side, side}, x_values, dtype, ACL_FORMAT_NCHW);
    const Operand y({images, channels, side, side}, dtype, ACL_FORMAT_NCHW);
    const Operand scale({channels}, weight), shift({channels}, bias);
    const Operand running_mean({channels}, Values(channels, 0)), running_var({channels}, Values(channels, 1));
    const Operand saved_mean({channels}), saved_rstd({channels});
    Call("BatchNormV3")
        .attr("epsilon", eps)
        .attr("momentum", momentum)
        .attr("is_training", true)
        .run({&x, &scale, &shift, &running_mean, &running_var},
             {&y, &running_mean, &running_var, &saved_mean, &saved_rstd});
    expect_near(y.values(), expected, tolerance_of(dtype));
    expect_near(saved_mean.values(), means, 1e-6);
    Values kept_mean, kept_var;
    constexpr double n = images * area;
    for (int64_t c = 0; c < channels; ++c) {
      kept_mean.push_back(momentum * means[c]);
      kept_var.push_back(1 - momentum + momentum * variances[c] * n / (n - 1));
    }
    expect_near(running_mean.values(), kept_mean, 1e-6);
    expect_near(running_var.values(), kept_var, 1e-5);
  }
}

TEST(Operators, SoftmaxOfRows) {
  constexpr size_t rows = 6, width = 51;
  const Values a = random_values(rows * width);
  Values expected(a.size());
  for (size_t r = 0; r < rows; ++r) {
    double sum = 0;
    for (size_t k = 0; k < width; ++k) sum += std::exp(a[r * width + k]);
    for (size_t k = 0; k < width; ++k) expected[r * width + k] = std::exp(a[r * width + k]) / sum;
  }
  for (const aclDataType dtype : kFloats) {
    const Operand x({rows, width}, a, dtype), y({rows, width}, dtype);
    Call("SoftmaxV2").attr("axes", Dims{-1}).run({&x}, {&y});
    expect_near(y.values(), expected, tolerance_of(dtype));
  }
}

TEST(Operators, ReduceSumOverOneAxis) {
  const Values a = random_values(size_t{3 * 5 * 7});
  const Operand x({3, 5, 7}, a), axes({1}, {1}, ACL_INT64), y({3, 1, 7});
  Call("ReduceSum").attr("keep_dims", true).run({&x, &axes}, {&y});
  Values expected(size_t{3 * 7}, 0);
  for (size_t i = 0; i < a.size(); ++i) expected[i / 35 * 7 + i % 7] += a[i];
  expect_near(y.values(), expected, 1e-6);
}

// Ties go to the even neighbour, what is too large to infinity, what is small to subnormals.
TEST(Operators, CastsRound) {
  const double infinite = std::numeric_limits<double>::infinity();
  const struct {
    aclDataType dtype;
    Values from, to;
  } cases[] = {
      {ACL_FLOAT16,
       {1 + 0x1p-11, 1 + 3 * 0x1p-11, 65519, 65520, -1e30, 0x1p-24, 0x1p-25, 3 * 0x1p-25, -0.1},
       {1, 1 + 0x1p-9, 65504, infinite, -infinite, 0x1p-24, 0, 0x1p-23, -0.0999755859375}},
      {ACL_BF16,
       {1 + 0x1p-8, 1 + 3 * 0x1p-8, 3.4e38, -0x1p-126, 0x1p-133, 0.1},
       {1, 1 + 0x1p-6, infinite, -0x1p-126, 0x1p-133, 0.10009765625}},
      {ACL_INT32, {1.9, -1.9, 0, 7}, {1, -1, 0, 7}},
  };
  for (const auto& one : cases) {
    const auto count = static_cast<int64_t>(one.from.size());
    const Operand x({count}, one.from), y({count}, one.dtype);
    Call("Cast").attr("dst_type", int64_t{one.dtype}).run({&x}, {&y});
    EXPECT_EQ(y.values(), one.to) << "to dtype " << one.dtype;
  }
  const Operand half({3}, {0x1p-24, -65504, 0.5}, ACL_FLOAT16), wide({3});
  Call("Cast").attr("dst_type", int64_t{ACL_FLOAT}).run({&half}, {&wide});
  EXPECT_EQ(wide.values(), (Values{0x1p-24, -65504, 0.5}));
}

TEST(Operators, TransposeOfWholeAndPartialTiles) {
  constexpr size_t rows = 83, columns = 70;
  const Values a = random_values(rows * columns);
  Values expected(a.size());
  for (size_t i = 0; i < a.size(); ++i) expected[i % columns * rows + i / columns] = a[i];
  for (const aclDataType dtype : kFloats) {
    const Operand x({rows, columns}, a, dtype), perm({2}, {1, 0}, ACL_INT64), y({columns, rows}, dtype);
    Call("Transpose").run({&x, &perm}, {&y});
    EXPECT_EQ(y.values(), expected);
  }
}

TEST(Operators, GatherPicksElements) {
  const Values a = random_values(size_t{4 * 50}), picked = {49, 0, 7, 7, 31};
  for (const aclDataType dtype : kFloats) {
    const Operand x({4, 50}, a, dtype), index({5}, picked, ACL_INT64), axis({1}, {1}, ACL_INT64), y({4, 5}, dtype);
    Call("GatherV2").run({&x, &index, &axis}, {&y});
    Values expected;
    for (size_t row = 0; row < 4; ++row)
      for (const double at : picked) expected.push_back(a[row * 50 + static_cast<size_t>(at)]);
    EXPECT_EQ(y.values(), expected);
  }
}

TEST(Operators, AsStridedTakesEverySecond) {
  const Values a = random_values(400);
  for (const aclDataType dtype : kFloats) {
    const Operand x({400}, a, dtype), size({2}, {4, 50}, ACL_INT64), stride({2}, {100, 2}, ACL_INT64);
    const Operand offset({1}, {1}, ACL_INT64), y({4, 50}, dtype);
    Call("AsStrided").run({&x, &size, &stride, &offset}, {&y});
    Values expected;
    for (size_t i = 0; i < 200; ++i) expected.push_back(a[i / 50 * 100 + i % 50 * 2 + 1]);
    EXPECT_EQ(y.values(), expected);
  }
}

TEST(Operators, UnscaleFindsInfinities) {
  for (const aclDataType dtype : kFloats) {
    for (const bool overflow : {false, true}) {
      Values a = random_values(1001);
      if (overflow) a[777] = -std::numeric_limits<double>::infinity();
      const Operand gradient({1001}, a, dtype), found({1}, {0}), inverse({1}, {0.125});
      Call("ForeachNonFiniteCheckAndUnscale").run({&gradient, &found, &inverse}, {&gradient, &found});
      EXPECT_EQ(found.values(), Values{overflow ? 1.0 : 0.0});
      for (double& value : a) value *= 0.125;
      EXPECT_EQ(gradient.values(), a);
    }
  }
}

TEST(Operators, LambStep) {
  constexpr size_t n = 700;
  constexpr double lr = 0.01, beta1 = 0.9, beta2 = 0.99, eps = 1e-6, decay = 0.1;
  Values p = random_values(n), g = random_values(n, 2), m(n, 0), v(n, 0);
  const Operand param({n}, p), gradient({n}, g), mean({n}, m), square({n}, v), bounds({2}, {0, n}, ACL_INT64);
  const Operand rate({1}, {lr}), b1({1}, {beta1}), b2({1}, {beta2}), e({1}, {eps}), d({1}, {decay});
  Call("FusedLamb")
      .run({&param, &gradient, &mean, &square, &bounds, &rate, &b1, &b2, &e, &d}, {&param, &mean, &square});
  Values update(n);
  double weights = 0, updates = 0;
  for (size_t i = 0; i < n; ++i) {
    m[i] = (1 - beta1) * g[i];
    v[i] = (1 - beta2) * g[i] * g[i];
    update[i] = m[i] / (std::sqrt(v[i]) + eps) + decay * p[i];
    weights += p[i] * p[i];
    updates += update[i] * update[i];
  }
  const double ratio = std::min(std::sqrt(weights), 10.0) / std::sqrt(updates);
  for (size_t i = 0; i < n; ++i) p[i] -= lr * ratio * update[i];
  expect_near(param.values(), p, 1e-5);
  expect_near(mean.values(), m, 1e-6);
  expect_near(square.values(), v, 1e-6);
}

}  // namespace
}  // namespace acl_sim
