// rms_norm, add_rms_norm: a block a row. gated_rms_norm: a wave a head.
#include "parameters.h"
#include "portable.h"

namespace fw {

// Eight columns a thread at a time where rows are aligned for it, else one.
template <int W, typename T>
DEVICE void normalise(const T* x, T* y, uint64_t weight, int width, float eps, float offset) {
  FW_LDS(float, scratch, 1024 / 32);
  const int whole = width % 8 ? 0 : width;
  float squares = 0;
  for (int i = thread() * 8; i < whole; i += threads() * 8) {
    const Eight<T> values = load8(x + i);
    FW_UNROLL
    for (int j = 0; j < 8; j++) squares = fma(values.get(j), values.get(j), squares);
  }
  for (int i = whole + thread(); i < width; i += threads()) {
    const float value = widen(x[i]);
    squares = fma(value, value, squares);
  }
  const float scale = 1.0f / sqrt(block_sum<W>(squares, scratch) / width + eps);
  for (int i = thread() * 8; i < whole; i += threads() * 8) {
    const Eight<T> values = load8(x + i);
    const Eight<float> weights = load8(in<float>(weight) + i);
    FW_UNROLL
    for (int j = 0; j < 8; j++)
      y[i + j] = narrow<T>(values.get(j) * scale * (weights.get(j) + offset));
  }
  for (int i = whole + thread(); i < width; i += threads())
    y[i] = narrow<T>(widen(x[i]) * scale * (in<float>(weight)[i] + offset));
}

template <int W, typename T>
DEVICE void rms_norm(const fw_rms_norm_params& p) {
  const int row = block_x();
  if (row >= live_rows(p.live, p.rows)) return;
  const size_t at = (size_t)row * p.width;
  normalise<W>(in<T>(p.x) + at, out<T>(p.y) + at, p.weight, p.width, p.eps, p.weight_offset);
}

template <int W, typename T>
DEVICE void add_rms_norm(const fw_add_rms_norm_params& p) {
  const int row = block_x();
  if (row >= live_rows(p.live, p.rows)) return;
  const size_t at = (size_t)row * p.width;
  const T* x = in<T>(p.x) + at;
  T* residual = out<T>(p.residual) + at;
  for (int i = thread(); i < p.width; i += threads())
    residual[i] = narrow<T>(widen(residual[i]) + widen(x[i]));
  barrier();  // columns are dealt out otherwise below
  normalise<W, T>(residual, out<T>(p.y) + at, p.weight, p.width, p.eps, p.weight_offset);
}

template <int W, typename T>
DEVICE void gated_rms_norm(const fw_gated_rms_norm_params& p) {
  const int row = block_y(), head = block_x() * (threads() / W) + thread() / W;
  if (row >= live_rows(p.live, p.rows) || head >= p.heads) return;
  const size_t at = ((size_t)row * p.heads + head) * p.width;
  const T* x = in<T>(p.x) + at;
  const T* gate = in<T>(p.gate) + (size_t)row * p.gate_stride + p.gate_offset + head * p.width;
  T* y = out<T>(p.y) + at;
  float squares = 0;
  for (int i = lane<W>(); i < p.width; i += W) {
    const float value = widen(x[i]);
    squares = fma(value, value, squares);
  }
  const float scale = 1.0f / sqrt(wave_sum<W>(squares) / p.width + p.eps);
  for (int i = lane<W>(); i < p.width; i += W)
    y[i] = narrow<T>(widen(x[i]) * scale * in<float>(p.weight)[i] * silu(widen(gate[i])));
}

}  // namespace fw

#define ENTRIES(suffix, T)                                                        \
  FW_KERNEL(rms_norm_##suffix, 256, fw_rms_norm_params) { fw::rms_norm<FW_WAVE, T>(p); } \
  FW_KERNEL(add_rms_norm_##suffix, 256, fw_add_rms_norm_params) {                 \
    fw::add_rms_norm<FW_WAVE, T>(p);                                              \
  }                                                                               \
  FW_KERNEL(gated_rms_norm_##suffix, 256, fw_gated_rms_norm_params) {             \
    fw::gated_rms_norm<FW_WAVE, T>(p);                                            \
  }
ENTRIES(f32, float)
ENTRIES(f16, fw::f16)
ENTRIES(bf16, fw::bf16)
