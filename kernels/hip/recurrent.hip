// conv_step, conv_chunk, conv_keep, slot_copy, slot_zero.
//
// A step walks a sequence's rows in order and keeps the state after every one of them. A chunk's
// convolution takes rows at once; conv_keep, launched after it, leaves the state at its end.
#include "conv.h"

namespace fw {

constexpr int CONV_RUN = FW_CONV_RUN;

template <typename T>
DEVICE void conv_step(const fw_conv_step_params& p) {
  const int which = block_x() * threads() + thread(), sequence = block_y();
  const Rows rows = rows_of(p, sequence);
  if (which >= p.channels || rows.first >= rows.end) return;
  Channel<T, fw_conv_step_params> channel(p, rows, which, sequence);
  channel.load(rows.first);
  channel.step([&](int row) { return channel.input(row); });
}

// A thread takes CONV_RUN rows of a channel, of TAPS taps at most; all are asked for before one is used.
template <typename T, int TAPS>
DEVICE void conv_chunk(const fw_conv_chunk_params& p) {
  const int which = block_x() * threads() + thread(), sequence = block_y();
  const Rows rows = rows_of(p, sequence);
  const int first = rows.first + block_z() * CONV_RUN, end = least(first + CONV_RUN, rows.end);
  if (which >= p.channels || first >= end) return;
  const T* from = in<T>(p.x) + (size_t)first * p.stride + p.offset + which;
  T x[CONV_RUN];
  FW_UNROLL
  for (int i = 0; i < CONV_RUN; i++) x[i] = from[least(i, end - 1 - first) * p.stride];
  Channel<T, fw_conv_chunk_params, TAPS> channel(p, rows, which, sequence);
  channel.load(first);
  FW_UNROLL
  for (int i = 0; i < CONV_RUN; i++)
    if (first + i < end) channel.convolve(first + i, widen(x[i]));
}

// The state may stay where it was: conv_chunk has read it by now.
template <typename T>
DEVICE void conv_keep(const fw_conv_chunk_params& p) {
  const int which = block_x() * threads() + thread(), sequence = block_y();
  const Rows rows = rows_of(p, sequence);
  if (which >= p.channels || rows.first >= rows.end) return;
  const size_t slot = slot_out<false>(p, rows, rows.end - 1);
  if (!slot) return;
  Channel<T, fw_conv_chunk_params> channel(p, rows, which, sequence);
  channel.load(rows.end);
  channel.keep(slot);
}

// A thread takes one word of every copy, in order: a slot may be read by one and written by the next.
DEVICE void slot_copy(const fw_slot_copy_params& p) {
  const int word = block_x() * threads() + thread();
  if (word >= p.slot_words) return;
  for (int i = 0; i < p.count; i++) {
    const int source = in<int>(p.source)[i], target = in<int>(p.target)[i];
    if (target <= 0 || target >= p.slots || source < 0 || source >= p.slots) continue;
    out<int>(p.state)[(size_t)target * p.slot_words + word] =
        in<int>(p.state)[(size_t)source * p.slot_words + word];
  }
}

DEVICE void slot_zero(const fw_slot_zero_params& p) {
  const int target = in<int>(p.target)[block_y()];
  if (target <= 0 || target >= p.slots) return;
  const int i = block_x() * threads() + thread();
  if (i < p.slot_words) out<int>(p.state)[(size_t)target * p.slot_words + i] = 0;
}

}  // namespace fw

#define ENTRIES(suffix, T)                                                          \
  FW_KERNEL(conv_step_##suffix, 256, fw_conv_step_params) {                         \
    fw::conv_step<T>(p);                                                            \
  }                                                                                 \
  FW_KERNEL(conv_chunk_##suffix, 256, fw_conv_chunk_params) {                       \
    if (p.taps <= FW_CONV_TAPS_FEW) fw::conv_chunk<T, FW_CONV_TAPS_FEW>(p);         \
    else fw::conv_chunk<T, FW_CONV_TAPS>(p);                                        \
  }                                                                                 \
  FW_KERNEL(conv_keep_##suffix, 256, fw_conv_chunk_params) {                        \
    fw::conv_keep<T>(p);                                                            \
  }
ENTRIES(f32, float)
ENTRIES(f16, fw::f16)
ENTRIES(bf16, fw::bf16)
FW_KERNEL(slot_copy, 256, fw_slot_copy_params) { fw::slot_copy(p); }
FW_KERNEL(slot_zero, 256, fw_slot_zero_params) { fw::slot_zero(p); }
