// conv_step, conv_chunk, gdn_step, gdn_chunk, slot_copy, slot_zero.
//
// Both forms of an op walk a sequence's rows in order and differ in when the state is kept.
// gdn_chunk is the recurrence too, not yet the solved form: exact, but a long chunk takes its time.
#include "parameters.h"
#include "portable.h"

namespace fw {

struct Rows {
  int first, end;
};
template <typename Params>
DEVICE Rows rows_of(const Params& p, int sequence) {
  const int first = in<int>(p.first_row)[sequence];
  return Rows{most(first, 0), least(first + in<int>(p.row_count)[sequence], p.rows)};
}

// Where a sequence's state starts from: a slot outside of the pool counts as the empty slot 0.
template <typename Params>
DEVICE size_t slot_in(const Params& p, int sequence) {
  const int slot = in<int>(p.slot_in)[sequence];
  return slot < 0 || slot >= p.slots ? 0 : slot;
}

// Where a row's state is kept, or 0: padding's slot, which is never written.
template <bool EVERY_ROW, typename Params>
DEVICE size_t slot_out(const Params& p, Rows rows, int row) {
  if (!EVERY_ROW && row + 1 < rows.end) return 0;
  const int slot = in<int>(p.slot_out)[row];
  return slot < 0 || slot >= p.slots ? 0 : slot;
}

// A thread a channel.
template <typename T, bool EVERY_ROW, typename Params>
DEVICE void convolve(const Params& p) {
  constexpr int TAPS = FW_CONV_TAPS;
  const int channel = block_x() * threads() + thread(), sequence = block_y();
  const Rows rows = rows_of(p, sequence);
  if (channel >= p.channels || rows.first >= rows.end) return;

  // Inputs, oldest first, at the end of an array of fixed size, so that it stays in registers.
  const int skip = TAPS - p.taps;
  const size_t state_stride = (size_t)p.channels * p.history;
  const size_t at = (size_t)channel * p.history;
  const float* history = in<float>(p.state) + slot_in(p, sequence) * state_stride + at;
  const float* taps = in<float>(p.weight) + (size_t)channel * p.taps;
  float window[TAPS], weight[TAPS];
  FW_UNROLL
  for (int i = 0; i < TAPS; i++) {
    weight[i] = i >= skip ? taps[i - skip] : 0.0f;
    window[i] = i >= skip && i < TAPS - 1 ? history[i - skip] : 0.0f;
  }
  for (int row = rows.first; row < rows.end; row++) {
    window[TAPS - 1] = widen(in<T>(p.x)[(size_t)row * p.stride + p.offset + channel]);
    float sum = 0;
    FW_UNROLL
    for (int i = 0; i < TAPS; i++)
      if (i >= skip) sum += window[i] * weight[i];
    out<T>(p.y)[(size_t)row * p.channels + channel] = narrow<T>(silu(sum));
    FW_UNROLL
    for (int i = 0; i + 1 < TAPS; i++) window[i] = window[i + 1];
    if (const size_t slot = slot_out<EVERY_ROW>(p, rows, row)) {
      float* kept = out<float>(p.state) + slot * state_stride + at;
      FW_UNROLL
      for (int i = 0; i + 1 < TAPS; i++)
        if (i >= skip) kept[i - skip] = window[i];
    }
  }
}

constexpr int GDN_BLOCK = 256;
constexpr int KEY_GROUPS = GDN_BLOCK / FW_GDN_COLUMNS, KEYS = FW_GDN_KEYS / KEY_GROUPS;

// Sums of three values over the block in one pass.
template <int W, typename S>
DEVICE void block_sum3(float& a, float& b, float& c, S& scratch) {
  constexpr int WAVES = GDN_BLOCK / W;
  a = wave_sum<W>(a), b = wave_sum<W>(b), c = wave_sum<W>(c);
  if (lane<W>() == 0) {
    scratch[thread() / W] = a;
    scratch[WAVES + thread() / W] = b;
    scratch[2 * WAVES + thread() / W] = c;
  }
  barrier();
  a = b = c = 0;
  for (int i = 0; i < WAVES; i++) {
    a += scratch[i];
    b += scratch[WAVES + i];
    c += scratch[2 * WAVES + i];
  }
}

// A block takes FW_GDN_COLUMNS columns of a V head's state; a thread one column of every
// KEY_GROUPS-th key, in registers.
template <int W, typename T, bool EVERY_ROW, typename Params>
DEVICE void gated_delta(const Params& p) {
  FW_LDS(float, scratch, 3 * GDN_BLOCK / W);
  FW_LDS(float, key, FW_GDN_KEYS);
  FW_LDS(float, query, FW_GDN_KEYS);
  FW_LDS(float, seen_part, GDN_BLOCK);
  FW_LDS(float, asked_part, GDN_BLOCK);
  const int head = block_y(), sequence = block_z();
  const Rows rows = rows_of(p, sequence);
  if (rows.first >= rows.end) return;
  const int of_block = thread() % FW_GDN_COLUMNS, group = thread() / FW_GDN_COLUMNS;
  const int column = block_x() * FW_GDN_COLUMNS + of_block;
  const bool inside = column < p.value_dim;
  const int k_head = p.head_map ? head % p.k_heads : head / (p.v_heads / p.k_heads);
  const size_t keys = (size_t)p.k_heads * p.key_dim;
  const size_t matrix = (size_t)p.key_dim * p.value_dim;
  const size_t at = head * matrix + column;
  const float negative_a = in<float>(p.negative_a)[head], dt_bias = in<float>(p.dt_bias)[head];

  // key_dim is a multiple of KEY_GROUPS, so that all threads have as many keys.
  const int own_keys = p.key_dim / KEY_GROUPS;
  const float* from = in<float>(p.state) + slot_in(p, sequence) * p.v_heads * matrix + at;
  float state[KEYS];
  FW_UNROLL
  for (int i = 0; i < KEYS; i++)
    state[i] = inside && i < own_keys ? from[(size_t)(i * KEY_GROUPS + group) * p.value_dim] : 0.0f;

  const auto keep = [&](int row) {
    const size_t slot = slot_out<EVERY_ROW>(p, rows, row);
    if (!slot) return;
    float* kept = out<float>(p.state) + slot * p.v_heads * matrix + at;
    FW_UNROLL
    for (int i = 0; i < KEYS; i++)
      if (i < own_keys) kept[(size_t)(i * KEY_GROUPS + group) * p.value_dim] = state[i];
  };

  for (int row = rows.first; row < rows.end; row++) {
    const T* qkv = in<T>(p.qkv) + (size_t)row * p.channels;
    const T* ab = in<T>(p.ab) + (size_t)row * p.ab_stride;
    float q = 0, k = 0;
    if (thread() < p.key_dim) {
      q = widen(qkv[(size_t)k_head * p.key_dim + thread()]);
      k = widen(qkv[keys + (size_t)k_head * p.key_dim + thread()]);
    }
    float qq = q * q, kk = k * k, qk = q * k;
    block_sum3<W>(qq, kk, qk, scratch);
    const float q_scale = 1.0f / (sqrt(qq + p.eps) * sqrt((float)p.key_dim));
    const float k_scale = 1.0f / sqrt(kk + p.eps);
    if (thread() < FW_GDN_KEYS) {
      query[thread()] = q * q_scale;
      key[thread()] = k * k_scale;
    }
    barrier();

    const float decay = exp(negative_a * softplus(widen(ab[p.a_offset + head]) + dt_bias));
    const float beta = sigmoid(widen(ab[p.b_offset + head]));
    float seen = 0, asked = 0;
    FW_UNROLL
    for (int i = 0; i < KEYS; i++) {
      state[i] *= decay;
      seen = fma(state[i], key[i * KEY_GROUPS + group], seen);
      asked = fma(state[i], query[i * KEY_GROUPS + group], asked);
    }
    seen_part[thread()] = seen;
    asked_part[thread()] = asked;
    barrier();
    seen = asked = 0;
    for (int g = 0; g < KEY_GROUPS; g++) {
      seen += seen_part[g * FW_GDN_COLUMNS + of_block];
      asked += asked_part[g * FW_GDN_COLUMNS + of_block];
    }
    const float v = inside ? widen(qkv[2 * keys + (size_t)head * p.value_dim + column]) : 0.0f;
    const float delta = beta * (v - seen);
    FW_UNROLL
    for (int i = 0; i < KEYS; i++) state[i] = fma(key[i * KEY_GROUPS + group], delta, state[i]);
    if (!inside) continue;
    if (group == 0)  // Sᵀq after the update is Sᵀq before it and (k · q) d
      out<T>(p.y)[((size_t)row * p.v_heads + head) * p.value_dim + column] =
          narrow<T>(fma(qk * q_scale * k_scale, delta, asked));
    if (EVERY_ROW) keep(row);
  }
  if (!EVERY_ROW && inside) keep(rows.end - 1);
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
    fw::convolve<T, true>(p);                                                       \
  }                                                                                 \
  FW_KERNEL(conv_chunk_##suffix, 256, fw_conv_chunk_params) {                       \
    fw::convolve<T, false>(p);                                                      \
  }                                                                                 \
  FW_KERNEL(gdn_step_##suffix, 256, fw_gdn_step_params) {                           \
    fw::gated_delta<FW_WAVE, T, true>(p);                                           \
  }                                                                                 \
  FW_KERNEL(gdn_chunk_##suffix, 256, fw_gdn_chunk_params) {                         \
    fw::gated_delta<FW_WAVE, T, false>(p);                                          \
  }
ENTRIES(f32, float)
ENTRIES(f16, fw::f16)
ENTRIES(bf16, fw::bf16)
FW_KERNEL(slot_copy, 256, fw_slot_copy_params) { fw::slot_copy(p); }
FW_KERNEL(slot_zero, 256, fw_slot_zero_params) { fw::slot_zero(p); }
