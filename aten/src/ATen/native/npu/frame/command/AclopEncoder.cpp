// The encoder of operators that ACL knows by an IR type: descriptors and attributes made from a key, and the one call
// of aclopCompileAndExecute.

#include <ATen/native/npu/frame/command/Encoder.h>

#include <ATen/native/npu/frame/command/OperatorGraphs.h>
#include <acl_loader.h>
#include <c10/npu/NPUException.h>
#include <c10/npu/NPUFunctions.h>

#include <vector>

namespace at::native::npu {

namespace acl = c10::npu::acl;

namespace {

// The data buffers that a thread hands to ACL, which reads them during the call.
using Buffers = std::vector<aclDataBuffer*>;
thread_local Buffers* own_buffers __attribute__((tls_model("initial-exec"))) = nullptr;

// Given back when the thread ends, but not at the end of the process, when ACL may be gone already, nor in a forked
// child, where its locks may be held for ever. What launches still later gets some that stay.
struct BuffersEnd {
  ~BuffersEnd() {
    if (!c10::npu::is_shut_down() && !c10::npu::is_in_bad_fork()) {
      for (auto* buffer : *own_buffers) acl::aclDestroyDataBuffer(buffer);
      delete own_buffers;
    }
    own_buffers = nullptr;
  }
};

C10_NOINLINE void grow_buffers(size_t count) {
  if (own_buffers == nullptr) {
    static thread_local BuffersEnd end;
    static_cast<void>(end);
    own_buffers = new Buffers();
  }
  while (own_buffers->size() < count) own_buffers->push_back(acl::aclCreateDataBuffer(nullptr, 0));
}

aclDataBuffer** buffers(size_t count) {
  if (C10_UNLIKELY(own_buffers == nullptr || own_buffers->size() < count)) grow_buffers(count);
  return own_buffers->data();
}

class AclopCommand final : public Prepared {
 public:
  AclopCommand(uint64_t hash, c10::IntArrayRef key) : Prepared(hash, key) {
    KeyReader reader(this->key());
    num_inputs_ = static_cast<int>(reader.inputs());
    num_outputs_ = static_cast<int>(reader.outputs());
  }
  ~AclopCommand() override {
    for (const auto* desc : descs_) acl::aclDestroyTensorDesc(desc);
    if (attributes_ != nullptr) acl::aclopDestroyAttr(attributes_);
  }
  // What may throw; the destructor then frees what there is.
  void build() {
    KeyReader reader(key());
    for (size_t i = 0; i < reader.operands(); ++i) describe(reader.next_operand());
    attributes_ = acl::aclopCreateAttr();
    for (KeyAttribute attribute; reader.next_attribute(attribute);) set_attribute(attribute);
  }

  aclError execute(const Command& command, aclrtStream stream) const override {
    aclDataBuffer** own = buffers_of(command);
    return acl::aclopCompileAndExecute(command.ir, num_inputs_, descs_.data(), own, num_outputs_,
                                       descs_.data() + num_inputs_, own + num_inputs_, attributes_, ACL_ENGINE_SYS,
                                       ACL_COMPILE_SYS, nullptr, stream);
  }

  aclError write_graph(const Command& command, const char* folder) const {
    aclDataBuffer** own = buffers_of(command);
    return acl::aclGenGraphAndDumpForOp(command.ir, num_inputs_, descs_.data(), own, num_outputs_,
                                        descs_.data() + num_inputs_, own + num_inputs_, attributes_, ACL_ENGINE_SYS,
                                        folder, nullptr);
  }

 private:
  aclDataBuffer** buffers_of(const Command& command) const {
    const size_t count = static_cast<size_t>(num_inputs_) + static_cast<size_t>(num_outputs_);
    aclDataBuffer** own = buffers(count);
    for (size_t i = 0; i < count; ++i) {
      acl::aclUpdateDataBuffer(own[i], command.operands[i].data, command.operands[i].bytes);
    }
    return own;
  }
  void describe(const KeyOperand& operand);
  void set_attribute(const KeyAttribute& attribute);

  int num_inputs_;
  int num_outputs_;
  aclopAttr* attributes_ = nullptr;
  c10::SmallVector<const aclTensorDesc*, 4> descs_;  // of inputs, then outputs
};

void AclopCommand::describe(const KeyOperand& operand) {
  if (operand.absent) {
    descs_.push_back(acl::aclCreateTensorDesc(ACL_DT_UNDEFINED, 0, nullptr, ACL_FORMAT_UNDEFINED));
    return;
  }
  const size_t rank = operand.dims.size();
  auto format = operand.format;
  if (format == ACL_FORMAT_UNDEFINED) {
    // Four dimensions may be images; what an operator means by them is its own business.
    format = rank == 4 ? ACL_FORMAT_NCHW : rank == 5 ? ACL_FORMAT_NCDHW : ACL_FORMAT_ND;
  }
  aclTensorDesc* desc = acl::aclCreateTensorDesc(operand.dtype, static_cast<int>(rank), operand.dims.data(), format);
  TORCH_CHECK(desc != nullptr, "An operator on npu cannot have an operand of ", rank,
              " dimensions: reshape it to fewer");
  descs_.push_back(desc);
  if (operand.host) NPU_CHECK(acl::aclSetTensorPlaceMent(desc, ACL_MEMTYPE_HOST));
}

void AclopCommand::set_attribute(const KeyAttribute& attribute) {
  const auto& [name, kind, value, bytes] = attribute;
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

class AclopEncoder final : public Encoder {
 public:
  bool takes(const char* /*ir*/) const override { return true; }
  bool takes_strides() const override { return false; }
  c10::intrusive_ptr<Prepared> prepare(uint64_t hash, c10::IntArrayRef key) const override {
    auto command = c10::make_intrusive<AclopCommand>(hash, key);
    command->build();
    return command;
  }
};

}  // namespace

aclError write_operator_graph(const Command& command, const char* folder) {
  const auto* own = dynamic_cast<const AclopCommand*>(command.prepared);
  return own == nullptr ? ACL_SUCCESS : own->write_graph(command, folder);
}

const Encoder& aclop_encoder() {
  static const AclopEncoder encoder;
  return encoder;
}

}  // namespace at::native::npu
