// Histograms.

#include "exec/definition/aten.h"

namespace acl_sim {
namespace {

SIM_ATEN(HistogramOfCount, "histogram.bin_ct");
SIM_ATEN(HistogramOfBins, "histogram.bins_tensor");
SIM_ATEN(HistogramddBinEdges, "_histogramdd_bin_edges");
SIM_ATEN(Histogramdd, "_histogramdd_from_bin_cts");
SIM_ATEN(HistogramddOfBins, "_histogramdd_from_bin_tensors");

}  // namespace
}  // namespace acl_sim
