// Fourier transforms as products of matrices. A length that is a product is transformed along its factors, with a
// rotation between; what is left are short lengths and primes, for which the matrix of the transform is multiplied by.

#include <ATen/ATen.h>
#include <ATen/native/npu/frame/registration/AtenOp.h>

#include <cmath>
#include <numbers>

namespace at::native::npu {
namespace {

constexpr int64_t kShort = 64;

// The largest divisor of n that is not above its root; 1 for a prime.
int64_t divisor(int64_t n) {
  for (auto d = static_cast<int64_t>(std::sqrt(static_cast<double>(n))); d > 1; --d) {
    if (n % d == 0) return d;
  }
  return 1;
}

// exp(sign * 2 pi i * rows * columns / n) as (rows, columns); products are taken modulo n, so that angles are exact.
std::pair<Tensor, Tensor> rotations(int64_t rows, int64_t columns, int64_t n, double sign, const Tensor& like) {
  const auto whole = TensorOptions().dtype(kLong).device(like.device());
  const Tensor product = at::arange(rows, whole).unsqueeze(1) * at::arange(columns, whole);
  const Tensor angle = product.remainder(n).to(kDouble) * (sign * 2 * std::numbers::pi / static_cast<double>(n));
  return {at::cos(angle).to(like.scalar_type()), at::sin(angle).to(like.scalar_type())};
}

// Complex numbers are pairs of reals in the last dimension.
Tensor rotated(const Tensor& x, const Tensor& cosine, const Tensor& sine) {
  const Tensor real = x.select(-1, 0), imag = x.select(-1, 1);
  return at::stack({real * cosine - imag * sine, real * sine + imag * cosine}, -1);
}

// Along the last dimension but one of (batch, n, 2).
Tensor transform(const Tensor& x, double sign) {
  const int64_t batch = x.size(0), n = x.size(1);
  if (n == 1) return x;
  const int64_t a = n <= kShort ? 1 : divisor(n);
  if (a == 1) {
    const auto [cosine, sine] = rotations(n, n, n, sign, x);
    // (j, part) by (k, part): the product of pairs.
    const Tensor matrix = at::stack({at::stack({cosine, sine}, -1), at::stack({sine.neg(), cosine}, -1)}, 1);
    return at::mm(x.reshape({batch, 2 * n}), matrix.reshape({2 * n, 2 * n})).reshape({batch, n, 2});
  }
  // Position p = b * i + j, frequency f = k + a * l, with n = a * b.
  const int64_t b = n / a;
  const Tensor columns = x.reshape({batch, a, b, 2}).transpose(1, 2).reshape({batch * b, a, 2});
  const Tensor first = transform(columns, sign).reshape({batch, b, a, 2});
  const auto [cosine, sine] = rotations(b, a, n, sign, x);
  const Tensor rows = rotated(first, cosine, sine).transpose(1, 2).reshape({batch * a, b, 2});
  return transform(rows, sign).reshape({batch, a, b, 2}).transpose(1, 2).reshape({batch, n, 2});
}

// Of complex numbers, along one dimension.
Tensor along(const Tensor& self, int64_t dim, double sign) {
  const Tensor moved = self.movedim(dim, -1).contiguous();
  const int64_t n = moved.size(-1);
  const Tensor pairs = at::view_as_real(moved).reshape({moved.numel() / n, n, 2});
  return at::view_as_complex(transform(pairs, sign).contiguous()).reshape(moved.sizes()).movedim(-1, dim);
}

Tensor along_all(Tensor x, IntArrayRef dims, double sign) {
  for (const int64_t dim : dims) x = along(x, at::maybe_wrap_dim(dim, x.dim()), sign);
  return x;
}

// Upstream's fft_norm_mode: nothing, by the root of the number of points, by that number.
Tensor normalized(const Tensor& x, int64_t mode, IntArrayRef sizes, IntArrayRef dims) {
  if (mode == 0) return x;
  double points = 1;
  for (const int64_t dim : dims) points *= static_cast<double>(sizes[at::maybe_wrap_dim(dim, sizes.size())]);
  return x * (mode == 1 ? 1 / std::sqrt(points) : 1 / points);
}

}  // namespace

std::vector<Tensor> composed_fft_c2c(const AtenArguments& a) {
  const Tensor self = a.tensor("self").resolve_conj();
  const auto dims = a["dim"].toIntVector();
  const Tensor y = along_all(self, dims, a["forward"].toBool() ? -1 : 1);
  return {normalized(y, a["normalization"].toInt(), self.sizes(), dims)};
}

std::vector<Tensor> composed_fft_r2c(const AtenArguments& a) {
  const Tensor& self = a.tensor("self");
  const auto dims = a["dim"].toIntVector();
  const int64_t last = at::maybe_wrap_dim(dims.back(), self.dim());
  Tensor x = at::complex(self, at::zeros_like(self));
  x = along(x, last, -1);
  if (a["onesided"].toBool()) x = x.narrow(last, 0, self.size(last) / 2 + 1);
  const Tensor y = along_all(x, IntArrayRef(dims).slice(0, dims.size() - 1), -1);
  return {normalized(y, a["normalization"].toInt(), self.sizes(), dims)};
}

// The second half of the spectrum is the conjugate of the first one, turned round.
std::vector<Tensor> composed_fft_c2r(const AtenArguments& a) {
  const auto dims = a["dim"].toIntVector();
  const int64_t n = a["last_dim_size"].toInt();
  const Tensor self = a.tensor("self").resolve_conj();
  const int64_t last = at::maybe_wrap_dim(dims.back(), self.dim());
  const Tensor x = along_all(self, IntArrayRef(dims).slice(0, dims.size() - 1), 1).narrow(last, 0, n / 2 + 1);
  const int64_t rest = n - (n / 2 + 1);
  const Tensor mirrored = at::conj_physical(x.narrow(last, 1, rest).flip({last}));
  const Tensor whole = rest > 0 ? at::cat({x, mirrored}, last) : x;
  const Tensor y = at::view_as_real(along(whole, last, 1)).select(-1, 0);
  return {normalized(y, a["normalization"].toInt(), y.sizes(), dims)};
}

}  // namespace at::native::npu
