// conv_step, conv_chunk, conv_keep, gdn_step, slot_copy, slot_zero.
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

// A thread takes CONV_RUN rows of a channel, of TAPS taps at most.
template <typename T, int TAPS>
DEVICE void conv_chunk(const fw_conv_chunk_params& p) {
  const int which = block_x() * threads() + thread(), sequence = block_y();
  const Rows rows = rows_of(p, sequence);
  const int first = rows.first + block_z() * CONV_RUN, end = least(first + CONV_RUN, rows.end);
  if (which >= p.channels || first >= end) return;
  Channel<T, fw_conv_chunk_params, TAPS> channel(p, rows, which, sequence);
  channel.load(first);
  for (int row = first; row < end; row++) channel.convolve(row, channel.input(row));
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
template <int W, typename T>
DEVICE void gdn_step(const fw_gdn_step_params& p) {
  FW_LDS(float, scratch, 3 * GDN_BLOCK / W);
  FW_LDS(float, key, FW_GDN_KEYS);
  FW_LDS(float, query, FW_GDN_KEYS);
  FW_LDS(float, seen_part, GDN_BLOCK);
  FW_LDS(float, asked_part, GDN_BLOCK);
  const int head = block_y(), sequence = block_z();
  const size_t slot_from = slot_in(p, sequence);
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

  // What a row brings: asked for before anything of it is waited for.
  struct Row {
    T q, k, v, a, b;
    int slot;
  };
  const auto ask = [&](int row) {
    const T* qkv = in<T>(p.qkv) + (size_t)row * p.channels;
    const T* ab = in<T>(p.ab) + (size_t)row * p.ab_stride;
    const size_t own_key = (size_t)k_head * p.key_dim + least(thread(), p.key_dim - 1);
    const size_t value = 2 * keys + (size_t)head * p.value_dim + least(column, p.value_dim - 1);
    return Row{qkv[own_key], qkv[keys + own_key], qkv[value], ab[p.a_offset + head],
               ab[p.b_offset + head], (int)slot_out<true>(p, rows, row)};
  };
  Row now = ask(rows.first);

  // key_dim is a multiple of KEY_GROUPS, so that all threads have as many keys.
  const int own_keys = p.key_dim / KEY_GROUPS;
  const float* from = in<float>(p.state) + slot_from * p.v_heads * matrix + at;
  float state[KEYS];
  FW_UNROLL
  for (int i = 0; i < KEYS; i++)
    state[i] = inside && i < own_keys ? from[(size_t)(i * KEY_GROUPS + group) * p.value_dim] : 0.0f;

  for (int row = rows.first; row < rows.end; row++) {
    if (row > rows.first) now = ask(row);
    const bool has_key = thread() < p.key_dim;
    const float q = has_key ? widen(now.q) : 0.0f, k = has_key ? widen(now.k) : 0.0f;
    float qq = q * q, kk = k * k, qk = q * k;
    block_sum3<W>(qq, kk, qk, scratch);
    const float q_scale = 1.0f / (sqrt(qq + p.eps) * sqrt((float)p.key_dim));
    const float k_scale = 1.0f / sqrt(kk + p.eps);
    if (thread() < FW_GDN_KEYS) {
      query[thread()] = q * q_scale;
      key[thread()] = k * k_scale;
    }
    const float decay = exp(negative_a * softplus(widen(now.a) + dt_bias));
    const float beta = sigmoid(widen(now.b));
    barrier();

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
    FW_UNROLL
    for (int g = 0; g < KEY_GROUPS; g++) {
      seen += seen_part[g * FW_GDN_COLUMNS + of_block];
      asked += asked_part[g * FW_GDN_COLUMNS + of_block];
    }
    const float delta = beta * ((inside ? widen(now.v) : 0.0f) - seen);
    FW_UNROLL
    for (int i = 0; i < KEYS; i++) state[i] = fma(key[i * KEY_GROUPS + group], delta, state[i]);
    if (!inside) continue;
    if (group == 0)  // Sᵀq after the update is Sᵀq before it and (k · q) d
      out<T>(p.y)[((size_t)row * p.v_heads + head) * p.value_dim + column] =
          narrow<T>(fma(qk * q_scale * k_scale, delta, asked));
    if (!now.slot) continue;
    float* kept = out<float>(p.state) + (size_t)now.slot * p.v_heads * matrix + at;
    FW_UNROLL
    for (int i = 0; i < KEYS; i++)
      if (i < own_keys) kept[(size_t)(i * KEY_GROUPS + group) * p.value_dim] = state[i];
  }
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
  }                                                                                 \
  FW_KERNEL_RESIDENT(gdn_step_##suffix, 256, 4, fw_gdn_step_params) {                           \
    fw::gdn_step<FW_WAVE, T>(p);                                                    \
  }
ENTRIES(f32, float)
ENTRIES(f16, fw::f16)
ENTRIES(bf16, fw::bf16)
FW_KERNEL(slot_copy, 256, fw_slot_copy_params) { fw::slot_copy(p); }
FW_KERNEL(slot_zero, 256, fw_slot_zero_params) { fw::slot_zero(p); }
