#pragma once
// Where the cells of a region of interest lie in an image: as sampled points with bilinear weights, or as windows of
// whole pixels.

#include <algorithm>
#include <cmath>
#include <vector>

#include "ops/nn_util.h"

namespace acl_sim::roi {

// One point as four pixels of a plane and their weights; a point outside has weights of 0.
template <class T>
struct Point {
  int64_t pixel[4] = {0, 0, 0, 0};
  T weight[4] = {0, 0, 0, 0};
};

// Points up to one pixel outside count as on the border.
template <class T>
Point<T> point_at(T y, T x, int64_t height, int64_t width) {
  Point<T> p;
  const T h = static_cast<T>(height), w = static_cast<T>(width);
  if (!(y >= -1 && y <= h && x >= -1 && x <= w)) {
    return p;
  }
  y = std::clamp<T>(y, 0, h - 1);
  x = std::clamp<T>(x, 0, w - 1);
  const auto top = static_cast<int64_t>(y), left = static_cast<int64_t>(x);
  const int64_t bottom = std::min(top + 1, height - 1), right = std::min(left + 1, width - 1);
  const T dy = y - static_cast<T>(top), dx = x - static_cast<T>(left);
  const int64_t pixels[4] = {top * width + left, top * width + right, bottom * width + left, bottom * width + right};
  const T weights[4] = {(1 - dy) * (1 - dx), (1 - dy) * dx, dy * (1 - dx), dy * dx};
  std::copy(pixels, pixels + 4, p.pixel);
  std::copy(weights, weights + 4, p.weight);
  return p;
}

struct Params {
  explicit Params(OpContext& c, size_t scale_input)
      : scale(c.in_scalar(scale_input).toDouble()),
        rows(c.attrs().integer("pooled_height", 1)),
        columns(c.attrs().integer("pooled_width", 1)),
        ratio(c.attrs().integer("sample_num", -1)),
        aligned(c.attrs().boolean("aligned", false)) {}
  int64_t cells() const { return rows * columns; }

  double scale;
  int64_t rows, columns, ratio;
  bool aligned;
};

template <class T>
int64_t image_of(const T* region, int64_t images) {
  const auto image = static_cast<int64_t>(region[0]);
  if (!(image >= 0 && image < images)) {
    refuse("a region is of image " + std::to_string(image) + ", but there are " + std::to_string(images) + " images");
  }
  return image;
}

// All points of a region, cell after cell. `at_least_one` enlarges regions that are smaller than a pixel.
template <class T>
struct Points {
  Points(const Params& p, const T* region, int64_t height, int64_t width, bool half_pixel, bool at_least_one) {
    const T scale = static_cast<T>(p.scale), offset = half_pixel ? T(0.5) : T(0);
    const T x0 = region[1] * scale - offset, y0 = region[2] * scale - offset;
    T w = region[3] * scale - offset - x0, h = region[4] * scale - offset - y0;
    if (at_least_one) {
      w = std::max<T>(w, 1);
      h = std::max<T>(h, 1);
    }
    const T cell_h = h / static_cast<T>(p.rows), cell_w = w / static_cast<T>(p.columns);
    const auto grid_h = p.ratio > 0 ? p.ratio : static_cast<int64_t>(std::ceil(cell_h));
    const auto grid_w = p.ratio > 0 ? p.ratio : static_cast<int64_t>(std::ceil(cell_w));
    count = static_cast<T>(grid_h * grid_w);
    per_cell = grid_h > 0 && grid_w > 0 ? grid_h * grid_w : 0;
    all.reserve(static_cast<size_t>(per_cell * p.cells()));
    for (int64_t i = 0; per_cell > 0 && i < p.cells(); ++i) {
      const T top = static_cast<T>(i / p.columns) * cell_h + y0, left = static_cast<T>(i % p.columns) * cell_w + x0;
      for (int64_t a = 0; a < grid_h; ++a) {
        const T y = top + (static_cast<T>(a) + T(0.5)) * cell_h / static_cast<T>(grid_h);
        for (int64_t b = 0; b < grid_w; ++b) {
          const T x = left + (static_cast<T>(b) + T(0.5)) * cell_w / static_cast<T>(grid_w);
          all.push_back(point_at<T>(y, x, height, width));
        }
      }
    }
  }
  T sum(int64_t cell, const T* plane) const {
    T total = 0;
    for (int64_t i = cell * per_cell; i < (cell + 1) * per_cell; ++i) {
      const Point<T>& p = all[static_cast<size_t>(i)];
      total += p.weight[0] * plane[p.pixel[0]] + p.weight[1] * plane[p.pixel[1]] + p.weight[2] * plane[p.pixel[2]] +
               p.weight[3] * plane[p.pixel[3]];
    }
    return total;
  }
  void spread(int64_t cell, T value, T* plane) const {
    for (int64_t i = cell * per_cell; i < (cell + 1) * per_cell; ++i) {
      const Point<T>& p = all[static_cast<size_t>(i)];
      for (int k = 0; k < 4; ++k) {
        plane[p.pixel[k]] += p.weight[k] * value;
      }
    }
  }

  int64_t per_cell;
  T count;
  std::vector<Point<T>> all;
};

// A cell as whole pixels: rows [top, bottom) and columns [left, right).
struct Window {
  int64_t top, bottom, left, right;
  bool empty() const { return bottom <= top || right <= left; }
  int64_t area() const { return (bottom - top) * (right - left); }
};

// The windows of a region whose corners are rounded to pixels, and cut to [0, last_y] x [0, last_x]. `inclusive`: the
// last corner is a pixel of the region.
template <class T>
std::vector<Window> windows(const Params& p, const T* region, bool inclusive, int64_t last_y, int64_t last_x) {
  const auto corner = [&](int i) { return static_cast<int64_t>(std::round(region[i] * static_cast<T>(p.scale))); };
  const int64_t x0 = corner(1), y0 = corner(2), last = inclusive ? 1 : 0;
  const T cell_w = static_cast<T>(std::max<int64_t>(corner(3) - x0 + last, 1)) / static_cast<T>(p.columns);
  const T cell_h = static_cast<T>(std::max<int64_t>(corner(4) - y0 + last, 1)) / static_cast<T>(p.rows);
  const auto first = [](int64_t i, T size) { return static_cast<int64_t>(std::floor(static_cast<T>(i) * size)); };
  const auto past = [](int64_t i, T size) { return static_cast<int64_t>(std::ceil(static_cast<T>(i + 1) * size)); };
  std::vector<Window> all;
  for (int64_t i = 0; i < p.rows; ++i) {
    for (int64_t j = 0; j < p.columns; ++j) {
      all.push_back({std::clamp<int64_t>(first(i, cell_h) + y0, 0, last_y),
                     std::clamp<int64_t>(past(i, cell_h) + y0, 0, last_y),
                     std::clamp<int64_t>(first(j, cell_w) + x0, 0, last_x),
                     std::clamp<int64_t>(past(j, cell_w) + x0, 0, last_x)});
    }
  }
  return all;
}

}  // namespace acl_sim::roi
