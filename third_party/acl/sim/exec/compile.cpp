#include "exec/compile.h"

#include "exec/fuzzy.h"
#include "runtime/config.h"
#include "runtime/thread_local.h"

#include <c10/util/SmallVector.h>

#include <cstring>
#include <memory>
#include <mutex>
#include <unordered_map>

namespace acl_sim {
namespace {

using Key = c10::SmallVector<uint64_t, 96>;

// A cube operator's work grows faster than its operands.
constexpr int64_t kTinyCube = 16384;

inline uint64_t mix(uint64_t a, uint64_t b) {
  const auto product = static_cast<unsigned __int128>(a ^ 0x9E3779B97F4A7C15ULL) * (b ^ 0xD6E8FEB86659FD93ULL);
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

uint64_t hash_of(const uint64_t* words, size_t count) {
  uint64_t h = count;
  for (size_t i = 0; i < count; ++i) h = mix(h + words[i], words[i] + i);
  return h;
}

[[noreturn]] void invalid(const Description& d, const std::string& reason) {
  throw Error(ACL_ERROR_INVALID_PARAM, std::string(d.type) + ": " + reason);
}

void add_desc(Key& key, const Description& d, const aclTensorDesc* desc, const char* kind, int i) {
  if (__builtin_expect(!desc || !desc->valid(), 0)) {
    invalid(d, format("the description of %s %d is %s", kind, i, desc ? "not a live aclTensorDesc" : "null"));
  }
  key.push_back(static_cast<uint64_t>(static_cast<uint8_t>(desc->dtype + 1)) |
                static_cast<uint64_t>(static_cast<uint8_t>(desc->format + 1)) << 8 |
                static_cast<uint64_t>(desc->placement != ACL_MEMTYPE_DEVICE) << 16 |
                static_cast<uint64_t>(desc->ndim) << 24);
  const int64_t* dims = desc->dims();
  for (int k = 0; k < desc->ndim; ++k) key.push_back(static_cast<uint64_t>(dims[k]));
}

void make_key(Key& key, const Description& d) {
  const size_t length = std::strlen(d.type);
  key.push_back(static_cast<uint64_t>(length) | static_cast<uint64_t>(d.inputs) << 16 |
                static_cast<uint64_t>(d.outputs) << 40);
  for (size_t at = 0; at < length; at += 8) {
    uint64_t word = 0;
    std::memcpy(&word, d.type + at, length - at < 8 ? length - at : 8);
    key.push_back(word);
  }
  for (int i = 0; i < d.inputs; ++i) add_desc(key, d, d.input[i], "input", i);
  for (int i = 0; i < d.outputs; ++i) add_desc(key, d, d.output[i], "output", i);
  if (d.attr) key.append(d.attr->words.data(), d.attr->words.data() + d.attr->used / 8);
}

bool same(const CompiledOp& op, uint64_t hash, const Key& key) {
  return op.hash == hash && op.key.size() == key.size() && std::memcmp(op.key.data(), key.data(), key.size() * 8) == 0;
}

struct Shard {
  std::mutex mutex;
  std::unordered_multimap<uint64_t, const CompiledOp*> ops;
};
constexpr size_t kShards = 16;

Shard& shard_of(uint64_t hash) {
  static auto* shards = new Shard[kShards];
  return shards[hash >> 60];
}

constexpr size_t kRecent = 1024;
SIM_THREAD_LOCAL const CompiledOp** recent = nullptr;  // kRecent entries

// What a thread used last; the table goes with the thread.
const CompiledOp** make_recent() {
  static thread_local std::unique_ptr<const CompiledOp*[]> owner;
  owner = std::make_unique<const CompiledOp*[]>(kRecent);
  return recent = owner.get();
}

Operand make_operand(const Description& d, const aclTensorDesc& desc, const char* kind, size_t i) {
  Operand operand;
  operand.dtype = desc.dtype;
  operand.format = desc.format;
  operand.host = desc.placement != ACL_MEMTYPE_DEVICE;
  operand.absent = desc.dtype == ACL_DT_UNDEFINED;
  if (operand.absent) return operand;
  operand.dims.assign(desc.dims(), desc.dims() + desc.ndim);
  operand.elements = 1;
  for (int64_t dim : operand.dims) {
    if (dim < 0) {
      throw Error(ACL_ERROR_OP_UNSUPPORTED_DYNAMIC,
                  format("%s: %s %zu has the dynamic shape %s; the simulated device runs known shapes only", d.type,
                         kind, i, describe_tensor(desc.dtype, desc.dims(), desc.ndim, desc.format).c_str()));
    }
    if (__builtin_mul_overflow(operand.elements, dim, &operand.elements))
      invalid(d, format("%s %zu has too many elements", kind, i));
  }
  const size_t element = dtype_bytes(desc.dtype);
  if (element == 0) {
    throw Error(ACL_ERROR_GE_FAILURE,
                format("%s: %s %zu has dtype %s, which the simulated device does not compute with", d.type, kind, i,
                       dtype_name(desc.dtype)));
  }
  if (__builtin_mul_overflow(static_cast<size_t>(operand.elements), element, &operand.bytes))
    invalid(d, format("%s %zu is too large", kind, i));
  return operand;
}

std::string names_of(DtypeSet set) {
  std::string names;
  for (int t = 0; t < 64; ++t) {
    if (set >> t & 1) names += (names.empty() ? "" : ", ") + std::string(dtype_name(static_cast<aclDataType>(t)));
  }
  return names;
}

// Failures here are what CANN's graph engine reports when it finds no kernel for an operator.
[[noreturn]] void no_kernel(const CompiledOp& op, const std::string& reason) {
  throw Error(ACL_ERROR_GE_FAILURE, "[EZ3003] no supported kernel for " + op.describe() + ": " + reason);
}

std::string range(int least, int most) {
  return most >= kManyInputs ? format("at least %d", least)
         : least == most     ? std::to_string(least)
                             : format("%d to %d", least, most);
}

void check_operands(const CompiledOp& op) {
  const OpDef& def = *op.def;
  const int inputs = static_cast<int>(op.inputs.size()), outputs = static_cast<int>(op.outputs.size());
  if (inputs < def.min_inputs || inputs > def.max_inputs)
    no_kernel(op, format("it takes %s inputs, not %d", range(def.min_inputs, def.max_inputs).c_str(), inputs));
  if (outputs < def.min_outputs || outputs > def.max_outputs) {
    no_kernel(op, format("it has %s outputs, not %d", range(def.min_outputs, def.max_outputs).c_str(), outputs));
  }
  for (size_t i = 0; i < op.inputs.size() && !def.input_dtypes.empty(); ++i) {
    const DtypeSet allowed = def.input_dtypes.size() == 1  ? def.input_dtypes[0]
                             : i < def.input_dtypes.size() ? def.input_dtypes[i]
                                                           : def.input_dtypes.back();
    const auto dtype = op.inputs[i].dtype;
    if (!op.inputs[i].absent && !(allowed & dtype_bit(dtype))) {
      no_kernel(op, format("input %zu cannot be %s; it supports %s", i, dtype_name(dtype), names_of(allowed).c_str()));
    }
  }
}

void decide_size(CompiledOp& op) {
  const auto limit = config().tiny_elements;
  bool one_size = op.outputs.size() == 1 && !op.inputs.empty() && !op.outputs[0].absent;
  for (size_t i = 0; i < op.inputs.size() + op.outputs.size(); ++i) {
    const auto& operand = op.operand(i);
    op.elements += operand.elements;
    if (i < op.inputs.size()) op.host_inputs |= operand.host && !operand.absent;
    one_size = one_size && !operand.absent && operand.elements == op.inputs[0].elements;
    const bool is_output = i == op.inputs.size();
    const aclDataType wanted = is_output && op.def->tiny_makes_bool ? ACL_BOOL
                               : op.inputs.empty()                  ? operand.dtype
                                                                    : op.inputs[0].dtype;
    one_size = one_size && operand.dtype == wanted;
  }
  op.tiny = op.elements <= (op.def->cube ? std::min(limit, kTinyCube) : limit);
  op.tiny_loop = op.tiny && one_size && op.def->tiny_fn && op.inputs.size() <= 4;
}

const CompiledOp* compile(const Description& d) {
  const OpDef* def = find_op(d.type);
  if (!def) {
    throw Error(
        ACL_ERROR_GE_FAILURE,
        format("[EZ3003] no supported kernel: there is no operator of type '%s' on the simulated device", d.type));
  }
  auto op = std::make_unique<CompiledOp>(*def, d.attr);
  for (int i = 0; i < d.inputs; ++i)
    op->inputs.push_back(make_operand(d, *d.input[i], "input", static_cast<size_t>(i)));
  for (int i = 0; i < d.outputs; ++i)
    op->outputs.push_back(make_operand(d, *d.output[i], "output", static_cast<size_t>(i)));
  check_operands(*op);
  try {
    check_attrs(*def, op->attrs);
  } catch (const Error& error) {
    no_kernel(*op, error.what());
  }
  decide_size(*op);
  return op.release();
}

}  // namespace

std::string CompiledOp::describe() const {
  std::string text = def->type + "(";
  for (size_t i = 0; i < inputs.size(); ++i) {
    const auto& o = inputs[i];
    text += (i ? ", " : "") +
            (o.absent ? std::string("absent")
                      : describe_tensor(o.dtype, o.dims.data(), static_cast<int>(o.dims.size()), o.format));
  }
  text += ") -> (";
  for (size_t i = 0; i < outputs.size(); ++i) {
    const auto& o = outputs[i];
    text += (i ? ", " : "") +
            (o.absent ? std::string("absent")
                      : describe_tensor(o.dtype, o.dims.data(), static_cast<int>(o.dims.size()), o.format));
  }
  return text + ")";
}

namespace {

// The same, for descriptions that are launched again and again: found by their stamps, without looking inside.
struct Memo {
  static constexpr int kOperands = 6;
  uint64_t stamps[kOperands + 1];  // inputs, outputs, attributes; the rest is 0
  int inputs;
  const CompiledOp* op;
};
constexpr size_t kMemos = 512;
SIM_THREAD_LOCAL Memo* memos = nullptr;  // kMemos entries

Memo* make_memos() {
  static thread_local std::unique_ptr<Memo[]> owner;
  owner = std::make_unique<Memo[]>(kMemos);
  return memos = owner.get();
}

// Takes the stamps of a launch; the entry they belong to, or nullptr if this is not a repetition.
Memo* memo_of(const Description& d, uint64_t (&stamps)[Memo::kOperands + 1]) {
  if (d.inputs + d.outputs > Memo::kOperands || d.outputs < 1 || !d.output[0] || !d.output[0]->valid()) return nullptr;
  if (!d.output[0]->launched.load(std::memory_order_relaxed)) {
    d.output[0]->launched.store(true, std::memory_order_relaxed);
    return nullptr;
  }
  uint64_t h = static_cast<uint64_t>(d.inputs);
  int at = 0;
  const auto take = [&](const aclTensorDesc* desc) {
    if (!desc || !desc->valid()) return false;
    stamps[at] = desc->stamp;
    h = mix(h, desc->stamp);
    ++at;
    return true;
  };
  for (int i = 0; i < d.inputs; ++i) {
    if (!take(d.input[i])) return nullptr;
  }
  for (int i = 0; i < d.outputs; ++i) {
    if (!take(d.output[i])) return nullptr;
  }
  stamps[at] = d.attr ? d.attr->stamp : 0;
  h = mix(h, stamps[at]);
  while (++at <= Memo::kOperands) stamps[at] = 0;
  return (memos ? memos : make_memos()) + h % kMemos;
}

const CompiledOp& find_or_compile(const Description& d, bool only_known, bool* fresh) {
  Key key;
  make_key(key, d);
  const uint64_t hash = hash_of(key.data(), key.size());
  const CompiledOp*& mine = (recent ? recent : make_recent())[hash % kRecent];
  if (mine && same(*mine, hash, key)) return *mine;
  auto& shard = shard_of(hash);
  std::lock_guard<std::mutex> lock(shard.mutex);
  const auto [begin, end] = shard.ops.equal_range(hash);
  for (auto it = begin; it != end; ++it) {
    if (same(*it->second, hash, key)) return *(mine = it->second);
  }
  if (only_known)
    throw Error(ACL_ERROR_OP_NOT_FOUND,
                format("%s has not been compiled for these operands; call aclopCompile first", d.type));
  const CompiledOp* op = compile(d);
  const_cast<CompiledOp*>(op)->hash = hash;
  const_cast<CompiledOp*>(op)->key.assign(key.begin(), key.end());
  shard.ops.emplace(hash, op);
  *fresh = needs_compilation(*op);
  return *(mine = op);
}

}  // namespace

const CompiledOp& compiled(const Description& d, bool only_known, bool* fresh) {
  uint64_t stamps[Memo::kOperands + 1];
  Memo* memo = memo_of(d, stamps);
  if (memo && memo->op && memo->inputs == d.inputs && std::memcmp(memo->stamps, stamps, sizeof stamps) == 0 &&
      memo->op->def->type == d.type) {
    return *memo->op;
  }
  const CompiledOp& op = find_or_compile(d, only_known, fresh);
  if (memo) {
    std::memcpy(memo->stamps, stamps, sizeof stamps);
    memo->inputs = d.inputs;
    memo->op = &op;
  }
  return op;
}

}  // namespace acl_sim
