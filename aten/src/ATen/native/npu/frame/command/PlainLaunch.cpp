// Launches of operators whose descriptors depend on name, dtypes and one shape.

#include <ATen/native/npu/frame/command/PlainLaunch.h>

#include <ATen/native/npu/frame/command/CompileMode.h>
#include <ATen/native/npu/frame/command/Launcher.h>
#include <ATen/native/npu/frame/command/OperandOrder.h>
#include <ATen/native/npu/frame/command/PreparedCache.h>
#include <ATen/native/npu/frame/inference/Dtype.h>

namespace at::native::npu {

namespace {

constexpr size_t kMostOperands = 4;

[[gnu::flatten]] inline void* address(const TensorImpl& t, size_t item) {
  return static_cast<char*>(t.unsafe_storage().unsafeGetStorageImpl()->mutable_data()) +
         static_cast<size_t>(t.storage_offset()) * item;
}

// Of a tensor that is only read: a lazily cloned storage stays shared.
[[gnu::flatten]] inline void* read_address(const TensorImpl& t, size_t item) {
  const void* data = t.unsafe_storage().unsafeGetStorageImpl()->data();
  return static_cast<char*>(const_cast<void*>(data)) + static_cast<size_t>(t.storage_offset()) * item;
}

// The operands of a plain command: no host values, nothing to keep but addresses.
struct PlainOperands {
  std::array<Memory, kMostOperands> list;
  Memory* memory() { return list.data(); }
  const Memory* memory() const { return list.data(); }
};

}  // namespace

[[gnu::flatten]] void launch_plain(const char* ir, const TensorImpl& out, const TensorImpl* const* in, size_t count) {
  const IntArrayRef sizes = out.sizes();
  const size_t rank = sizes.size();
  TORCH_CHECK(rank <= kMostKeyDims, ir, " takes tensors of up to ", kMostKeyDims, " dimensions, not ", rank);
  // The key of Note [Command keys]: all operands have the dims of the first.
  std::array<int64_t, 4 + kMostKeyDims> key;
  const aclDataType dtype = operand_dtype(ir, typeMetaToScalarType(in[0]->dtype()));
  const uint32_t first = operand_word(dtype, rank, false);
  const uint32_t further = operand_word(dtype, rank, true);
  const uint32_t last = operand_word(operand_dtype(ir, typeMetaToScalarType(out.dtype())), rank, true);
  key[0] = reinterpret_cast<int64_t>(ir);
  key[1] = count_word(count, 1);
  key[2] = pair_word(first, count == 1 ? last : further);
  size_t words = 3;
  if (count > 1) key[words++] = count == 2 ? pair_word(last, 0) : pair_word(further, last);
  for (const int64_t size : sizes) key[words++] = size;

  const auto elements = static_cast<size_t>(out.numel());
  const size_t in_item = in[0]->itemsize(), out_item = out.itemsize();
  launch_command<PlainOperands>(c10::npu::getCurrentNPUStream(out.device().index()), ir,
                                PreparedCache::local().get({key.data(), words}), [&](PlainOperands& operands) {
                                  for (size_t i = 0; i < count; ++i) {
                                    operands.list[i] = {read_address(*in[i], in_item), elements * in_item};
                                  }
                                  operands.list[count] = {address(out, out_item), elements * out_item};
                                });
}

}  // namespace at::native::npu
