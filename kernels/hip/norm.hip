// rms_norm, add_rms_norm: a block a row. gated_rms_norm: a wave a head.
#include "head_norm.h"

namespace fw {

// Eight columns a thread at a time where rows are aligned for it, else one. What the first KEPT turns
// read stays in registers, and all of it is asked for before `row` is known to be live.
template <int W, typename T>
DEVICE void normalise(const T* x, T* y, uint64_t weight, int width, float eps, float offset,
                      bool live) {
  FW_LDS(float, scratch, 1024 / 32);
  constexpr int KEPT = 2;
  const int whole = width % 8 ? 0 : width, step = threads() * 8;
  Eight<T> kept[KEPT];
  Eight<float> kept_weights[KEPT];
  FW_UNROLL
  for (int turn = 0; turn < KEPT; turn++) {
    const int i = turn * step + thread() * 8;
    kept[turn] = i < whole ? load8(x + i) : zero8<T>();
    kept_weights[turn] = i < whole ? load8(in<float>(weight) + i) : zero8<float>();
  }
  if (!live) return;
  float squares = 0;
  const auto add = [&](const Eight<T>& values) {
    FW_UNROLL
    for (int j = 0; j < 8; j++) squares = fma(values.get(j), values.get(j), squares);
  };
  FW_UNROLL
  for (int turn = 0; turn < KEPT; turn++) add(kept[turn]);
  for (int i = KEPT * step + thread() * 8; i < whole; i += step) add(load8(x + i));
  for (int i = whole + thread(); i < width; i += threads()) {
    const float value = widen(x[i]);
    squares = fma(value, value, squares);
  }
  const float scale = 1.0f / sqrt(block_sum<W>(squares, scratch) / width + eps);
  const auto write = [&](int i, const Eight<T>& values, const Eight<float>& weights) {
    float normed[8];
    FW_UNROLL
    for (int j = 0; j < 8; j++) normed[j] = values.get(j) * scale * (weights.get(j) + offset);
    store8(y + i, normed);
  };
  FW_UNROLL
  for (int turn = 0; turn < KEPT; turn++) {
    const int i = turn * step + thread() * 8;
    if (i < whole) write(i, kept[turn], kept_weights[turn]);
  }
  for (int i = KEPT * step + thread() * 8; i < whole; i += step)
    write(i, load8(x + i), load8(in<float>(weight) + i));
  for (int i = whole + thread(); i < width; i += threads())
    y[i] = narrow<T>(widen(x[i]) * scale * (in<float>(weight)[i] + offset));
}

template <int W, typename T>
DEVICE void rms_norm(const fw_rms_norm_params& p) {
  const int row = block_x();
  const bool live = row < live_rows(p.live, p.rows);
  const size_t at = (size_t)row * p.width;
  normalise<W>(in<T>(p.x) + at, out<T>(p.y) + at, p.weight, p.width, p.eps, p.weight_offset, live);
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
  normalise<W, T>(residual, out<T>(p.y) + at, p.weight, p.width, p.eps, p.weight_offset, true);
}

template <int W, typename T>
DEVICE void gated_rms_norm(const fw_gated_rms_norm_params& p) {
  const int row = block_y(), head = block_x() * (threads() / W) + thread() / W;
  const bool live = row < live_rows(p.live, p.rows);
  if (head >= p.heads) return;
  const size_t at = ((size_t)row * p.heads + head) * p.width;
  const T* x = in<T>(p.x) + at;
  HeadNorm<W, T> norm(p);
  float kept[HeadNorm<W, T>::KEPT];
  FW_UNROLL
  for (int turn = 0; turn < HeadNorm<W, T>::KEPT; turn++)
    kept[turn] = widen(x[least(turn * W + lane<W>(), p.width - 1)]);
  norm.load(row, head);
  if (!live) return;
  float squares = norm.squares(kept);
  for (int i = FW_HEAD_KEPT + lane<W>(); i < p.width; i += W) {
    const float value = widen(x[i]);
    squares = fma(value, value, squares);
  }
  const float scale = norm.scale(squares);
  norm.write(row, head, kept, scale);
  const T* gate = in<T>(p.gate) + (size_t)row * p.gate_stride + p.gate_offset + head * p.width;
  for (int i = FW_HEAD_KEPT + lane<W>(); i < p.width; i += W)
    out<T>(p.y)[at + i] = narrow<T>(widen(x[i]) * scale * in<float>(p.weight)[i] * silu(widen(gate[i])));
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
