// Operators that are one ATen operator each, with that operator's own operands (see exec/definition/aten.h).

#include "exec/definition/aten.h"
#include "ops/index/index_range.h"

namespace acl_sim {
namespace {

// ---- Operands that address memory

void check_lu_pivots(OpContext& c) { check_range(c.in(1), 1, c.in(0).size(-1), "pivot"); }
void check_ldl_pivots(OpContext& c) {
  const at::Tensor pivots = c.in(1);
  check_range(pivots.abs(), 1, c.in(0).size(-1), "pivot");
}
// grad, output, data, lengths, offsets
void check_segments(OpContext& c) {
  const int64_t size = c.in(2).size(c.attrs().integer("axis", 0));
  if (c.has_input(3)) {
    check_range(c.in(3), 0, size, "length of a segment");
    check_range(c.in(3).sum(-1), 0, size, "length of all segments");
  }
  if (c.has_input(4)) check_offsets(c.in(4), size, "offset");
}
// grad, indices, bag of each
void check_bags(OpContext& c) {
  check_range(c.in(1), 0, c.attrs().integer("num_weights", 0) - 1, "index");
  check_range(c.in(2), 0, c.in(0).size(0) - 1, "bag");
}
// grad, weight, indices, offsets, bag of each
void check_weighted_bags(OpContext& c) {
  check_range(c.in(2), 0, c.in(1).size(0) - 1, "index");
  check_range(c.in(4), 0, c.in(0).size(0) - 1, "bag");
}
void check_rows(OpContext& c) { check_range(c.in(0), 0, c.attrs().integer("size", 0) - 1, "row"); }
// The kernel would look for a sample for ever.
void check_counts(OpContext& c) { TORCH_CHECK(!c.in(0).isnan().any().item<bool>(), "a count is not a number"); }
// row ends, columns
void check_row_ends(OpContext& c) { check_offsets(c.in(0), c.in(1).size(-1), "row end"); }

// ---- Fourier transforms
SIM_ATEN(FftR2C, "_fft_r2c.out");
SIM_ATEN(FftC2R, "_fft_c2r.out");
SIM_ATEN(FftC2C, "_fft_c2c.out");

// ---- Linear algebra
SIM_ATEN(LinalgCholesky, "cholesky.out");
SIM_ATEN(CholeskyInverse, "cholesky_inverse.out");
SIM_ATEN(CholeskySolve, "_cholesky_solve_helper");
SIM_ATEN(CholeskyEx, "linalg_cholesky_ex.L");
SIM_ATEN(LinalgDet, "_linalg_det.result");
SIM_ATEN(LinalgSlogdet, "_linalg_slogdet.sign");
SIM_ATEN(LinalgEigh, "_linalg_eigh.eigenvalues");
SIM_ATEN(Eig, "linalg_eig.out");
SIM_ATEN(EigenValues, "_linalg_eigvals");
SIM_ATEN(LinalgSolve, "_linalg_solve_ex.result");
SIM_ATEN(LinalgSolveTriangular, "linalg_solve_triangular.out");
SIM_ATEN(TriangularSolve, "triangular_solve.X");
SIM_ATEN(LinalgSvd, "_linalg_svd.U");
SIM_ATEN(LinalgQr, "linalg_qr.out");
SIM_ATEN(Geqrf, "geqrf");
SIM_ATEN(Ormqr, "ormqr.out");
SIM_ATEN(HouseholderProduct, "linalg_householder_product.out");
SIM_ATEN(LinalgInv, "linalg_inv_ex.inverse");
SIM_ATEN(LdlFactor, "linalg_ldl_factor_ex.out");
SIM_ATEN_CHECKED(LdlSolve, "linalg_ldl_solve.out", check_ldl_pivots);
SIM_ATEN(LinalgLu, "linalg_lu.out");
SIM_ATEN(LuFactor, "linalg_lu_factor_ex.out");
SIM_ATEN_CHECKED(LuSolve, "linalg_lu_solve.out", check_lu_pivots);
SIM_ATEN(LuUnpack, "lu_unpack.out");
SIM_ATEN(MatrixExp, "linalg_matrix_exp");
SIM_ATEN(LinearCombination, "_compute_linear_combination");
SIM_ATEN(QuantMatmulInt8, "_int_mm.out");
SIM_ATEN(ScaledMatmul, "_scaled_mm");
SIM_ATEN(ScaledMatmulV2, "_scaled_mm_v2");

// ---- Distances
SIM_ATEN(CdistForward, "_cdist_forward");
SIM_ATEN(CdistBackward, "_cdist_backward");
SIM_ATEN(PdistForward, "_pdist_forward");
SIM_ATEN(PdistGrad, "_pdist_backward");

// ---- Distributions
SIM_ATEN(StatelessPoisson, "poisson");
SIM_ATEN_CHECKED(StatelessBinomial, "binomial", check_counts);
SIM_ATEN(StatelessRandomGamma, "_standard_gamma");
SIM_ATEN(RandomGammaGrad, "_standard_gamma_grad");
SIM_ATEN(StatelessRandomDirichlet, "_sample_dirichlet");
SIM_ATEN(DirichletGrad, "_dirichlet_grad");

// ---- Counting, segments, sets
SIM_ATEN(HistogramOfCount, "histogram.bin_ct");
SIM_ATEN(HistogramOfBins, "histogram.bins_tensor");
SIM_ATEN(HistogramddBinEdges, "_histogramdd_bin_edges");
SIM_ATEN(Histogramdd, "_histogramdd_from_bin_cts");
SIM_ATEN(HistogramddOfBins, "_histogramdd_from_bin_tensors");
SIM_ATEN(SegmentReduce, "segment_reduce");
SIM_ATEN_CHECKED(SegmentReduceGrad, "_segment_reduce_backward", check_segments);
SIM_ATEN(HashTensor, "hash_tensor.out");
SIM_ATEN(IsInOfScalar, "isin.Scalar_Tensor_out");
SIM_ATEN(RangeInclusive, "range.out");

// ---- Embedding
SIM_ATEN_CHECKED(EmbeddingBagDenseGrad, "_embedding_bag_dense_backward", check_bags);
SIM_ATEN_CHECKED(EmbeddingBagWeightsGrad, "_embedding_bag_per_sample_weights_backward", check_weighted_bags);
SIM_ATEN(EmbeddingRenorm, "embedding_renorm_");

// ---- Networks
SIM_ATEN(WeightNorm, "_weight_norm_interface");
SIM_ATEN(WeightNormGrad, "_weight_norm_interface_backward");
SIM_ATEN(MaskedSoftmax, "_masked_softmax");
SIM_ATEN(MaskedSoftmaxGrad, "_masked_softmax_backward");
SIM_ATEN(GLUJvp, "glu_jvp");
SIM_ATEN(GLUGradJvp, "glu_backward_jvp");
SIM_ATEN(NativeMultiHeadAttention, "_native_multi_head_attention");
SIM_ATEN(TransformerEncoderLayer, "_transformer_encoder_layer_fwd");
SIM_ATEN(TransformBiasRescaleQkv, "_transform_bias_rescale_qkv");

// ---- Optimizers
SIM_ATEN(FusedAdagrad, "_fused_adagrad_");
SIM_ATEN(FusedAdagradTensorLr, "_fused_adagrad_.tensor_lr");

// ---- Quantisation-aware training
SIM_ATEN(FakeQuantTensor, "fake_quantize_per_tensor_affine_cachemask");
SIM_ATEN(FakeQuantTensorQparams, "_fake_quantize_per_tensor_affine_cachemask_tensor_qparams");
SIM_ATEN(FakeQuantChannel, "fake_quantize_per_channel_affine_cachemask");
SIM_ATEN(FakeQuantLearnableTensor, "_fake_quantize_learnable_per_tensor_affine");
SIM_ATEN(FakeQuantLearnableChannel, "_fake_quantize_learnable_per_channel_affine");
SIM_ATEN(FakeQuantLearnableTensorGrad, "_fake_quantize_learnable_per_tensor_affine_backward");
SIM_ATEN(FakeQuantLearnableChannelGrad, "_fake_quantize_learnable_per_channel_affine_backward");
SIM_ATEN(FusedMovingAvgObsFakeQuant, "_fused_moving_avg_obs_fq_helper");

// ---- Others
SIM_ATEN(AddRelu, "_add_relu.Tensor");
SIM_ATEN(AddReluInplace, "_add_relu_.Tensor");
SIM_ATEN(AddReluScalar, "_add_relu.Scalar");
SIM_ATEN(AddReluScalarInplace, "_add_relu_.Scalar");
SIM_ATEN_CHECKED(CooToCsr, "_convert_indices_from_coo_to_csr.out", check_rows);
SIM_ATEN_CHECKED(CsrToCoo, "_convert_indices_from_csr_to_coo.out", check_row_ends);
SIM_ATEN(AssertAsync, "_assert_async");
SIM_ATEN(AssertAsyncMsg, "_assert_async.msg");

}  // namespace
}  // namespace acl_sim
