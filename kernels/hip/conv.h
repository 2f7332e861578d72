// A channel of a causal convolution over a sequence's rows.
#pragma once

#include "slots.h"

namespace fw {

// Its inputs before a row, and its taps (TAPS at most), at the end of arrays of a fixed size, so that
// they stay in registers.
template <typename T, typename Params, int TAPS = FW_CONV_TAPS>
struct Channel {
  const Params& p;
  const Rows rows;
  const int channel, skip;
  const size_t stride, at;
  const float* history;
  float window[TAPS], weight[TAPS];

  DEVICE Channel(const Params& of, Rows all, int which, int sequence)
      : p(of),
        rows(all),
        channel(which),
        skip(TAPS - of.taps),
        stride((size_t)of.channels * of.history),
        at((size_t)which * of.history),
        history(in<float>(of.state) + slot_in(of, sequence) * stride + at) {}
  DEVICE float input(int row) const {
    return row < rows.first
               ? history[row - rows.first + p.history]
               : widen(in<T>(p.x)[(size_t)row * p.stride + p.offset + channel]);
  }
  // The taps, and the inputs before `row`.
  DEVICE void load(int row) {
    const float* taps = in<float>(p.weight) + (size_t)channel * p.taps;
    FW_UNROLL
    for (int i = 0; i < TAPS; i++) {
      weight[i] = i >= skip ? taps[i - skip] : 0.0f;
      window[i] = i >= skip && i < TAPS - 1 ? input(row - (TAPS - 1) + i) : 0.0f;
    }
  }
  // y of `row`, whose input joins the window.
  DEVICE void convolve(int row, float value) {
    window[TAPS - 1] = value;
    float sum = 0;
    FW_UNROLL
    for (int i = 0; i < TAPS; i++)
      if (i >= skip) sum += window[i] * weight[i];
    out<T>(p.y)[(size_t)row * p.channels + channel] = narrow<T>(silu(sum));
    FW_UNROLL
    for (int i = 0; i + 1 < TAPS; i++) window[i] = window[i + 1];
  }
  DEVICE void keep(size_t slot) const {
    float* kept = out<float>(p.state) + slot * stride + at;
    FW_UNROLL
    for (int i = 0; i + 1 < TAPS; i++)
      if (i >= skip) kept[i - skip] = window[i];
  }
  // All rows in order, from their inputs; the state after each is kept where a row wants it.
  template <typename Input>
  DEVICE void step(Input value_of) {
    for (int row = rows.first; row < rows.end; row++) {
      convolve(row, value_of(row));
      if (const size_t slot = slot_out<true>(p, rows, row)) keep(slot);
    }
  }
};

}  // namespace fw
