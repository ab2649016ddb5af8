// Linear algebra by those operators of CANN that give what upstream's do. ComposedLu.cpp has what also gives a
// factorisation with pivots, or a status of each matrix instead of an error.

#include <ATen/ATen.h>
#include <ATen/native/npu/frame/command/DeviceOf.h>
#include <ATen/native/npu/frame/command/OpCommand.h>
#include <ATen/native/npu/frame/inference/Allocate.h>
#include <ATen/native/npu/frame/registration/AtenOp.h>
#include <ATen/native/npu/linalg/Matrices.h>

namespace at::native::npu {

DimVector with_tail(const Tensor& t, std::initializer_list<int64_t> tail) {
  DimVector sizes(t.sizes().slice(0, t.dim() - 2));
  sizes.append(tail);
  return sizes;
}

Tensor turned(const Tensor& t) { return t.transpose(-2, -1).conj().resolve_conj(); }

Tensor solve_triangular(const Tensor& matrix, const Tensor& b, const Triangle& triangle, bool left) {
  const auto batch_of = [](const Tensor& t) { return t.sizes().slice(0, t.dim() - 2); };
  const DimVector batch = at::infer_size_dimvector(batch_of(matrix), batch_of(b));
  const auto spread = [&](const Tensor& t) {
    DimVector sizes(batch);
    sizes.append({t.size(-2), t.size(-1)});
    return t.expand(sizes);
  };
  Tensor a = spread(matrix), rhs = spread(b);
  if (triangle.unit) {
    a = a.contiguous().clone();
    a.diagonal(0, -2, -1).fill_(1);
  }
  bool upper = triangle.upper;
  if (!left) {
    a = a.transpose(-2, -1), rhs = rhs.transpose(-2, -1), upper = !upper;
  }
  const Tensor x = empty_npu(rhs.sizes(), rhs.scalar_type(), rhs.device());
  if (x.numel() > 0) {
    OpCommand cmd;
    cmd.Name("MatrixTriangularSolve").Input(a).Input(rhs).Output(x);
    cmd.Attr("lower", !upper).Attr("adjoint", triangle.adjoint).Run();
  }
  return left ? x : x.transpose(-2, -1);
}

namespace {

// By the factor of a matrix: L L^H x = b, or U^H U x = b.
Tensor solve_by_factor(const Tensor& factor, const Tensor& b, bool upper) {
  const Tensor first = solve_triangular(factor, b, {.upper = upper, .adjoint = upper});
  return solve_triangular(factor, first, {.upper = upper, .adjoint = !upper});
}

}  // namespace

LeastSquares least_squares(const Tensor& matrix, const Tensor& b, double limit) {
  const auto [u, values, vh] = at::_linalg_svd(matrix, /*full_matrices=*/false, /*compute_uv=*/true);
  if (values.size(-1) == 0) {
    const Tensor none = at::zeros(values.sizes().slice(0, values.dim() - 1), values.options().dtype(kLong));
    const Tensor rests = at::square(b.abs()).sum(-2);
    return {at::matmul(turned(matrix), b).mul(0), rests, none, values};
  }
  const Tensor counted = values.gt(values.narrow(-1, 0, 1) * limit);
  const Tensor inverse = at::where(counted, at::reciprocal(values), at::zeros_like(values)).unsqueeze(-1);
  const Tensor x = at::matmul(turned(vh), at::matmul(turned(u), b) * inverse);
  const Tensor rests = at::square((b - at::matmul(matrix, x)).abs()).sum(-2);
  return {x, rests, counted.sum(-1), values};
}

std::vector<Tensor> composed_eigh(const AtenArguments& a) {
  const Tensor& self = a.tensor("A");
  const Tensor lower = a["UPLO"].toStringRef() == "L" || a["UPLO"].toStringRef() == "l" ? self : turned(self);
  const bool vectors = a["compute_v"].toBool();
  const int64_t n = self.size(-1);
  const Tensor values = empty_npu(self.sizes().slice(0, self.dim() - 1), self.scalar_type(), self.device());
  const Tensor found = empty_npu(vectors ? self.sizes() : IntArrayRef({0}), self.scalar_type(), self.device());
  if (values.numel() > 0 && n > 0) {
    OpCommand cmd;
    cmd.Name("SelfAdjointEig").Input(lower).Output(values);
    vectors ? cmd.Output(found) : cmd.Output();
    cmd.Attr("compute_v", vectors).Run();
  }
  return {self.is_complex() ? at::real(values).contiguous() : values, found};
}

std::vector<Tensor> composed_qr(const AtenArguments& a) {
  const Tensor& self = a.tensor("A");
  const std::string mode = a["mode"].toStringRef();
  const int64_t m = self.size(-2), n = self.size(-1), k = std::min(m, n);
  const bool full = mode == "complete";
  const Tensor q = empty_npu(with_tail(self, {m, full ? m : k}), self.scalar_type(), self.device());
  const Tensor r = empty_npu(with_tail(self, {full ? m : k, n}), self.scalar_type(), self.device());
  if (k == 0) {
    if (full) q.copy_(at::eye(m, q.options()).expand_as(q));
  } else if (self.numel() > 0) {
    OpCommand cmd;
    cmd.Name("Qr").Input(self).Output(q).Output(r).Attr("full_matrices", full).Run();
  }
  return {mode == "r" ? empty_npu({0}, self.scalar_type(), self.device()) : q, r};
}

std::vector<Tensor> composed_svd(const AtenArguments& a) {
  const Tensor& self = a.tensor("A");
  const bool full = a["full_matrices"].toBool(), vectors = a["compute_uv"].toBool();
  const int64_t m = self.size(-2), n = self.size(-1), k = std::min(m, n);
  const ScalarType type = self.scalar_type();
  DimVector singular(self.sizes().slice(0, self.dim() - 2));
  singular.push_back(k);
  const Tensor s = empty_npu(singular, type, self.device());
  const auto side = [&](int64_t size) {
    return vectors ? empty_npu(with_tail(self, {size, full ? size : k}), type, self.device())
                   : empty_npu({0}, type, self.device());
  };
  const Tensor u = side(m), v = side(n);
  if (k == 0 && vectors && full) {
    u.copy_(at::eye(m, u.options()).expand_as(u));
    v.copy_(at::eye(n, v.options()).expand_as(v));
  } else if (self.numel() > 0) {
    OpCommand cmd;
    cmd.Name("Svd").Input(self).Output(s);
    vectors ? cmd.Output(u).Output(v) : cmd.Output().Output();
    cmd.Attr("compute_uv", vectors).Attr("full_matrices", full).Run();
  }
  return {u, self.is_complex() ? at::real(s) : s, vectors ? turned(v) : v};
}

std::vector<Tensor> composed_solve_triangular(const AtenArguments& a) {
  const Triangle triangle{.upper = a["upper"].toBool(), .unit = a["unitriangular"].toBool()};
  return {solve_triangular(a.tensor("self"), a.tensor("B"), triangle, a["left"].toBool())};
}

std::vector<Tensor> composed_triangular_solve(const AtenArguments& a) {
  const Tensor &b = a.tensor("self"), &given = a.tensor("A");
  const bool upper = a["upper"].toBool(), transposed = a["transpose"].toBool();
  const Tensor matrix = transposed ? given.transpose(-2, -1) : given;
  const Tensor x = solve_triangular(matrix, b, {.upper = upper != transposed, .unit = a["unitriangular"].toBool()});
  return {x, given.clone()};
}

std::vector<Tensor> composed_cholesky_solve(const AtenArguments& a) {
  return {solve_by_factor(a.tensor("A"), a.tensor("self"), a["upper"].toBool())};
}

std::vector<Tensor> composed_cholesky_inverse(const AtenArguments& a) {
  const Tensor& self = a.tensor("self");
  const Tensor unit = at::eye(self.size(-1), self.options()).expand_as(self);
  return {solve_by_factor(self, unit, a["upper"].toBool())};
}

}  // namespace at::native::npu
