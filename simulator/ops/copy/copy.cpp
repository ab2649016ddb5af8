// Data movement: copies, casts, views made contiguous and written back, concatenation, and memory that is filled.

#include "ops/common.h"
#include "ops/copy/strided.h"
#include "ops/tiny.h"

#include <ATen/CPUFunctions.h>

#include <c10/util/DimVector.h>

#include <algorithm>
#include <cstring>

namespace acl_sim {
namespace {

using at::DimVector;
using at::Tensor;

void identity(OpContext& c) {
  const Tensor x = c.in_any(0);
  Tensor y = out_for(c, x);
  y.copy_(x);
}
bool identity_tiny(aclDataType dtype, void* out, const void* const* in, int64_t n) {
  return tiny::with_real(dtype, [&]<class T>(T) {
    std::memmove(out, in[0], static_cast<size_t>(n) * sizeof(T));
    return true;
  });
}
SIM_OP(Identity).inputs(1).dtypes(kAllTypes).tiny(identity_tiny).run(identity);

// The output's descriptor holds the target dtype; the attribute is CANN's.
SIM_OP(Cast).inputs(1).dtypes(kAllTypes).attrs({"dst_type:int"}).require({"dst_type"}).run(identity);

// An operand that is given as NCHW in the dims of its descriptor.
Tensor in_described_dims(const Tensor& t, aclFormat format) {
  if (t.dim() == 4 && format == ACL_FORMAT_HWCN) return t.permute({2, 3, 1, 0});
  if (t.dim() == 4 && format == ACL_FORMAT_NHWC) return t.permute({0, 2, 3, 1});
  return t;
}

// Where both sides may lie as the device likes, images and filters that only change between NCHW and channels-last are
// blocks of memory that stay as they are: Note [Stored layouts].
constexpr int64_t kImageElements = 16384;  // a smaller one is not worth the entry in the map

void transpose(OpContext& c) {
  const std::vector<int64_t> perm = c.in_values(1);
  const aclFormat format = c.out_format(0);
  const Tensor x = in_described_dims(c.in_any(0), c.in_format(0)).permute(perm);
  const bool to_planes = perm == std::vector<int64_t>{0, 3, 1, 2} && x.numel() >= kImageElements &&
                         x.is_contiguous(at::MemoryFormat::ChannelsLast);
  const bool described = x.dim() == 4 && (format == ACL_FORMAT_HWCN || format == ACL_FORMAT_NHWC);
  const Tensor y = described   ? in_described_dims(c.out_channels_last(0), format)
                   : to_planes ? c.out_channels_last(0)
                               : c.out(0);
  if (!copy_turned(y, x)) y.copy_(x);
}
SIM_OP(Transpose).inputs(2).dtypes(kAllTypes).image_formats().run(transpose);

void broadcast_to(OpContext& c) {
  const Tensor x = c.in(0);
  c.out(0).copy_(x.expand(c.in_values(1)));
}
SIM_OP(BroadcastTo).inputs(2).dtypes(kAllTypes).run(broadcast_to);

// x (a block of memory), size, stride, offset
void as_strided(OpContext& c) {
  const Tensor x = c.in(0);
  const Tensor view = x.as_strided(c.in_values(1), c.in_values(2), c.in_values(3).at(0) + x.storage_offset());
  const Tensor y = c.out(0);
  if (!copy_in_steps(y, view)) y.copy_(view);
}
SIM_OP(AsStrided).inputs(4).dtypes(kAllTypes).run(as_strided);

// dst, dst_size, dst_stride, dst_offset, src, src_size, src_stride, src_offset -> dst
void view_copy(OpContext& c) {
  const Tensor source = c.in(4);
  const Tensor from = source.as_strided(c.in_values(5), c.in_values(6), c.in_values(7).at(0) + source.storage_offset());
  const Tensor target = in_place(c);
  const Tensor to = target.as_strided(c.in_values(1), c.in_values(2), c.in_values(3).at(0) + target.storage_offset());
  if (!copy_in_steps(to, from)) to.copy_(from);
}
SIM_OP(ViewCopy).inputs(8).dtypes(kAllTypes).run(view_copy);

void concat(OpContext& c) {
  std::vector<Tensor> parts;
  for (size_t i = 0; i < c.num_inputs(); ++i) parts.push_back(c.in(i));
  Tensor y = c.out(0);
  at::cpu::cat_out(y, parts, c.attrs().integer("concat_dim", 0));
}
SIM_OP(ConcatD)
    .inputs(1, kManyInputs)
    .dtypes(kAllTypes)
    .attrs({"concat_dim:int", "N:int"})
    .require({"concat_dim"})
    .run(concat);

void pack(OpContext& c) {
  std::vector<Tensor> parts;
  for (size_t i = 0; i < c.num_inputs(); ++i) parts.push_back(c.in(i));
  Tensor y = c.out(0);
  at::stack_out(y, parts, c.attrs().integer("axis", 0));
}
SIM_OP(Pack).inputs(1, kManyInputs).dtypes(kAllTypes).attrs({"axis:int", "N:int"}).run(pack);

// dims, value
// Small outputs are filled without a trip through ATen.
constexpr size_t kFewBytes = size_t{64} << 10;

void fill(OpContext& c) {
  const Tensor y = c.out(0), value = c.in(1);
  const size_t bytes = y.nbytes(), item = y.itemsize();
  if (bytes > kFewBytes || bytes == 0 || value.numel() != 1 || value.scalar_type() != y.scalar_type()) {
    y.fill_(c.in_scalar(1));
    return;
  }
  auto* data = static_cast<char*>(y.mutable_data_ptr());
  std::memcpy(data, value.const_data_ptr(), item);
  for (size_t done = item; done < bytes; done *= 2) std::memcpy(data + done, data, std::min(done, bytes - done));
}
SIM_OP(Fill).inputs(2).dtypes(kAllTypes).run(fill);

void zeros(OpContext& c) {
  const Tensor y = c.out(0);
  if (const size_t bytes = y.nbytes(); bytes > kFewBytes) {
    y.zero_();
  } else if (bytes > 0) {
    std::memset(y.mutable_data_ptr(), 0, bytes);
  }
}
SIM_OP(ZerosLike).inputs(1).dtypes(kAllTypes).run(zeros);

// start, limit, delta
void range(OpContext& c) {
  Tensor y = c.out(0);
  at::cpu::arange_out(y, c.in_scalar(0), c.in_scalar(1), c.in_scalar(2));
}
SIM_OP(Range).inputs(3).dtypes(kRealTypes).run(range);

// start, stop, num
void linspace(OpContext& c) {
  Tensor y = c.out(0);
  at::cpu::linspace_out(y, c.in_scalar(0), c.in_scalar(1), c.in_scalar(2).toLong());
}
SIM_OP(LinSpace).inputs(3).dtypes(kAllTypes).run(linspace);

void logspace(OpContext& c) {
  Tensor y = c.out(0);
  at::cpu::logspace_out(y, c.in_scalar(0), c.in_scalar(1), c.in_scalar(2).toLong(), c.in_scalar(3).toDouble());
}
SIM_OP(LogSpace).inputs(4).dtypes(kAllTypes).run(logspace);

void eye(OpContext& c) {
  Tensor y = c.out(0);
  at::cpu::eye_out(y, c.attrs().integer("num_rows", 0), c.attrs().integer("num_columns", 0));
}
SIM_OP(Eye).inputs(0).dtypes(kAllTypes).attrs({"num_rows:int", "num_columns:int"}).require({"num_rows"}).run(eye);

void tril(OpContext& c) {
  Tensor y = c.out(0);
  at::cpu::tril_out(y, c.in(0), c.attrs().integer("diagonal", 0));
}
SIM_OP(Tril).inputs(1).dtypes(kAllTypes).attrs({"diagonal:int"}).run(tril);

void triu(OpContext& c) {
  Tensor y = c.out(0);
  at::cpu::triu_out(y, c.in(0), c.attrs().integer("diagonal", 0));
}
SIM_OP(Triu).inputs(1).dtypes(kAllTypes).attrs({"diagonal:int"}).run(triu);

// x, axes
void reverse(OpContext& c) { c.out(0).copy_(at::flip(c.in(0), c.in_values(1))); }
SIM_OP(ReverseV2).inputs(2).dtypes(kAllTypes).run(reverse);

void roll(OpContext& c) {
  c.place_next_allocation(0);
  c.set_out(0, at::roll(c.in(0), c.attrs().integers("shifts"), c.attrs().integers("dims")));
}
SIM_OP(Roll).inputs(1).dtypes(kAllTypes).attrs({"shifts:ints", "dims:ints"}).require({"shifts"}).run(roll);

// x, multiples
void tile(OpContext& c) {
  const Tensor x = c.in(0);
  c.out(0).copy_(x.repeat(c.in_values(1)));
}
SIM_OP(Tile).inputs(2).dtypes(kAllTypes).run(tile);

}  // namespace
}  // namespace acl_sim
