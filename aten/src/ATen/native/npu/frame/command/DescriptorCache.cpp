// Keys of commands, look-up of prepared descriptors, and building them from a key.

#include <ATen/native/npu/frame/command/DescriptorCache.h>

#include <acl_loader.h>
#include <c10/npu/NPUException.h>
#include <c10/npu/NPUFunctions.h>

#include <algorithm>
#include <vector>

namespace at::native::npu {

namespace acl = c10::npu::acl;

namespace {

uint64_t hash_of(c10::IntArrayRef key) {
  // Independent products, so that they overlap; odd multipliers that differ keep the order of words.
  constexpr uint64_t kStep = 0x9E3779B97F4A7C16ULL;
  uint64_t multiplier = 0xFF51AFD7ED558CCDULL;
  uint64_t h = key.size();
  for (const int64_t word : key) {
    h += (static_cast<uint64_t>(word) ^ (static_cast<uint64_t>(word) >> 32)) * multiplier;
    multiplier += kStep;
  }
  h ^= h >> 29;
  h *= 0xBF58476D1CE4E5B9ULL;
  return h ^ h >> 32;
}

uint32_t operand_of(c10::IntArrayRef key, size_t i) {
  return static_cast<uint32_t>(static_cast<uint64_t>(key[CommandKey::kFirstOperand + i / 2]) >> (i % 2 * 32));
}

aclTensorDesc* describe(uint32_t operand, const int64_t* dims) {
  const int rank = static_cast<int>(operand >> 8 & 0x7F);
  auto format = static_cast<aclFormat>(static_cast<int>(operand >> 17) - 1);
  if (format == ACL_FORMAT_UNDEFINED) {
    // Four dimensions may be images; what an operator means by them is its own business.
    format = rank == 4 ? ACL_FORMAT_NCHW : rank == 5 ? ACL_FORMAT_NCDHW : ACL_FORMAT_ND;
  }
  const auto dtype = static_cast<aclDataType>(static_cast<int>(operand & 0xFF) - 1);
  aclTensorDesc* desc = acl::aclCreateTensorDesc(dtype, rank, dims, format);
  TORCH_CHECK(desc != nullptr, "An operator on npu cannot have an operand of ", rank,
              " dimensions: reshape it to fewer");
  if ((operand >> 16 & 1) != 0) NPU_CHECK(acl::aclSetTensorPlaceMent(desc, ACL_MEMTYPE_HOST));
  return desc;
}

}  // namespace

void Prepared::build() {
  const c10::IntArrayRef key(key_);
  const size_t count = num_inputs_ + static_cast<uint32_t>(key[1]);
  size_t at = CommandKey::kFirstOperand + (count + 1) / 2;
  const int64_t* dims = nullptr;
  for (size_t i = 0; i < count; ++i) {
    const uint32_t operand = operand_of(key, i);
    if (operand == 0) {
      descs_.push_back(acl::aclCreateTensorDesc(ACL_DT_UNDEFINED, 0, nullptr, ACL_FORMAT_UNDEFINED));
      continue;
    }
    if ((operand >> 15 & 1) == 0) {
      dims = key.data() + at;
      at += operand >> 8 & 0x7F;
    }
    descs_.push_back(describe(operand, dims));
  }
  attributes_ = acl::aclopCreateAttr();
  while (at < key.size()) {
    const auto bytes = static_cast<size_t>(key[at + 1] >> 8);
    set_attribute(reinterpret_cast<const char*>(key[at]), static_cast<int>(key[at + 1] & 0xFF), key.data() + at + 2,
                  bytes);
    at += 2 + (bytes + sizeof(int64_t) - 1) / sizeof(int64_t);
  }
}

void Prepared::set_attribute(const char* name, int kind, const int64_t* value, size_t bytes) {
  const int count = static_cast<int>(bytes / sizeof(int64_t));
  switch (kind) {
    case 'b':
      NPU_CHECK(acl::aclopSetAttrBool(attributes_, name, static_cast<uint8_t>(*value)));
      break;
    case 'i':
      NPU_CHECK(acl::aclopSetAttrInt(attributes_, name, *value));
      break;
    case 't':
      NPU_CHECK(acl::aclopSetAttrDataType(attributes_, name, static_cast<aclDataType>(*value)));
      break;
    case 'f':
      NPU_CHECK(acl::aclopSetAttrFloat(attributes_, name, static_cast<float>(*reinterpret_cast<const double*>(value))));
      break;
    case 's':
      NPU_CHECK(acl::aclopSetAttrString(attributes_, name, reinterpret_cast<const char*>(value)));
      break;
    case 'I':
      NPU_CHECK(acl::aclopSetAttrListInt(attributes_, name, count, value));
      break;
    case 'B': {
      const std::vector<uint8_t> narrow(value, value + count);
      NPU_CHECK(acl::aclopSetAttrListBool(attributes_, name, count, narrow.data()));
      break;
    }
    default: {
      const auto* reals = reinterpret_cast<const double*>(value);
      const std::vector<float> narrow(reals, reals + count);
      NPU_CHECK(acl::aclopSetAttrListFloat(attributes_, name, count, narrow.data()));
      break;
    }
  }
}

Prepared::~Prepared() {
  for (const auto* desc : descs_) acl::aclDestroyTensorDesc(desc);
  if (attributes_ != nullptr) acl::aclopDestroyAttr(attributes_);
}

namespace {

thread_local DescriptorCache* own_cache __attribute__((tls_model("initial-exec"))) = nullptr;

// Takes a thread's cache away when the thread ends, but not at the end of the process, when ACL may be gone already,
// nor in a forked child, where its locks may be held for ever. What launches still later gets one that stays.
struct CacheEnd {
  ~CacheEnd() {
    if (!c10::npu::is_shut_down() && !c10::npu::is_in_bad_fork()) delete own_cache;
    own_cache = nullptr;
  }
};

}  // namespace

DescriptorCache& DescriptorCache::local() {
  if (C10_UNLIKELY(own_cache == nullptr)) {
    static thread_local CacheEnd end;
    static_cast<void>(end);
    own_cache = new DescriptorCache();
  }
  return *own_cache;
}

Prepared& DescriptorCache::get(c10::IntArrayRef key) {
  const uint64_t hash = hash_of(key);
  if (C10_LIKELY(slots_ != nullptr)) {
    for (size_t i = hash & (kSlots - 1);; i = (i + 1) & (kSlots - 1)) {
      Prepared* entry = slots_[i].get();
      if (C10_UNLIKELY(entry == nullptr)) break;
      if (C10_LIKELY(entry->is(hash, key))) return *entry;
    }
  }
  return insert(hash, key);
}

Prepared& DescriptorCache::insert(uint64_t hash, c10::IntArrayRef key) {
  auto prepared = c10::make_intrusive<Prepared>(hash, key);
  prepared->build();
  if (slots_ == nullptr) {
    slots_ = new c10::intrusive_ptr<Prepared>[kSlots];
  } else if (size_ >= kMostEntries) {
    std::for_each(slots_, slots_ + kSlots, [](auto& slot) { slot.reset(); });
    size_ = 0;
  }
  size_t i = hash & (kSlots - 1);
  while (slots_[i]) i = (i + 1) & (kSlots - 1);
  slots_[i] = std::move(prepared);
  ++size_;
  return *slots_[i];
}

}  // namespace at::native::npu
