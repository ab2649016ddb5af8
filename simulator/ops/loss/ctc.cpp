// Connectionist temporal classification: the loss of each sequence and its gradient. Lengths are lists on the host or
// the device; targets are padded rows or one row of all sequences, int32 or int64.

#include "ops/index/index_range.h"
#include "ops/nn_util.h"

namespace acl_sim {
namespace {

// Labels of what is not padding index the log-probabilities.
void check_labels(const at::Tensor& targets, const std::vector<int64_t>& lengths, int64_t classes) {
  if (targets.dim() < 2) return check_range(targets, 0, classes - 1, "target");
  for (int64_t row = 0; row < targets.size(0) && row < static_cast<int64_t>(lengths.size()); ++row) {
    check_range(targets[row].slice(0, 0, lengths[row]), 0, classes - 1, "target");
  }
}

// inputs log_probs, targets, input_lengths, target_lengths; outputs neg_log_likelihood, log_alpha
void ctc_loss(OpContext& c) {
  check_labels(c.in(1), c.in_values(3), c.in(0).size(-1));
  auto [loss, alpha] = at::_ctc_loss(c.in(0), c.in(1), c.in_values(2), c.in_values(3), c.attrs().integer("blank", 0),
                                     c.attrs().boolean("zero_infinity", false));
  c.out(0).copy_(loss);
  c.out(1).copy_(alpha);
}

// inputs grad_out, log_probs, targets, input_lengths, target_lengths, neg_log_likelihood, log_alpha
void ctc_loss_grad(OpContext& c) {
  const std::vector<int64_t> input_lengths = c.in_values(3), target_lengths = c.in_values(4);
  check_labels(c.in(2), target_lengths, c.in(1).size(-1));
  c.out(0).copy_(at::_ctc_loss_backward(c.in(0), c.in(1), c.in(2), input_lengths, target_lengths, c.in(5), c.in(6),
                                        c.attrs().integer("blank", 0), c.attrs().boolean("zero_infinity", false)));
}

const DtypeSet kWide = dtype_bit(ACL_FLOAT) | dtype_bit(ACL_DOUBLE);
const std::vector<std::string> kAttrs = {"blank:int", "reduction:str", "zero_infinity:bool"};

SIM_OP(CTCLossV2)
    .costly()
    .inputs(4)
    .outputs(2)
    .dtypes({kWide, kIntTypes, kIntTypes, kIntTypes})
    .attrs(kAttrs)
    .run(ctc_loss);
SIM_OP(CTCLossV2Grad)
    .costly()
    .inputs(7)
    .dtypes({kWide, kWide, kIntTypes, kIntTypes, kIntTypes, kWide, kWide})
    .attrs(kAttrs)
    .run(ctc_loss_grad);

}  // namespace
}  // namespace acl_sim
