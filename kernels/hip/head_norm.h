// A head's gated RMSNorm by a wave: a lane has every W-th element of the first FW_HEAD_KEPT.
#pragma once

#include "parameters.h"
#include "portable.h"

namespace fw {

template <int W, typename T>
struct HeadNorm {
  static constexpr int KEPT = FW_HEAD_KEPT / W;
  const fw_gated_rms_norm_params& p;
  float weights[KEPT], gates[KEPT];

  DEVICE explicit HeadNorm(const fw_gated_rms_norm_params& of) : p(of) {}
  // All of it is asked for before anything is waited for.
  DEVICE void load(int row, int head) {
    const int width = again(p.width);  // else a loop's places would all be made before it
    const T* gate = in<T>(p.gate) + (size_t)row * p.gate_stride + p.gate_offset + head * width;
    FW_UNROLL
    for (int turn = 0; turn < KEPT; turn++) {
      const int i = least(turn * W + lane<W>(), width - 1);
      weights[turn] = in<float>(p.weight)[i];
      gates[turn] = widen(gate[i]);
    }
  }
  DEVICE float squares(const float (&x)[KEPT]) const {
    float sum = 0;
    FW_UNROLL
    for (int turn = 0; turn < KEPT; turn++)
      if (turn * W + lane<W>() < p.width) sum = fma(x[turn], x[turn], sum);
    return sum;
  }
  // From each lane's sum of squares.
  DEVICE float scale(float squares) const {
    return 1.0f / sqrt(wave_sum<W>(squares) / p.width + p.eps);
  }
  DEVICE void write(int row, int head, const float (&x)[KEPT], float scale) const {
    const int width = again(p.width);
    T* y = out<T>(p.y) + ((size_t)row * p.heads + head) * width;
    FW_UNROLL
    for (int turn = 0; turn < KEPT; turn++) {
      const int i = turn * W + lane<W>();
      if (i < width) y[i] = narrow<T>(x[turn] * scale * weights[turn] * silu(gates[turn]));
    }
  }
};

}  // namespace fw
