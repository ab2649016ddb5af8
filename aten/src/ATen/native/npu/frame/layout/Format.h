#pragma once
// Tensors that device memory holds in one of the device's own formats (NC1HWC0, FRACTAL_Z, FRACTAL_NZ, ...).
//
// Note [Formats]
// A storage in such a format looks to everybody like the plain one: its size is that of the plain elements. Its
// DataPtr, however, owns a StoredFormat: the format, the sizes before and after, and the memory where the elements
// really lie, padded and arranged as the format says. An operator that meets the storage, through whatever view, gets
// a plain copy (one TransData), and a result goes back through another. So the format lasts until a cast ends it.
// A storage may also merely bear the name of another plain format (NHWC for NCHW): then there is nothing to convert.

#include <acl/acl_base.h>

#include <ATen/core/Tensor.h>
#include <c10/core/StorageImpl.h>
#include <c10/util/DimVector.h>

#include <atomic>
#include <optional>

namespace at::native::npu {

struct StoredFormat {
  aclFormat format;
  bool is_private;  // the memory is not that of a contiguous tensor
  Tensor memory;    // of the storage sizes; plain by itself
  DimVector sizes;  // of the tensor that was cast
  ScalarType dtype;
  int64_t c0;  // channels, or columns, of a block
};

// How many storages with a StoredFormat live: as long as there are none, looking for one costs a load.
extern std::atomic<int64_t> stored_formats;
// The deleter that marks their DataPtr.
void release_stored_format(void* format);

inline const StoredFormat* stored_format(const StorageImpl* storage) {
  if (C10_LIKELY(stored_formats.load(std::memory_order_relaxed) == 0)) return nullptr;
  const DataPtr& data = storage->data_ptr();
  if (data.get_deleter() != &release_stored_format) return nullptr;
  return static_cast<const StoredFormat*>(data.get_context());
}
inline bool in_private_format(const TensorImpl& t) {
  if (C10_LIKELY(stored_formats.load(std::memory_order_relaxed) == 0) || !t.has_storage()) return false;
  const StoredFormat* format = stored_format(t.unsafe_storage().unsafeGetStorageImpl());
  return format != nullptr && format->is_private;
}
inline bool in_private_format(const Tensor& t) { return in_private_format(*t.unsafeGetTensorImpl()); }

// The same view over other memory: that of the storage of `base`.
Tensor view_over(const Tensor& view, const Tensor& base);
// The memory that the caching allocator knows of.
const DataPtr& allocation_of(const Tensor& t);

// The format that a tensor is in; a view of a storage in a private format counts as plain.
int64_t format_of(const Tensor& t);
// The block that a customize_dtype asks for: the number of a dtype, as ScalarType has it, or none.
int64_t block_for(const Tensor& t, int64_t format, std::optional<int64_t> customize_dtype);
// Whether a cast to the format, with blocks of c0, would change nothing. A tensor of fewer than two dimensions keeps
// its plain format.
bool already_in(const Tensor& t, int64_t format, int64_t c0);
// A format that the device knows.
struct FormatName {
  aclFormat format;
  const char* name;
  bool is_private;
};
const FormatName& named_format(int64_t format);
// The plain format of tensors of so many dimensions.
aclFormat natural_format(int64_t rank);
// The sizes in memory of a tensor of `sizes`, and in `seen` the plain sizes that TransData works on.
DimVector stored_sizes(const FormatName& format, IntArrayRef sizes, int64_t c0, DimVector& seen);
// Whether the tensor is the whole of what was cast to the format.
bool fills_storage(const Tensor& t, const StoredFormat& format);
inline StorageImpl* storage_of(const Tensor& t) { return t.storage().unsafeGetStorageImpl(); }
// Elements of the format's smallest block of rows.
constexpr int64_t kFormatBlock = 16;

}  // namespace at::native::npu
