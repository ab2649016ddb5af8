#include "ops/matmul/cube.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/cpu/Utils.h>

#include <cstdint>

namespace acl_sim {
namespace {

constexpr uint32_t kDropped = 12;  // of the 23 bits of fraction
constexpr uint32_t kExponent = 0x7F800000;
constexpr int64_t kGrain = 1 << 16;

// Adding half of the last bit that stays, less one where that bit is even, carries into the exponent where it must; the
// largest numbers become infinite. Infinities and NaNs stay.
uint32_t rounded(uint32_t bits) {
  const uint32_t half = (uint32_t{1} << (kDropped - 1)) - 1 + (bits >> kDropped & 1);
  const uint32_t result = (bits + half) & ~((uint32_t{1} << kDropped) - 1);
  return (bits & kExponent) == kExponent ? bits : result;
}

}  // namespace

at::Tensor round_to_hf32(const at::Tensor& t) {
  const at::Tensor dense = t.is_non_overlapping_and_dense() ? t : t.contiguous();
  at::Tensor result = at::empty_like(dense);
  const auto* from = reinterpret_cast<const uint32_t*>(dense.const_data_ptr<float>());
  auto* to = reinterpret_cast<uint32_t*>(result.mutable_data_ptr<float>());
  at::parallel_for(0, dense.numel(), kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) to[i] = rounded(from[i]);
  });
  return result;
}

bool multiplies_bf16() {
  static const bool instructions = [] {
    const auto known = at::cpu::get_cpu_capabilities();
    const auto has = [&](const char* name) {
      const auto found = known.find(name);
      return found != known.end() && found->second.isBool() && found->second.toBool();
    };
    return has("avx512_bf16") || has("amx_bf16");
  }();
  return instructions && at::globalContext().userEnabledMkldnn();
}

}  // namespace acl_sim
