// Non-maximum suppression and overlaps of rotated boxes.

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "ops/nn_util.h"

namespace acl_sim {
namespace {

using at::Tensor;

struct Box {
  float x1, y1, x2, y2;
  float area() const { return (x2 - x1) * (y2 - y1); }
};

Box box_at(const float* p) {
  return {std::min(p[0], p[2]), std::min(p[1], p[3]), std::max(p[0], p[2]), std::max(p[1], p[3])};
}

float overlap(const Box& a, const Box& b) {
  const float w = std::min(a.x2, b.x2) - std::max(a.x1, b.x1), h = std::min(a.y2, b.y2) - std::max(a.y1, b.y1);
  if (w <= 0 || h <= 0) return 0;
  return w * h / (a.area() + b.area() - w * h);
}

// Indices by falling score; equal scores keep their order.
std::vector<int64_t> by_score(const float* scores, int64_t n, int64_t step = 1) {
  std::vector<int64_t> order(n);
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int64_t a, int64_t b) { return scores[a * step] > scores[b * step]; });
  return order;
}

// box_scores (N, 5) -> the boxes by falling score, their indices, and whether each survives
void nms_with_mask(OpContext& c) {
  const Tensor all = widen(c.in(0));
  const auto limit = static_cast<float>(c.attrs().real("iou_threshold", 0.5));
  const int64_t n = all.size(0), width = all.size(1);
  const float* p = all.const_data_ptr<float>();
  const std::vector<int64_t> order = by_score(p + 4, n, width);
  std::vector<uint8_t> kept(n, 1);
  for (int64_t i = 0; i < n; ++i) {
    if (!kept[i]) continue;
    for (int64_t j = i + 1; j < n; ++j) {
      if (kept[j] && overlap(box_at(p + order[i] * width), box_at(p + order[j] * width)) > limit) kept[j] = 0;
    }
  }
  const Tensor index = at::tensor(order, at::kLong);
  c.out(0).copy_(all.index_select(0, index).narrow(1, 0, 5));
  c.out(1).copy_(index);
  c.out(2).copy_(at::tensor(at::ArrayRef<uint8_t>(kept), at::kByte));
}
SIM_OP(NMSWithMask).costly().inputs(1).outputs(3).dtypes(kFloatTypes).attrs({"iou_threshold:float"}).run(nms_with_mask);

// boxes (N, 4), scores (N), max_output_size, iou_threshold, score_threshold -> indices, padded with zeros, and count
void nms_v4(OpContext& c) {
  const Tensor boxes = widen(c.in(0)), scores = widen(c.in(1));
  const auto most = static_cast<size_t>(c.in_scalar(2).toLong());
  const float limit = c.in_scalar(3).toFloat(), least = c.in_scalar(4).toFloat();
  const float* p = boxes.const_data_ptr<float>();
  const float* s = scores.const_data_ptr<float>();
  std::vector<int64_t> kept;
  for (const int64_t i : by_score(s, scores.numel())) {
    if (kept.size() >= most || !(s[i] > least)) break;
    const auto covers = [&](int64_t k) { return overlap(box_at(p + 4 * k), box_at(p + 4 * i)) > limit; };
    if (std::none_of(kept.begin(), kept.end(), covers)) kept.push_back(i);
  }
  Tensor index = c.out(0);
  index.zero_();
  index.narrow(0, 0, static_cast<int64_t>(kept.size())).copy_(at::tensor(kept, at::kLong));
  c.out(1).fill_(static_cast<int64_t>(kept.size()));
}
SIM_OP(NonMaxSuppressionV4)
    .costly()
    .inputs(5)
    .outputs(2)
    .dtypes({kFloatTypes, kFloatTypes, kIntTypes, kFloatTypes, kFloatTypes})
    .attrs({"pad_to_max_output_size:bool"})
    .run(nms_v4);

struct Candidate {
  float score;
  int64_t box, kind;
};

// boxes (B, N, q, 4), scores (B, N, classes) -> boxes, scores, classes (B, total) and counts (B)
void batch_multi_class_nms(OpContext& c) {
  Tensor boxes = widen(c.in(0)), scores = widen(c.in(1));
  if (c.attrs().boolean("transpose_box", false)) {
    boxes = boxes.permute({0, 3, 1, 2}).contiguous();
    scores = scores.transpose(1, 2).contiguous();
  }
  const int64_t batch = boxes.size(0), n = boxes.size(1), q = boxes.size(2), kinds = scores.size(2);
  if (scores.size(0) != batch || scores.size(1) != n || (q != 1 && q != kinds)) refuse("boxes and scores do not fit");
  const auto least = static_cast<float>(c.attrs().real("score_threshold", 0));
  const auto limit = static_cast<float>(c.attrs().real("iou_threshold", 0.5));
  const auto per_class = static_cast<size_t>(c.attrs().integer("max_size_per_class", 1));
  const int64_t total = c.attrs().integer("max_total_size", 1);
  const Tensor out_boxes = at::zeros({batch, total, 4}), out_scores = at::zeros({batch, total});
  const Tensor out_kinds = at::zeros({batch, total}), counts = at::zeros({batch}, at::kInt);
  for (int64_t b = 0; b < batch; ++b) {
    const float* p = boxes.const_data_ptr<float>() + b * n * q * 4;
    const float* s = scores.const_data_ptr<float>() + b * n * kinds;
    std::vector<Candidate> found;
    for (int64_t k = 0; k < kinds; ++k) {
      std::vector<int64_t> kept;
      const auto place = [&](int64_t i) { return box_at(p + (i * q + (q == 1 ? 0 : k)) * 4); };
      for (const int64_t i : by_score(s + k, n, kinds)) {
        if (kept.size() >= per_class || !(s[i * kinds + k] > least)) break;
        const auto covers = [&](int64_t other) { return overlap(place(other), place(i)) > limit; };
        if (std::none_of(kept.begin(), kept.end(), covers)) kept.push_back(i);
      }
      for (const int64_t i : kept) found.push_back({s[i * kinds + k], i * q + (q == 1 ? 0 : k), k});
    }
    std::stable_sort(found.begin(), found.end(), [](auto& x, auto& y) { return x.score > y.score; });
    const int64_t count = std::min(static_cast<int64_t>(found.size()), total);
    for (int64_t i = 0; i < count; ++i) {
      const Candidate& f = found[i];
      std::copy_n(p + f.box * 4, 4, out_boxes.data_ptr<float>() + (b * total + i) * 4);
      out_scores.data_ptr<float>()[b * total + i] = f.score;
      out_kinds.data_ptr<float>()[b * total + i] = static_cast<float>(f.kind);
    }
    counts.data_ptr<int>()[b] = static_cast<int>(count);
  }
  c.out(0).copy_(out_boxes);
  c.out(1).copy_(out_scores);
  c.out(2).copy_(out_kinds);
  c.out(3).copy_(counts);
}
SIM_OP(BatchMultiClassNonMaxSuppression)
    .costly()
    .inputs(2)
    .outputs(4)
    .dtypes(kFloatTypes)
    .attrs({"score_threshold:float", "iou_threshold:float", "max_size_per_class:int", "max_total_size:int",
            "change_coordinate_frame:bool", "transpose_box:bool"})
    .require({"score_threshold", "iou_threshold", "max_size_per_class", "max_total_size"})
    .run(batch_multi_class_nms);

// ---- rotated boxes

struct Point {
  double x, y;
};
double cross(Point a, Point b) { return a.x * b.y - a.y * b.x; }

struct RotatedBox {
  double x, y, w, h, angle;
  double area() const { return w * h; }
  std::array<Point, 4> corners() const {
    const double c = std::cos(angle) / 2, s = std::sin(angle) / 2;
    return {Point{x - c * w + s * h, y - s * w - c * h}, Point{x + c * w + s * h, y + s * w - c * h},
            Point{x + c * w - s * h, y + s * w + c * h}, Point{x - c * w - s * h, y - s * w + c * h}};
  }
};

constexpr double kDegree = 3.14159265358979323846 / 180;

RotatedBox rotated_at(const float* p, int64_t step, bool corners) {
  const double a = p[0], b = p[step], d = p[2 * step], e = p[3 * step], angle = p[4 * step] * kDegree;
  return corners ? RotatedBox{(a + d) / 2, (b + e) / 2, d - a, e - b, angle} : RotatedBox{a, b, d, e, angle};
}

// The area that two convex quadrilaterals share: the one is cut by each side of the other.
double shared_area(const RotatedBox& a, const RotatedBox& b) {
  if (a.w <= 0 || a.h <= 0 || b.w <= 0 || b.h <= 0) return 0;
  const auto clip = b.corners();
  const auto first = a.corners();
  std::vector<Point> polygon(first.begin(), first.end());
  for (size_t i = 0; i < 4 && !polygon.empty(); ++i) {
    const Point from = clip[i], to = clip[(i + 1) % 4], along{to.x - from.x, to.y - from.y};
    const auto height = [&](Point p) { return cross(along, {p.x - from.x, p.y - from.y}); };
    std::vector<Point> rest;
    for (size_t k = 0; k < polygon.size(); ++k) {
      const Point p = polygon[k], q = polygon[(k + 1) % polygon.size()];
      const double hp = height(p), hq = height(q);
      if (hp >= 0) rest.push_back(p);
      if ((hp > 0 && hq < 0) || (hp < 0 && hq > 0)) {
        const double t = hp / (hp - hq);
        rest.push_back({p.x + t * (q.x - p.x), p.y + t * (q.y - p.y)});
      }
    }
    polygon = std::move(rest);
  }
  double area = 0;
  for (size_t k = 0; k < polygon.size(); ++k) area += cross(polygon[k], polygon[(k + 1) % polygon.size()]);
  return std::max(area / 2, 0.0);
}

double rotated_overlap(const RotatedBox& a, const RotatedBox& b, bool over_first) {
  const double shared = shared_area(a, b);
  const double whole = over_first ? a.area() : a.area() + b.area() - shared;
  return whole > 0 ? shared / whole : 0;
}

// boxes (B, 5, N), query (B, 5, K) -> (B, N, K), or (B, N) one to one
template <class Value>
void each_pair(OpContext& c, bool cross_pairs, const Value& value) {
  const Tensor a = widen(c.in(0)), b = widen(c.in(1));
  const bool corners = c.attrs().boolean("trans", false);
  const int64_t n = a.size(2), k = b.size(2);
  const Tensor result = at::empty(c.out(0).sizes(), at::kFloat);
  float* out = result.data_ptr<float>();
  for (int64_t batch = 0; batch < a.size(0); ++batch) {
    const float* pa = a.const_data_ptr<float>() + batch * 5 * n;
    const float* pb = b.const_data_ptr<float>() + batch * 5 * k;
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t j = cross_pairs ? 0 : i; j < (cross_pairs ? k : i + 1); ++j) {
        *out++ = static_cast<float>(value(rotated_at(pa + i, n, corners), rotated_at(pb + j, k, corners)));
      }
    }
  }
  c.out(0).copy_(result);
}

void rotated_overlaps(OpContext& c) { each_pair(c, true, shared_area); }
SIM_OP(RotatedOverlaps).costly().inputs(2).dtypes(kFloatTypes).attrs({"trans:bool"}).run(rotated_overlaps);

void rotated_iou(OpContext& c) {
  const bool iof = c.attrs().text("mode", "iou") == "iof";
  each_pair(c, c.attrs().boolean("is_cross", true),
            [&](const RotatedBox& a, const RotatedBox& b) { return rotated_overlap(a, b, iof); });
}
SIM_OP(RotatedIou)
    .costly()
    .inputs(2)
    .dtypes(kFloatTypes)
    .attrs({"trans:bool", "mode:str", "is_cross:bool", "v_threshold:float", "e_threshold:float"})
    .run(rotated_iou);

// dets (N, 5), scores (N) -> indices (room for N), count; mode 0: x, y, w, h, angle; 1: corners and angle
void rotated_nms(OpContext& c) {
  const Tensor dets = widen(c.in(0)), scores = widen(c.in(1));
  const bool corners = c.attrs().integer("mode", 0) == 1;
  const double limit = c.attrs().real("iou_threshold", 0.5), least = c.attrs().real("scores_threshold", 0);
  const int64_t n = dets.size(0), most = c.attrs().integer("max_output_size", -1);
  const float* p = dets.const_data_ptr<float>();
  const float* s = scores.const_data_ptr<float>();
  std::vector<int64_t> kept;
  for (const int64_t i : by_score(s, n)) {
    if ((most >= 0 && static_cast<int64_t>(kept.size()) >= most) || !(s[i] > least)) break;
    const RotatedBox mine = rotated_at(p + 5 * i, 1, corners);
    const auto covers = [&](int64_t k) {
      return rotated_overlap(rotated_at(p + 5 * k, 1, corners), mine, false) > limit;
    };
    if (std::none_of(kept.begin(), kept.end(), covers)) kept.push_back(i);
  }
  Tensor index = c.out(0);
  index.zero_();
  index.narrow(0, 0, static_cast<int64_t>(kept.size())).copy_(at::tensor(kept, at::kLong));
  c.out(1).fill_(static_cast<int64_t>(kept.size()));
}
SIM_OP(RotatedNmsLimited)
    .costly()
    .inputs(2)
    .outputs(2)
    .dtypes(kFloatTypes)
    .attrs({"iou_threshold:float", "scores_threshold:float", "max_output_size:int", "mode:int"})
    .run(rotated_nms);

}  // namespace
}  // namespace acl_sim
