// qk_norm_rope_write: a wave a head of a row: query heads, then key heads, then value heads.
//
// A step's few heads are a chain of waits. So a head's elements and weights, all of a lane's at once,
// are asked for beside the row's facts, and widened only when those are there.
#include "parameters.h"
#include "portable.h"

namespace fw {

using RopeParams = fw_qk_norm_rope_write_params;

// The first element of a key's or value's place in the pool, or -1 where it has none.
DEVICE int64_t kv_place(const RopeParams& p, int position, int sequence, int kv_head) {
  const int entry = position / FW_BLOCK_TOKENS;
  if (position < 0 || entry >= p.table_blocks || sequence < 0 || sequence >= p.sequences) return -1;
  const int block = in<int>(p.block_table)[(size_t)sequence * p.table_blocks + entry];
  if (block <= 0 || block >= p.blocks) return -1;  // block 0 is padding's
  const int64_t head = (int64_t)block * p.kv_heads + kv_head;
  return (head * FW_BLOCK_TOKENS + position % FW_BLOCK_TOKENS) * p.head_dim;
}

// Element i's part in a rotation: the element that it turns with, the angle, and whether it is the
// first of the two.
struct Turn {
  int other, angle;
  bool first;
  DEVICE Turn(const RopeParams& p, int i)
      : other(p.pairing ? i ^ 1 : i < p.rotary_half ? i + p.rotary_half : i - p.rotary_half),
        angle(p.pairing ? i / 2 : i < p.rotary_half ? i : i - p.rotary_half),
        first(p.pairing ? i % 2 == 0 : i < p.rotary_half) {}
};

template <int W, typename S, int N>
DEVICE void store_head(uint64_t to, int64_t at, int head_dim, const float (&values)[N]) {
  FW_UNROLL
  for (int k = 0; k < N; k++) {
    const int i = k * W + lane<W>();
    if (i < head_dim) out<S>(to)[at + i] = narrow<S>(values[k]);
  }
}

template <int W, typename T>
DEVICE void qk_norm_rope_write(const RopeParams& p) {
  constexpr int TAKES = FW_MAX_HEAD_DIM / W;
  const int row = block_y(), slot = block_x() * (threads() / W) + uniform(thread() / W);
  if (slot >= p.heads + 2 * p.kv_heads) return;
  const bool is_query = slot < p.heads, is_value = slot >= p.heads + p.kv_heads;
  const int head = is_query ? slot : is_value ? slot - p.heads - p.kv_heads : slot - p.heads;
  const int offset = is_query ? p.q_offset : is_value ? p.v_offset : p.k_offset;
  const T* x = in<T>(p.projection) + (size_t)row * p.stride + offset + head * p.head_dim;
  const uint64_t norm = is_query ? p.q_norm : is_value ? 0 : p.k_norm;
  const int turned = is_value ? 0 : 2 * p.rotary_half;

  const int live = *in<int>(p.live), length = in<int>(p.row_length)[row];
  const int position = in<int>(p.row_position)[row], sequence = in<int>(p.row_sequence)[row];
  T own[TAKES] = {};
  float weight[TAKES] = {};
  FW_UNROLL
  for (int k = 0; k < TAKES; k++) {
    const int i = k * W + lane<W>();
    if (k * W < p.head_dim) own[k] = x[least(i, p.head_dim - 1)];
  }
  if (norm) {
    FW_UNROLL
    for (int k = 0; k < TAKES; k++) {
      const int i = k * W + lane<W>();
      if (k * W < p.head_dim) weight[k] = in<float>(norm)[least(i, p.head_dim - 1)];
    }
  }
  if (row >= least(live, p.rows) || length <= 0) return;

  const float* angles =
      in<float>(p.rope) + (size_t)most(0, least(position, p.context - 1)) * turned;
  const int64_t at = is_query ? ((int64_t)row * p.heads + head) * p.head_dim
                              : kv_place(p, position, sequence, head);
  if (at < 0) return;

  float scale = 1, squares = 0, values[TAKES];
  FW_UNROLL
  for (int k = 0; k < TAKES; k++) {
    values[k] = widen(own[k]);
    if (k * W + lane<W>() < p.head_dim) squares = fma(values[k], values[k], squares);
  }
  if (norm) scale = 1.0f / sqrt(wave_sum<W>(squares) / p.head_dim + p.eps);
  FW_UNROLL
  for (int k = 0; k < TAKES; k++) {
    const int i = k * W + lane<W>();
    if (norm) values[k] = values[k] * scale * (weight[k] + p.weight_offset);
    if (i >= turned) continue;
    const Turn turn(p, i);
    float turns = widen(x[turn.other]);
    if (norm) turns = turns * scale * (in<float>(norm)[turn.other] + p.weight_offset);
    const float cosine = angles[turn.angle], sine = angles[p.rotary_half + turn.angle];
    values[k] = turn.first ? values[k] * cosine - turns * sine : values[k] * cosine + turns * sine;
  }

  if (is_query) return store_head<W, T>(p.q, at, p.head_dim, values);
  const int64_t pool = (int64_t)p.blocks * p.kv_heads * FW_BLOCK_TOKENS * p.head_dim;
  const int64_t place = is_value ? pool + at : at;
  if (p.kv_dtype == FW_F32) store_head<W, float>(p.kv, place, p.head_dim, values);
  else if (p.kv_dtype == FW_F16) store_head<W, f16>(p.kv, place, p.head_dim, values);
  else store_head<W, bf16>(p.kv, place, p.head_dim, values);
}

}  // namespace fw

#define ENTRY(suffix, T)                                                             \
  FW_KERNEL(qk_norm_rope_write_##suffix, 256, fw_qk_norm_rope_write_params) {        \
    fw::qk_norm_rope_write<FW_WAVE, T>(p);                                           \
  }
ENTRY(f32, float)
ENTRY(f16, fw::f16)
ENTRY(bf16, fw::bf16)
