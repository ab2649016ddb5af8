// Greedy non-maximum suppression of plain boxes: the best box is kept and removes those that overlap it too much.

#include "ops/nn_util.h"

namespace acl_sim {
namespace {

using at::Tensor;

template <class T>
int64_t keep(const Tensor& boxes, const Tensor& order, double threshold, int64_t* kept) {
  const int64_t n = boxes.size(0);
  // Rows x0, y0, x1, y1 of the boxes, best first.
  const Tensor sorted = boxes.index_select(0, order).t().contiguous();
  const T *x0 = sorted.const_data_ptr<T>(), *y0 = x0 + n, *x1 = y0 + n, *y1 = x1 + n;
  const int64_t* original = order.const_data_ptr<int64_t>();
  std::vector<uint8_t> removed(static_cast<size_t>(n), 0);
  uint8_t* gone = removed.data();
  int64_t count = 0;
  for (int64_t i = 0; i < n; ++i) {
    if (gone[i] != 0) {
      continue;
    }
    kept[count++] = original[i];
    const T area = (x1[i] - x0[i]) * (y1[i] - y0[i]);
    for (int64_t j = i + 1; j < n; ++j) {
      const T width = std::max<T>(0, std::min(x1[i], x1[j]) - std::max(x0[i], x0[j]));
      const T height = std::max<T>(0, std::min(y1[i], y1[j]) - std::max(y0[i], y0[j]));
      const T both = width * height, other = (x1[j] - x0[j]) * (y1[j] - y0[j]);
      gone[j] |= static_cast<double>(both / (area + other - both)) > threshold ? 1 : 0;
    }
  }
  return count;
}

// inputs boxes [n, 4], scores [n], iou_threshold; outputs selected_indices [n], of which the first valid_outputs count
void nms(OpContext& c) {
  const Tensor boxes = widen(c.in(0));
  const double threshold = c.in_scalar(2).toDouble();
  const Tensor order = std::get<1>(at::sort(c.in(1), /*stable=*/true, /*dim=*/0, /*descending=*/true));
  int64_t* kept = c.out(0).mutable_data_ptr<int64_t>();
  c.out(1).fill_(boxes.scalar_type() == at::kDouble ? keep<double>(boxes, order, threshold, kept)
                                                    : keep<float>(boxes, order, threshold, kept));
}

SIM_OP(Nms).inputs(3).outputs(2).dtypes(kFloatTypes).run(nms);

}  // namespace
}  // namespace acl_sim
