// RMS norm of one row, shared by the norms and by the rotation of queries and keys.
#ifndef FLATWAKE_CPU_ISA_NORM_H
#define FLATWAKE_CPU_ISA_NORM_H

#include "simd.h"

namespace flatwake {
namespace FW_ISA {
namespace {

// 1 / sqrt(mean(x²) + eps).
template <class T>
inline float inverse_rms(const T* x, int64_t width, float eps) {
  vf squares{};
  for (int64_t i = 0; i < width; i += W) {
    const vf v = load_upto(x + i, width - i);
    squares = fma(v, v, squares);
  }
  return 1.0f / __builtin_sqrtf(sum(squares) / float(width) + eps);
}

// y = x · scale · (weight + offset)
template <class From, class To>
inline void scale_row(const From* x, To* y, const float* weight, int64_t width, float scale,
                      float offset) {
  for (int64_t i = 0; i < width; i += W) {
    const int64_t n = width - i;
    store_upto(y + i, load_upto(x + i, n) * scale * (load_upto(weight + i, n) + offset), n);
  }
}

}  // namespace
}  // namespace FW_ISA
}  // namespace flatwake

#endif
