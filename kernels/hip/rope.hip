// qk_norm_rope_write: a wave a head of a row: query heads, then key heads, then value heads.
#include "parameters.h"
#include "portable.h"

namespace fw {

using RopeParams = fw_qk_norm_rope_write_params;

// The first element of a key's or value's place in the pool, or -1 where it has none.
DEVICE int64_t kv_place(const RopeParams& p, int row, int kv_head) {
  const int position = in<int>(p.row_position)[row], sequence = in<int>(p.row_sequence)[row];
  const int entry = position / FW_BLOCK_TOKENS;
  if (position < 0 || entry >= p.table_blocks || sequence < 0 || sequence >= p.sequences) return -1;
  const int block = in<int>(p.block_table)[(size_t)sequence * p.table_blocks + entry];
  if (block <= 0 || block >= p.blocks) return -1;  // block 0 is padding's
  const int64_t head = (int64_t)block * p.kv_heads + kv_head;
  return (head * FW_BLOCK_TOKENS + position % FW_BLOCK_TOKENS) * p.head_dim;
}

// A head's elements, normed if it has a norm.
template <int W, typename T>
struct Head {
  const T* x;
  uint64_t weight;
  float scale, offset;

  DEVICE Head(const RopeParams& p, const T* from, uint64_t norm)
      : x(from), weight(norm), scale(1), offset(p.weight_offset) {
    if (!norm) return;
    float squares = 0;
    for (int i = lane<W>(); i < p.head_dim; i += W) {
      const float value = widen(x[i]);
      squares = fma(value, value, squares);
    }
    scale = 1.0f / sqrt(wave_sum<W>(squares) / p.head_dim + p.eps);
  }
  DEVICE float get(int i) const {
    const float value = widen(x[i]);
    return weight ? value * scale * (in<float>(weight)[i] + offset) : value;
  }
};

template <int W, typename T>
DEVICE void rotate(const RopeParams& p, int row, const Head<W, T>& head, uint64_t to, int dtype,
                   int64_t at) {
  const int half = p.rotary_half;
  const int position = most(0, least(in<int>(p.row_position)[row], p.context - 1));
  const float* turn = in<float>(p.rope) + (size_t)position * 2 * half;
  for (int i = lane<W>(); i < half; i += W) {
    const int a = p.pairing ? 2 * i : i, b = p.pairing ? 2 * i + 1 : i + half;
    const float cosine = turn[i], sine = turn[half + i], xa = head.get(a), xb = head.get(b);
    store_as(to, dtype, at + a, xa * cosine - xb * sine);
    store_as(to, dtype, at + b, xb * cosine + xa * sine);
  }
  for (int i = 2 * half + lane<W>(); i < p.head_dim; i += W)
    store_as(to, dtype, at + i, head.get(i));
}

template <int W, typename T>
DEVICE void qk_norm_rope_write(const RopeParams& p) {
  const int row = block_y(), slot = block_x() * (threads() / W) + uniform(thread() / W);
  if (row >= live_rows(p.live, p.rows) || slot >= p.heads + 2 * p.kv_heads) return;
  if (in<int>(p.row_length)[row] <= 0) return;
  const T* projection = in<T>(p.projection) + (size_t)row * p.stride;
  if (slot < p.heads) {
    const Head<W, T> head(p, projection + p.q_offset + slot * p.head_dim, p.q_norm);
    rotate<W, T>(p, row, head, p.q, p.dtype, ((int64_t)row * p.heads + slot) * p.head_dim);
    return;
  }
  const bool is_key = slot < p.heads + p.kv_heads;
  const int kv_head = is_key ? slot - p.heads : slot - p.heads - p.kv_heads;
  const int64_t at = kv_place(p, row, kv_head);
  if (at < 0) return;
  if (is_key) {
    const Head<W, T> head(p, projection + p.k_offset + kv_head * p.head_dim, p.k_norm);
    rotate<W, T>(p, row, head, p.kv, p.kv_dtype, at);
    return;
  }
  const T* value = projection + p.v_offset + kv_head * p.head_dim;
  const int64_t values = (int64_t)p.blocks * p.kv_heads * FW_BLOCK_TOKENS * p.head_dim;
  for (int i = lane<W>(); i < p.head_dim; i += W)
    store_as(p.kv, p.kv_dtype, values + at + i, widen(value[i]));
}

}  // namespace fw

#define ENTRY(suffix, T)                                                             \
  FW_KERNEL(qk_norm_rope_write_##suffix, 256, fw_qk_norm_rope_write_params) {        \
    fw::qk_norm_rope_write<FW_WAVE, T>(p);                                           \
  }
ENTRY(f32, float)
ENTRY(f16, fw::f16)
ENTRY(bf16, fw::bf16)
