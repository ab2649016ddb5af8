#include "exec/compilation/options.h"

#include "core/error.h"
#include "exec/compilation/compile_cache.h"
#include "exec/compilation/fuzzy.h"
#include "exec/compilation/kernel_files.h"
#include "exec/definition/op.h"

#include <atomic>
#include <cstring>
#include <map>
#include <mutex>

namespace acl_sim {
namespace {

struct Allowed {
  aclCompileOpt option;
  const char* name;
  const char* values;  // separated by |; empty: any text
};

constexpr Allowed kOptions[] = {
    {ACL_PRECISION_MODE, "ACL_PRECISION_MODE",
     "force_fp32|force_fp16|allow_fp32_to_fp16|must_keep_origin_dtype|allow_mix_precision|cube_fp16in_fp32out|mixed_"
     "float16|origin|fp16"},
    {ACL_AICORE_NUM, "ACL_AICORE_NUM", ""},
    {ACL_AUTO_TUNE_MODE, "ACL_AUTO_TUNE_MODE", ""},
    {ACL_OP_SELECT_IMPL_MODE, "ACL_OP_SELECT_IMPL_MODE",
     "high_precision|high_performance|high_precision_for_all|high_performance_for_all"},
    {ACL_OPTYPELIST_FOR_IMPLMODE, "ACL_OPTYPELIST_FOR_IMPLMODE", ""},
    {ACL_OP_DEBUG_LEVEL, "ACL_OP_DEBUG_LEVEL", "0|1|2|3|4"},
    {ACL_DEBUG_DIR, "ACL_DEBUG_DIR", ""},
    {ACL_OP_COMPILER_CACHE_MODE, "ACL_OP_COMPILER_CACHE_MODE", "enable|disable|force"},
    {ACL_OP_COMPILER_CACHE_DIR, "ACL_OP_COMPILER_CACHE_DIR", ""},
    {ACL_OP_PERFORMANCE_MODE, "ACL_OP_PERFORMANCE_MODE", "normal|high"},
    {ACL_OP_JIT_COMPILE, "ACL_OP_JIT_COMPILE", "enable|disable|auto"},
    {ACL_OP_DETERMINISTIC, "ACL_OP_DETERMINISTIC", "0|1"},
    {ACL_CUSTOMIZE_DTYPES, "ACL_CUSTOMIZE_DTYPES", ""},
    {ACL_OP_PRECISION_MODE, "ACL_OP_PRECISION_MODE", ""},
    {ACL_ALLOW_HF32, "ACL_ALLOW_HF32", "enable|disable|00|01|10|11"},
};

const Allowed* find_option(aclCompileOpt option) {
  for (const auto& known : kOptions) {
    if (known.option == option) return &known;
  }
  return nullptr;
}

bool listed(const char* values, const char* value) {
  if (!*values) return true;
  const size_t length = std::strlen(value);
  for (const char* at = values; at; at = std::strchr(at, '|') ? std::strchr(at, '|') + 1 : nullptr) {
    if (std::strncmp(at, value, length) == 0 && (at[length] == '|' || at[length] == '\0')) return true;
  }
  return false;
}

struct Options {
  std::mutex mutex;
  std::map<int, std::string> values;
};

Options& options() {
  static auto* value = new Options;  // outlives the threads that still run while the process exits
  return *value;
}

// Who may round; none of them, usually, so that a look-up costs one load.
enum Rounds : uint8_t { kConv = 1, kMatMul = 2, kListed = 4, kAll = 8, kFp16 = 16 };
std::atomic<uint8_t> rounds{0};

// The caller holds the lock.
std::string value_of(const Options& o, aclCompileOpt option) {
  const auto found = o.values.find(option);
  return found == o.values.end() ? std::string() : found->second;
}

uint8_t read_rounds(const Options& o) {
  const std::string allowed = value_of(o, ACL_ALLOW_HF32), mode = value_of(o, ACL_OP_SELECT_IMPL_MODE);
  const std::string precision = value_of(o, ACL_PRECISION_MODE);
  uint8_t who = 0;
  if (allowed == "enable" || allowed == "10" || allowed == "11") who |= kConv;
  if (allowed == "enable" || allowed == "01" || allowed == "11") who |= kMatMul;
  if (mode == "high_performance_for_all") who |= kAll;
  if (mode == "high_performance") who |= value_of(o, ACL_OPTYPELIST_FOR_IMPLMODE).empty() ? kAll : kListed;
  if (precision == "allow_fp32_to_fp16" || precision == "force_fp16" || precision == "allow_mix_precision")
    who |= kFp16;
  return who;
}

bool in_type_list(std::string_view type) {
  auto& o = options();
  const std::lock_guard<std::mutex> lock(o.mutex);
  const std::string list = value_of(o, ACL_OPTYPELIST_FOR_IMPLMODE);
  for (std::string_view rest = list; !rest.empty();) {
    const size_t comma = rest.find(',');
    if (rest.substr(0, comma) == type) return true;
    rest = comma == std::string_view::npos ? std::string_view() : rest.substr(comma + 1);
  }
  return false;
}

}  // namespace

bool is_compile_option(aclCompileOpt option) { return find_option(option) != nullptr; }

void set_compile_option(aclCompileOpt option, const char* value) {
  const Allowed* known = find_option(option);
  if (!known) throw Error(ACL_ERROR_INVALID_PARAM, format("there is no compile option %d", static_cast<int>(option)));
  if (!value) throw Error(ACL_ERROR_INVALID_PARAM, format("%s: the value is null", known->name));
  if (!listed(known->values, value))
    throw Error(ACL_ERROR_INVALID_PARAM, format("%s cannot be '%s'; it can be %s", known->name, value, known->values));
  auto& o = options();
  bool rounds_otherwise = false;
  {
    const std::lock_guard<std::mutex> lock(o.mutex);
    const std::string types = value_of(o, ACL_OPTYPELIST_FOR_IMPLMODE);
    o.values[option] = value;
    if (option == ACL_OP_JIT_COMPILE) set_jit_compile(o.values[option] != "disable");
    const uint8_t who = read_rounds(o);
    rounds_otherwise = rounds.exchange(who) != who || value_of(o, ACL_OPTYPELIST_FOR_IMPLMODE) != types;
    if (option == ACL_OP_DEBUG_LEVEL || option == ACL_DEBUG_DIR || option == ACL_OP_COMPILER_CACHE_MODE ||
        option == ACL_OP_COMPILER_CACHE_DIR) {
      set_kernel_files({value_of(o, ACL_OP_DEBUG_LEVEL), value_of(o, ACL_DEBUG_DIR),
                        value_of(o, ACL_OP_COMPILER_CACHE_MODE), value_of(o, ACL_OP_COMPILER_CACHE_DIR)});
    }
  }
  if (rounds_otherwise) look_up_again();
}

std::string compile_option(aclCompileOpt option) {
  if (!find_option(option))
    throw Error(ACL_ERROR_INVALID_PARAM, format("there is no compile option %d", static_cast<int>(option)));
  auto& o = options();
  const std::lock_guard<std::mutex> lock(o.mutex);
  return value_of(o, option);
}

CubeRounding cube_rounding(std::string_view type) {
  const uint8_t who = rounds.load(std::memory_order_relaxed);
  if (__builtin_expect(who == 0, 1)) return CubeRounding::None;
  const OpDef* def = find_op(type);
  if (!def || def->cube_class == CubeClass::None) return CubeRounding::None;
  if (who & kFp16) return CubeRounding::Fp16;
  const bool hf32 =
      who & (kAll | (def->cube_class == CubeClass::Conv ? kConv : kMatMul)) || ((who & kListed) && in_type_list(type));
  return hf32 ? CubeRounding::Hf32 : CubeRounding::None;
}

}  // namespace acl_sim
