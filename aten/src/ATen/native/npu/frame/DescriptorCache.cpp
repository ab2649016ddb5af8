// Look-up of prepared descriptors.

#include <ATen/native/npu/frame/DescriptorCache.h>

#include <acl_loader.h>

#include <cstring>

namespace at::native::npu {

Prepared::~Prepared() {
  for (const auto* desc : inputs) c10::npu::acl::aclDestroyTensorDesc(desc);
  for (const auto* desc : outputs) c10::npu::acl::aclDestroyTensorDesc(desc);
  if (attributes != nullptr) c10::npu::acl::aclopDestroyAttr(attributes);
}

DescriptorCache& DescriptorCache::local() {
  // Never destroyed: at the end of the process the ACL library may be gone already.
  thread_local DescriptorCache* cache __attribute__((tls_model("initial-exec"))) = nullptr;
  if (C10_UNLIKELY(cache == nullptr)) cache = new DescriptorCache();
  return *cache;
}

uint64_t DescriptorCache::hash_of(const KeyWords& key) {
  uint64_t h = 0x9E3779B97F4A7C15ULL ^ key.size();
  for (const int64_t word : key) {
    h ^= static_cast<uint64_t>(word);
    h *= 0xFF51AFD7ED558CCDULL;
    h ^= h >> 32;
  }
  return h;
}

Prepared* DescriptorCache::find(uint64_t hash, const KeyWords& key) {
  if (slots_.empty()) return nullptr;
  for (size_t i = hash & (kSlots - 1);; i = (i + 1) & (kSlots - 1)) {
    Prepared* entry = slots_[i].get();
    if (entry == nullptr) return nullptr;
    if (entry->hash == hash && entry->key.size() == key.size() &&
        std::memcmp(entry->key.data(), key.data(), key.size() * sizeof(int64_t)) == 0) {
      return entry;
    }
  }
}

Prepared* DescriptorCache::insert(c10::intrusive_ptr<Prepared> prepared) {
  if (slots_.empty() || size_ >= kMostEntries) {
    slots_.clear();
    slots_.resize(kSlots);
    size_ = 0;
  }
  size_t i = prepared->hash & (kSlots - 1);
  while (slots_[i]) i = (i + 1) & (kSlots - 1);
  slots_[i] = std::move(prepared);
  ++size_;
  return slots_[i].get();
}

}  // namespace at::native::npu
