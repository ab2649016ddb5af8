// Fourier transforms.

#include "exec/definition/aten.h"

namespace acl_sim {
namespace {

SIM_ATEN(FftR2C, "_fft_r2c.out");
SIM_ATEN(FftC2R, "_fft_c2r.out");
SIM_ATEN(FftC2C, "_fft_c2c.out");

}  // namespace
}  // namespace acl_sim
