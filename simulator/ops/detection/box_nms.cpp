// Greedy non-maximum suppression of plain boxes: the best box is kept and removes those that overlap it too much.
//
// Note [Kept boxes in a grid]
// A box is compared with better boxes that were kept, and only with those in its neighbourhood: kept boxes are entered
// into the cells of a grid that they touch. Boxes without a common cell have no common area, so none removes the other.
// That is not so for a negative threshold, which any two boxes exceed, nor for corners that are no numbers; these
// are compared with all.

#include <cmath>

#include "ops/nn_util.h"

namespace acl_sim {
namespace {

using at::Tensor;

template <class T>
struct Boxes {
  // Rows x0, y0, x1, y1, best first.
  explicit Boxes(const Tensor& sorted)
      : count(sorted.size(1)),
        x0(sorted.const_data_ptr<T>()),
        y0(x0 + count),
        x1(y0 + count),
        y1(x1 + count),
        area(static_cast<size_t>(count)) {
    for (int64_t i = 0; i < count; ++i) area[static_cast<size_t>(i)] = (x1[i] - x0[i]) * (y1[i] - y0[i]);
  }

  bool overlap(int64_t i, int64_t j, double threshold) const {
    const T width = std::max<T>(0, std::min(x1[i], x1[j]) - std::max(x0[i], x0[j]));
    const T height = std::max<T>(0, std::min(y1[i], y1[j]) - std::max(y0[i], y0[j]));
    const T both = width * height;
    return static_cast<double>(both / (area[static_cast<size_t>(i)] + area[static_cast<size_t>(j)] - both)) > threshold;
  }

  int64_t count;
  const T *x0, *y0, *x1, *y1;
  std::vector<T> area;
};

// See Note [Kept boxes in a grid].
template <class T>
class Grid {
 public:
  explicit Grid(const Boxes<T>& boxes) : boxes_(boxes) {
    T least_x = boxes.x0[0], least_y = boxes.y0[0], most_x = boxes.x1[0], most_y = boxes.y1[0];
    double width = 0, height = 0;
    for (int64_t i = 0; i < boxes.count; ++i) {
      least_x = std::min(least_x, boxes.x0[i]);
      least_y = std::min(least_y, boxes.y0[i]);
      most_x = std::max(most_x, boxes.x1[i]);
      most_y = std::max(most_y, boxes.y1[i]);
      width += std::max(0.0, static_cast<double>(boxes.x1[i]) - static_cast<double>(boxes.x0[i]));
      height += std::max(0.0, static_cast<double>(boxes.y1[i]) - static_cast<double>(boxes.y0[i]));
    }
    left_ = static_cast<double>(least_x);
    top_ = static_cast<double>(least_y);
    const auto n = static_cast<double>(boxes.count);
    columns_ = cells(static_cast<double>(most_x) - left_, width / n);
    rows_ = cells(static_cast<double>(most_y) - top_, height / n);
    per_x_ = static_cast<double>(columns_) / std::max(static_cast<double>(most_x) - left_, 1e-300);
    per_y_ = static_cast<double>(rows_) / std::max(static_cast<double>(most_y) - top_, 1e-300);
    members_.resize(static_cast<size_t>(rows_ * columns_));
  }

  // Whether a box that was entered removes box j.
  bool removes(int64_t j, double threshold) const {
    bool found = false;
    each_cell(j, [&](size_t cell) {
      const std::vector<int64_t>& members = members_[cell];
      for (size_t k = 0; k < members.size() && !found; ++k) found = boxes_.overlap(members[k], j, threshold);
      return found;
    });
    return found;
  }

  void enter(int64_t i) {
    each_cell(i, [&](size_t cell) {
      members_[cell].push_back(i);
      return false;
    });
  }

 private:
  // Of about the boxes' mean size, and no more than pay for themselves.
  static int64_t cells(double extent, double mean) {
    constexpr double kMost = 64;
    return static_cast<int64_t>(std::clamp(mean > 0 ? extent / mean : 1.0, 1.0, kMost));
  }
  static int64_t cell(double at, double per, int64_t count) {
    return static_cast<int64_t>(std::clamp(at * per, 0.0, static_cast<double>(count - 1)));
  }

  // Until `visit` says that it has seen enough.
  template <class F>
  void each_cell(int64_t i, const F& visit) const {
    const int64_t first = cell(static_cast<double>(boxes_.x0[i]) - left_, per_x_, columns_);
    const int64_t last = cell(static_cast<double>(boxes_.x1[i]) - left_, per_x_, columns_);
    const int64_t low = cell(static_cast<double>(boxes_.y0[i]) - top_, per_y_, rows_);
    const int64_t high = cell(static_cast<double>(boxes_.y1[i]) - top_, per_y_, rows_);
    for (int64_t row = low; row <= high; ++row) {
      for (int64_t column = first; column <= last; ++column) {
        if (visit(static_cast<size_t>(row * columns_ + column))) return;
      }
    }
  }

  const Boxes<T>& boxes_;
  double left_, top_, per_x_, per_y_;
  int64_t columns_, rows_;
  std::vector<std::vector<int64_t>> members_;
};

template <class T>
int64_t keep(const Tensor& boxes, const Tensor& order, double threshold, int64_t* kept) {
  const Tensor sorted = boxes.index_select(0, order).t().contiguous();
  const Boxes<T> all(sorted);
  const int64_t* original = order.const_data_ptr<int64_t>();
  int64_t count = 0;
  if (all.count == 0) return 0;
  const T* numbers = sorted.const_data_ptr<T>();
  if (threshold >= 0 && std::all_of(numbers, numbers + 4 * all.count, [](T v) { return std::isfinite(v); })) {
    Grid<T> grid(all);
    for (int64_t j = 0; j < all.count; ++j) {
      if (grid.removes(j, threshold)) continue;
      grid.enter(j);
      kept[count++] = original[j];
    }
    return count;
  }
  std::vector<int64_t> best;
  for (int64_t j = 0; j < all.count; ++j) {
    if (std::any_of(best.begin(), best.end(), [&](int64_t i) { return all.overlap(i, j, threshold); })) continue;
    best.push_back(j);
    kept[count++] = original[j];
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

SIM_OP(Nms).costly().inputs(3).outputs(2).dtypes(kFloatTypes).run(nms);

}  // namespace
}  // namespace acl_sim
