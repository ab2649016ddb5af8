// Softmax over the elements that a COO tensor names: what it does not name is no zero, it takes no part.

#include <ATen/native/npu/sparse/Sparse.h>
#include <ATen/native/npu/sparse/SparseKernels.h>

#include <ATen/ATen.h>
#include <ATen/native/npu/frame/command/DeviceOf.h>
#include <ATen/native/npu/frame/inference/Composed.h>

#include <limits>

namespace at::native::npu::sparse {
namespace {

// Elements that are normalized together have one number. There are no more groups than elements, which spares asking
// the device how many there are.
class Groups {
 public:
  Groups(const Tensor& t, int64_t dim) : count_(t._nnz()) {
    DimVector others;
    for (int64_t d = 0; d < t.sparse_dim(); ++d) {
      if (d != dim) others.push_back(d);
    }
    const auto [sorted, order] = places_along(t._indices(), t.sizes(), others).sort();
    const Tensor first = at::zeros({1}, sorted.options());
    const Tensor later = sorted.narrow(0, 1, count_ - 1).ne(sorted.narrow(0, 0, count_ - 1)).cumsum(0);
    group_ = at::empty_like(order).scatter_(0, order, at::cat({first, later}));
  }

  Tensor largest(const Tensor& values) const {
    const Tensor none = at::full_like(values, -std::numeric_limits<double>::infinity());
    return spread(none.scatter_reduce(0, group_.view(column(values)).expand_as(values), values, "amax"));
  }
  Tensor sum(const Tensor& values) const { return spread(sum_by_place(values, group_, count_)); }

 private:
  static DimVector column(const Tensor& values) {
    DimVector sizes(values.dim(), 1);
    sizes[0] = values.size(0);
    return sizes;
  }
  Tensor spread(const Tensor& of_groups) const { return of_groups.index_select(0, group_); }

  int64_t count_;
  Tensor group_;
};

Tensor like(const Tensor& t, const Tensor& values) {
  return make_coo(t.sizes(), t._indices().clone(), values.to(t.scalar_type()), true);
}

Tensor normalized(const Tensor& self, int64_t dim, bool half_to_float, bool log) {
  DeviceOf guard(self);
  TORCH_CHECK(!half_to_float, log ? "log_softmax" : "softmax",
              ": with half to float conversion is not supported on npu");
  dim = at::maybe_wrap_dim(dim, self.dim());
  const Tensor t = self.coalesce();
  if (t._nnz() == 0) return t.clone();
  const Tensor values = t._values();
  if (dim >= t.sparse_dim()) {
    const int64_t along = dim - t.sparse_dim() + 1;
    return like(t, log ? at::_log_softmax(values, along, false) : at::_softmax(values, along, false));
  }
  const Groups groups(t, dim);
  const Tensor wide_values = wide(values, values.scalar_type());
  const Tensor lower = wide_values.sub(groups.largest(wide_values)), e = lower.exp();
  return like(t, log ? lower.sub(groups.sum(e).log()) : e.div(groups.sum(e)));
}

Tensor gradient(const Tensor& grad, const Tensor& output, int64_t dim, const Tensor& self, bool log) {
  check_devices(log ? "_sparse_log_softmax_backward_data" : "_sparse_softmax_backward_data", {self, grad, output});
  DeviceOf guard(self);
  TORCH_CHECK(grad.scalar_type() == self.scalar_type(), log ? "log_softmax" : "softmax",
              " backward: grad and input must have one dtype, got ", grad.scalar_type(), " and ", self.scalar_type());
  dim = at::maybe_wrap_dim(dim, self.dim());
  const Tensor result = output.coalesce();
  if (result._nnz() == 0) return result.clone();
  const Tensor values = result._values(), given = grad.sparse_mask(result)._values();
  if (dim >= result.sparse_dim()) {
    const int64_t along = dim - result.sparse_dim() + 1;
    return like(result, log ? at::_log_softmax_backward_data(given, values, along, self.scalar_type())
                            : at::_softmax_backward_data(given, values, along, self.scalar_type()));
  }
  const Groups groups(result, dim);
  const Tensor y = wide(values, values.scalar_type()), dy = wide(given, values.scalar_type());
  return like(result, log ? dy.sub(y.exp().mul(groups.sum(dy))) : y.mul(dy.sub(groups.sum(y.mul(dy)))));
}

}  // namespace

Tensor softmax(const Tensor& self, int64_t dim, bool half_to_float) {
  return normalized(self, dim, half_to_float, /*log=*/false);
}

Tensor log_softmax(const Tensor& self, int64_t dim, bool half_to_float) {
  return normalized(self, dim, half_to_float, /*log=*/true);
}

Tensor softmax_backward(const Tensor& grad, const Tensor& output, int64_t dim, const Tensor& self) {
  return gradient(grad, output, dim, self, /*log=*/false);
}

Tensor log_softmax_backward(const Tensor& grad, const Tensor& output, int64_t dim, const Tensor& self) {
  return gradient(grad, output, dim, self, /*log=*/true);
}

}  // namespace at::native::npu::sparse
