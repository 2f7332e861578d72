// What the kernels of sample and logprobs share.
#pragma once

#include "parameters.h"
#include "portable.h"

namespace fw {

constexpr int SCAN_BLOCK = 256, CHOOSE_BLOCK = 1024;

struct Best {
  float value;
  int id;
};
// Larger values win, then smaller ids.
DEVICE bool before(Best a, Best b) {
  return a.value > b.value || (a.value == b.value && a.id < b.id);
}
DEVICE Best better(Best a, Best b) { return before(b, a) ? b : a; }
DEVICE Best nothing() { return Best{-FW_INFINITY, 0x7fffffff}; }

template <int W, int BLOCK, typename F, typename I>
DEVICE Best block_best(Best best, F& values, I& ids) {
  FW_UNROLL
  for (int d = W / 2; d > 0; d /= 2) {
    const int source = lane<W>() ^ d;
    const float value = shuffle<W>(best.value, source);
    const int id = shuffle<W>(best.id, source);
    best = better(best, Best{value, id});
  }
  if (lane<W>() == 0) {
    values[thread() / W] = best.value;
    ids[thread() / W] = best.id;
  }
  barrier();
  best = nothing();
  for (int i = 0; i < BLOCK / W; i++) best = better(best, Best{values[i], ids[i]});
  barrier();
  return best;
}

DEVICE fw_sampling sampling_of(uint64_t slots, uint64_t sampling_slot, int sequence, int count) {
  const int slot = in<int>(sampling_slot)[sequence];
  return in<fw_sampling>(slots)[slot < 0 || slot >= count ? 0 : slot];
}

}  // namespace fw
