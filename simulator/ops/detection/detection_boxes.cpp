// Boxes of object detectors: their encodings, and overlaps of axis-aligned ones. Corners are x1, y1, x2, y2.

#include <ATen/Parallel.h>

#include <algorithm>

#include "ops/nn_util.h"

namespace acl_sim {
namespace {

using at::Tensor;

// Where a box of the legacy Faster R-CNN (both corners belong to it) lies: centres and sizes, columns of (N, 4).
struct Placed {
  Tensor x, y, w, h;
  Placed(const Tensor& boxes, double extra)
      : x((boxes.select(1, 0) + boxes.select(1, 2)) * 0.5),
        y((boxes.select(1, 1) + boxes.select(1, 3)) * 0.5),
        w(boxes.select(1, 2) - boxes.select(1, 0) + extra),
        h(boxes.select(1, 3) - boxes.select(1, 1) + extra) {}
};

Tensor row_of(OpContext& c, const char* name, double otherwise) {
  const std::vector<double> values = c.attrs().reals(name, std::vector<double>(4, otherwise));
  if (values.size() != 4) refuse(std::string(name) + " has 4 numbers");
  return at::tensor(values, at::kFloat);
}

// rois, deltas -> boxes
void bounding_box_decode(OpContext& c) {
  const Tensor rois = widen(c.in(0));
  const Tensor d = widen(c.in(1)) * row_of(c, "stds", 1) + row_of(c, "means", 0);
  const std::vector<int64_t> most = c.attrs().integers("max_shape");
  const double limit = std::abs(std::log(c.attrs().real("wh_ratio_clip", 0.016)));
  const Placed p(rois, 1.0);
  const Tensor w = p.w * d.select(1, 2).clamp(-limit, limit).exp(), h = p.h * d.select(1, 3).clamp(-limit, limit).exp();
  const Tensor x = p.x + p.w * d.select(1, 0), y = p.y + p.h * d.select(1, 1);
  const auto inside = [&](const Tensor& t, int64_t size) {
    return most.empty() ? t : t.clamp(0, static_cast<double>(size - 1));
  };
  const int64_t height = most.empty() ? 0 : most[0], width = most.empty() ? 0 : most.back();
  c.out(0).copy_(at::stack({inside(x - w * 0.5 + 0.5, width), inside(y - h * 0.5 + 0.5, height),
                            inside(x + w * 0.5 - 0.5, width), inside(y + h * 0.5 - 0.5, height)},
                           1));
}
SIM_OP(BoundingBoxDecode)
    .inputs(2)
    .dtypes(kFloatTypes)
    .attrs({"means:floats", "stds:floats", "max_shape:ints", "wh_ratio_clip:float"})
    .require({"max_shape"})
    .run(bounding_box_decode);

// anchors, ground truth -> deltas
void bounding_box_encode(OpContext& c) {
  const Placed p(widen(c.in(0)), 1.0), g(widen(c.in(1)), 1.0);
  // A turned-over box counts by the size of its sides.
  const Tensor d =
      at::stack({(g.x - p.x) / p.w, (g.y - p.y) / p.h, (g.w / p.w).abs().log(), (g.h / p.h).abs().log()}, 1);
  c.out(0).copy_((d - row_of(c, "means", 0)) / row_of(c, "stds", 1));
}
SIM_OP(BoundingBoxEncode).inputs(2).dtypes(kFloatTypes).attrs({"means:floats", "stds:floats"}).run(bounding_box_encode);

// Corners of boxes (N, 4), each in an array of its own.
struct Columns {
  Tensor rows;
  const float *x1, *y1, *x2, *y2;
  explicit Columns(const Tensor& boxes) : rows(boxes.to(at::kFloat).t().contiguous()) {
    const float* all = rows.const_data_ptr<float>();
    const int64_t n = rows.size(1);
    x1 = all, y1 = all + n, x2 = all + 2 * n, y2 = all + 3 * n;
  }
  int64_t size() const { return rows.size(1); }
  float area(int64_t i) const { return (x2[i] - x1[i]) * (y2[i] - y1[i]); }
};

// bboxes (N, 4), gtboxes (M, 4) -> overlaps (M, N): intersection over union, or over the ground truth's area
void iou(OpContext& c) {
  const Columns b(c.in(0)), g(c.in(1));
  const bool over_truth = c.attrs().text("mode", "iou") == "iof";
  const Tensor y = at::empty(c.out(0).sizes(), at::kFloat);
  float* out = y.mutable_data_ptr<float>();
  const int64_t columns = b.size();
  at::parallel_for(0, g.size(), 1 + (1 << 14) / (columns + 1), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const float x1 = g.x1[i], y1 = g.y1[i], x2 = g.x2[i], y2 = g.y2[i], truth = g.area(i);
      float* row = out + i * columns;
      for (int64_t j = 0; j < columns; ++j) {
        const float w = std::max(std::min(b.x2[j], x2) - std::max(b.x1[j], x1), 0.0F);
        const float h = std::max(std::min(b.y2[j], y2) - std::max(b.y1[j], y1), 0.0F);
        const float inner = w * h, whole = over_truth ? truth : b.area(j) + truth - inner;
        row[j] = whole > 0 ? inner / whole : 0.0F;  // boxes without an area overlap nothing
      }
    }
  });
  c.out(0).copy_(y);
}
const std::vector<std::string> kIouAttrs = {"mode:str", "eps:float", "aligned:bool"};
SIM_OP(Iou).inputs(2).dtypes(kFloatTypes).attrs(kIouAttrs).run(iou);
SIM_OP(PtIou).inputs(2).dtypes(kFloatTypes).attrs({"mode:str"}).run(iou);

constexpr double kEpsilon = 1e-10;

// Corners and sides of boxes (4, N), given as corners or as centre and size.
struct Corners {
  Tensor x1, y1, x2, y2, w, h;
  Corners(const Tensor& b, bool centred) {
    if (centred) {
      x1 = b[0] - b[2] / 2, x2 = b[0] + b[2] / 2, y1 = b[1] - b[3] / 2, y2 = b[1] + b[3] / 2;
    } else {
      x1 = b[0], y1 = b[1], x2 = b[2], y2 = b[3];
    }
    w = x2 - x1, h = y2 - y1;
  }
  void each_with_each(bool rows) {
    for (Tensor* t : {&x1, &y1, &x2, &y2, &w, &h}) *t = rows ? t->unsqueeze(1) : t->unsqueeze(0);
  }
};

// bboxes (4, N), gtboxes (4, M) -> (M, N) if is_cross, else (1, N) with N == M
void giou(OpContext& c) {
  const bool centred = c.attrs().boolean("trans", false), cross = c.attrs().boolean("is_cross", true);
  Corners b(widen(c.in(0)), centred), g(widen(c.in(1)), centred);
  b.each_with_each(false);
  g.each_with_each(cross);
  if (!cross) {
    for (Tensor* t : {&g.x1, &g.y1, &g.x2, &g.y2, &g.w, &g.h}) *t = t->reshape({1, -1});
  }
  const Tensor inner = (at::minimum(b.x2, g.x2) - at::maximum(b.x1, g.x1)).clamp_min(0) *
                       (at::minimum(b.y2, g.y2) - at::maximum(b.y1, g.y1)).clamp_min(0);
  const Tensor together = b.w * b.h + g.w * g.h - inner + kEpsilon;
  const Tensor base = c.attrs().text("mode", "iou") == "iof" ? g.w * g.h + kEpsilon : together;
  const Tensor closure =
      (at::maximum(b.x2, g.x2) - at::minimum(b.x1, g.x1)) * (at::maximum(b.y2, g.y2) - at::minimum(b.y1, g.y1)) +
      kEpsilon;
  c.out(0).copy_(inner / base - (closure - together) / closure);
}
SIM_OP(GIoU).inputs(2).dtypes(kFloatTypes).attrs({"trans:bool", "is_cross:bool", "mode:str"}).run(giou);

// Where `a` is the one that a minimum or maximum of a and b takes; ties count half.
Tensor taken(const Tensor& a, const Tensor& b, bool maximum) {
  return (maximum ? a > b : a < b).to(at::kFloat) + 0.5 * (a == b).to(at::kFloat);
}

// grad (N), bboxes, gtboxes (4, N) -> their gradients
void giou_grad(OpContext& c) {
  const bool centred = c.attrs().boolean("trans", false);
  const Tensor grad = widen(c.in(0)).reshape({-1});
  const Corners b(widen(c.in(1)), centred), g(widen(c.in(2)), centred);
  const Tensor iw = (at::minimum(b.x2, g.x2) - at::maximum(b.x1, g.x1)).clamp_min(0);
  const Tensor ih = (at::minimum(b.y2, g.y2) - at::maximum(b.y1, g.y1)).clamp_min(0);
  const Tensor cw = at::maximum(b.x2, g.x2) - at::minimum(b.x1, g.x1);
  const Tensor ch = at::maximum(b.y2, g.y2) - at::minimum(b.y1, g.y1);
  const Tensor inner = iw * ih, united = b.w * b.h + g.w * g.h - inner + kEpsilon, closure = cw * ch + kEpsilon;
  // giou = inner / united - 1 + united / closure, and united falls as inner grows.
  const Tensor by_united = grad * (1 / closure - inner / (united * united));
  const Tensor by_closure = -grad * united / (closure * closure);
  const Tensor by_inner = grad / united - by_united;
  const Tensor meet = at::logical_and(iw > 0, ih > 0).to(at::kFloat);
  const Tensor by_iw = by_inner * ih * meet, by_ih = by_inner * iw * meet;
  const Tensor by_cw = by_closure * ch, by_ch = by_closure * cw;
  const auto of = [&](const Corners& mine, const Corners& other, size_t output) {
    const Tensor by_w = by_united * mine.h, by_h = by_united * mine.w;
    const Tensor x1 = -by_iw * taken(mine.x1, other.x1, true) - by_cw * taken(mine.x1, other.x1, false) - by_w;
    const Tensor y1 = -by_ih * taken(mine.y1, other.y1, true) - by_ch * taken(mine.y1, other.y1, false) - by_h;
    const Tensor x2 = by_iw * taken(mine.x2, other.x2, false) + by_cw * taken(mine.x2, other.x2, true) + by_w;
    const Tensor y2 = by_ih * taken(mine.y2, other.y2, false) + by_ch * taken(mine.y2, other.y2, true) + by_h;
    c.out(output).copy_(centred ? at::stack({x1 + x2, y1 + y2, (x2 - x1) / 2, (y2 - y1) / 2})
                                : at::stack({x1, y1, x2, y2}));
  };
  of(b, g, 0);
  of(g, b, 1);
}
SIM_OP(GIoUGrad)
    .inputs(3)
    .outputs(2)
    .dtypes(kFloatTypes)
    .attrs({"trans:bool", "is_cross:bool", "mode:str"})
    .run(giou_grad);

constexpr double kDegree = 3.14159265358979323846 / 180;

// Rotated boxes (B, 5, N): corners of the unturned box and an angle in degrees.
struct Turned {
  Tensor x, y, w, h, slope;
  explicit Turned(const Tensor& t)
      : x((t.select(1, 0) + t.select(1, 2)) * 0.5),
        y((t.select(1, 1) + t.select(1, 3)) * 0.5),
        w(t.select(1, 2) - t.select(1, 0)),
        h(t.select(1, 3) - t.select(1, 1)),
        slope((t.select(1, 4) * kDegree).tan()) {}
};

Tensor weight_of(OpContext& c) {
  const std::vector<double> weight = c.attrs().reals("weight", std::vector<double>(5, 1.0));
  if (weight.size() != 5) refuse("weight has 5 numbers");
  return at::tensor(weight, at::kFloat).view({1, 5, 1});
}

void rotated_box_encode(OpContext& c) {
  const Turned a(widen(c.in(0))), g(widen(c.in(1)));
  c.out(0).copy_(
      at::stack({(g.x - a.x) / a.w, (g.y - a.y) / a.h, (g.w / a.w).log(), (g.h / a.h).log(), g.slope - a.slope}, 1) *
      weight_of(c));
}
SIM_OP(RotatedBoxEncode).inputs(2).dtypes(kFloatTypes).attrs({"weight:floats"}).run(rotated_box_encode);

void rotated_box_decode(OpContext& c) {
  const Turned a(widen(c.in(0)));
  const Tensor d = widen(c.in(1)) / weight_of(c);
  const Tensor x = a.x + d.select(1, 0) * a.w, y = a.y + d.select(1, 1) * a.h;
  const Tensor w = a.w * d.select(1, 2).exp() / 2, h = a.h * d.select(1, 3).exp() / 2;
  c.out(0).copy_(at::stack({x - w, y - h, x + w, y + h, (a.slope + d.select(1, 4)).atan() / kDegree}, 1));
}
SIM_OP(RotatedBoxDecode).inputs(2).dtypes(kFloatTypes).attrs({"weight:floats"}).run(rotated_box_decode);

// anchors, ground truth (N, 4), stride (N) -> the targets that YOLO's heads learn
void yolo_boxes_encode(OpContext& c) {
  constexpr double kSmall = 1e-6;
  const Placed p(widen(c.in(0)), 0.0), g(widen(c.in(1)), 0.0);
  const Tensor stride = c.in(2).to(at::kFloat);
  const auto place = [&](const Tensor& d) { return (d / stride + 0.5).clamp(kSmall, 1 - kSmall); };
  c.out(0).copy_(at::stack(
      {place(g.x - p.x), place(g.y - p.y), (g.w / p.w).clamp_min(kSmall).log(), (g.h / p.h).clamp_min(kSmall).log()},
      1));
}
SIM_OP(YoloBoxesEncode)
    .inputs(3)
    .dtypes({kFloatTypes, kFloatTypes, kIntTypes})
    .attrs({"performance_mode:str"})
    .run(yolo_boxes_encode);

// Boxes -> a flag for each anchor of each cell of the feature map: does a box have its centre there?
void anchor_response_flags(OpContext& c) {
  const std::vector<int64_t> size = c.attrs().integers("featmap_size"), stride = c.attrs().integers("strides");
  const int64_t anchors = c.attrs().integer("num_base_anchors", 1);
  if (size.size() != 2 || stride.size() != 2) refuse("featmap_size and strides have two numbers each");
  const Placed p(c.in(0).to(at::kFloat), 0.0);
  const Tensor column = (p.x / stride[0]).floor().to(at::kLong), row = (p.y / stride[1]).floor().to(at::kLong);
  const Tensor cell = row * size[1] + column;
  const Tensor inside = at::logical_and(cell >= 0, cell < size[0] * size[1]);
  const Tensor flags = at::zeros({size[0] * size[1]}, at::kByte);
  flags.index_fill_(0, cell.masked_select(inside), 1);
  c.out(0).copy_(flags.unsqueeze(1).expand({-1, anchors}).reshape({-1}));
}
SIM_OP(AnchorResponseFlags)
    .inputs(1)
    .dtypes(kFloatTypes)
    .attrs({"featmap_size:ints", "strides:ints", "num_base_anchors:int"})
    .require({"featmap_size", "strides", "num_base_anchors"})
    .run(anchor_response_flags);

// assigned (n), overlaps (k, n), flags (n), max_overlaps, argmax (n), gt_max_overlaps, gt_argmax (k), num_gts (1)
void grid_assign_positive(OpContext& c) {
  const Tensor overlaps = widen(c.in(1)), flags = c.in(2).to(at::kBool);
  const Tensor best = widen(c.in(3)), which = c.in(4).to(at::kFloat);
  const Tensor gt_best = widen(c.in(5)), gt_which = c.in(6).to(at::kLong);
  const int64_t count = std::min(c.in_values(7).at(0), overlaps.size(0));
  const double least = c.attrs().real("min_pos_iou", 0);
  const bool all = c.attrs().boolean("gt_max_assign_all", true);
  Tensor assigned = c.in(0).to(at::kFloat);
  assigned = at::where(at::logical_and(best > c.attrs().real("pos_iou_thr", 0.5), flags), which + 1, assigned);
  for (int64_t i = 0; i < count; ++i) {
    const double most = gt_best[i].item<double>();
    if (!(most > least)) continue;
    if (all) {
      assigned = at::where(at::logical_and(overlaps[i] == gt_best[i], flags), static_cast<double>(i + 1), assigned)
                     .to(at::kFloat);
    } else if (const int64_t at = gt_which[i].item<int64_t>(); flags[at].item<bool>()) {
      assigned[at].fill_(i + 1);
    }
  }
  c.out(0).copy_(assigned);
}
SIM_OP(GridAssignPositive)
    .inputs(8)
    .dtypes({kFloatTypes, kFloatTypes, kAllTypes, kFloatTypes, kIntTypes, kFloatTypes, kIntTypes, kIntTypes})
    .attrs({"pos_iou_thr:float", "min_pos_iou:float", "gt_max_assign_all:bool"})
    .require({"pos_iou_thr", "min_pos_iou", "gt_max_assign_all"})
    .run(grid_assign_positive);

}  // namespace
}  // namespace acl_sim
