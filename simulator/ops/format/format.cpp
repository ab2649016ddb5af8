// TransData: between plain tensors and the device's private formats, in which the dimensions that the cube unit works
// on are padded to whole blocks and the blocks are stored one after the other.

#include "ops/nn_util.h"

namespace acl_sim {
namespace {

using at::Tensor;

// How a plain tensor becomes private: pad, split the padded dimensions, permute.
struct Arrangement {
  at::DimVector padded, split, order;
};

int64_t whole(int64_t n, int64_t block) { return (n + block - 1) / block * block; }

bool is_plain(const std::string& name) {
  return name == "ND" || name == "NCHW" || name == "NHWC" || name == "NCDHW" || name == "NDHWC";
}

Arrangement arrangement(const std::string& format, at::IntArrayRef s, int64_t c0) {
  constexpr int64_t kBlock = 16;
  const auto rank = static_cast<int64_t>(s.size());
  if (format == "FRACTAL_NZ" && rank >= 2) {
    const int64_t rows = whole(s[rank - 2], kBlock), columns = whole(s[rank - 1], c0);
    Arrangement a{at::DimVector(s.begin(), s.end() - 2), at::DimVector(s.begin(), s.end() - 2), {}};
    a.padded.append({rows, columns});
    a.split.append({rows / kBlock, kBlock, columns / c0, c0});
    for (int64_t d = 0; d < rank - 2; ++d) a.order.push_back(d);
    a.order.append({rank, rank - 2, rank - 1, rank + 1});
    return a;
  }
  const bool volume = format == "NDC1HWC0" || format == "FRACTAL_Z_3D";
  if (rank != (volume ? 5 : 4)) refuse("TransData: " + format + " is no format of " + std::to_string(rank) + " dims");
  const int64_t n = whole(s[0], kBlock), c = whole(s[1], c0);
  if (format == "NC1HWC0") {
    return {{s[0], c, s[2], s[3]}, {s[0], c / c0, c0, s[2], s[3]}, {0, 1, 3, 4, 2}};
  }
  if (format == "FRACTAL_Z") {
    return {{n, c, s[2], s[3]}, {n / kBlock, kBlock, c / c0, c0, s[2], s[3]}, {2, 4, 5, 0, 1, 3}};
  }
  if (format == "NDC1HWC0") {
    return {{s[0], c, s[2], s[3], s[4]}, {s[0], c / c0, c0, s[2], s[3], s[4]}, {0, 3, 1, 4, 5, 2}};
  }
  if (format == "FRACTAL_Z_3D") {
    return {{n, c, s[2], s[3], s[4]}, {n / kBlock, kBlock, c / c0, c0, s[2], s[3], s[4]}, {4, 2, 5, 6, 0, 1, 3}};
  }
  refuse("TransData: there is no format " + format);
}

// The first elements along each dimension.
Tensor corner(Tensor t, at::IntArrayRef sizes) {
  for (size_t d = 0; d < sizes.size(); ++d) t = t.narrow(static_cast<int64_t>(d), 0, sizes[d]);
  return t;
}

void trans_data(OpContext& c) {
  const std::string source = c.attrs().text("src_format", ""), target = c.attrs().text("dst_format", "");
  const Tensor x = c.in(0);
  const Tensor y = c.out(0);
  if (is_plain(source) == is_plain(target)) {
    refuse("TransData goes between a plain and a private format, not from " + source + " to " + target);
  }
  const bool inwards = is_plain(source);
  const int64_t c0 = (inwards ? y : x).size(-1);  // the private side ends with the block
  const at::IntArrayRef sizes = inwards ? x.sizes() : y.sizes();
  const Arrangement a = arrangement(inwards ? target : source, sizes, c0);
  at::DimVector stored;
  for (const int64_t d : a.order) stored.push_back(a.split[d]);
  if (c10::multiply_integers(a.padded) != (inwards ? y : x).numel()) {
    refuse("TransData: the private side has the wrong number of elements");
  }
  Tensor padded = inwards ? at::zeros(a.padded, x.options()) : at::empty(a.padded, x.options());
  const Tensor arranged = padded.view(a.split).permute(a.order);
  if (inwards) {
    corner(padded, sizes).copy_(x);
    y.view(stored).copy_(arranged);
  } else {
    arranged.copy_(x.view(stored));
    y.copy_(corner(padded, sizes));
  }
}

SIM_OP(TransData)
    .inputs(1)
    .dtypes(kAllTypes)
    .attrs({"src_format:str", "dst_format:str", "groups:int", "src_subformat:int", "dst_subformat:int"})
    .require({"src_format", "dst_format"})
    .run(trans_data);

}  // namespace
}  // namespace acl_sim
