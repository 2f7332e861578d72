// gdn_chunk: the recurrence of gdn_step over a long run of rows, with the state kept at its end.
//
// Four lanes share a column of a V head's state, 32 keys each in registers; sums over keys stay
// within those lanes, so that rows follow one another without a barrier. Keys and queries of BATCH
// rows are normed into LDS first, and their values laid beside them. LDS and registers depend on
// nothing but the head's shape.
#include "slots.h"

namespace fw {

constexpr int CHUNK_BLOCK = 4 * FW_GDN_COLUMNS, SHARE = 4, BATCH = 16;
constexpr int PIECES = FW_GDN_KEYS / 4, OWN_PIECES = PIECES / SHARE;  // of four keys

DEVICE float element(const Words& piece, int i) { return as_float(word(piece, i)); }

// Keys and queries of ROWS rows, `every` rows apart, each of length one (the query by 1/√key_dim): a
// wave a row, four a lane. Rows beyond the last repeat it, unused; all loads come before any use.
template <int W, int ROWS, typename T, typename P, typename S>
DEVICE void stage_rows(const fw_gdn_chunk_params& p, int first, int count, int place0, int every,
                       int head, int k_head, P& keys, P& queries, S& scalars) {
  const int at = lane<W>() * 4;
  float q[ROWS][4], k[ROWS][4], a[ROWS], b[ROWS];
  FW_UNROLL
  for (int r = 0; r < ROWS; r++) {
    const size_t row = first + least(place0 + r * every, count - 1);
    const T* qkv = in<T>(p.qkv) + row * p.channels + (size_t)k_head * p.key_dim;
    const T* ab = in<T>(p.ab) + row * p.ab_stride;
    a[r] = widen(ab[p.a_offset + head]);
    b[r] = widen(ab[p.b_offset + head]);
    FW_UNROLL
    for (int i = 0; i < 4; i++) {
      const bool there = at + i < p.key_dim;
      q[r][i] = there ? widen(qkv[at + i]) : 0.0f;
      k[r][i] = there ? widen(qkv[p.k_heads * p.key_dim + at + i]) : 0.0f;
    }
  }
  FW_UNROLL
  for (int r = 0; r < ROWS; r++) {
    const int place = place0 + r * every;
    float qq = 0, kk = 0, qk = 0;
    FW_UNROLL
    for (int i = 0; i < 4; i++) {
      qq = fma(q[r][i], q[r][i], qq);
      kk = fma(k[r][i], k[r][i], kk);
      qk = fma(q[r][i], k[r][i], qk);
    }
    qq = wave_sum<W>(qq), kk = wave_sum<W>(kk), qk = wave_sum<W>(qk);
    const float q_scale = 1.0f / (sqrt(qq + p.eps) * sqrt((float)p.key_dim));
    const float k_scale = 1.0f / sqrt(kk + p.eps);
    if (lane<W>() < PIECES) {
      const int piece = place * PIECES + lane<W>();
      queries[piece] = make_words(as_uint(q[r][0] * q_scale), as_uint(q[r][1] * q_scale),
                                  as_uint(q[r][2] * q_scale), as_uint(q[r][3] * q_scale));
      keys[piece] = make_words(as_uint(k[r][0] * k_scale), as_uint(k[r][1] * k_scale),
                               as_uint(k[r][2] * k_scale), as_uint(k[r][3] * k_scale));
    }
    if (lane<W>() == 0) {
      const float step = softplus(a[r] + in<float>(p.dt_bias)[head]);
      scalars[3 * place] = exp(in<float>(p.negative_a)[head] * step);
      scalars[3 * place + 1] = sigmoid(b[r]);
      scalars[3 * place + 2] = qk * q_scale * k_scale;
    }
  }
}

template <int W, typename T>
DEVICE void gdn_chunk(const fw_gdn_chunk_params& p) {
  FW_LDS(Words, keys, BATCH * PIECES);
  FW_LDS(Words, queries, BATCH * PIECES);
  FW_LDS(float, values, BATCH * FW_GDN_COLUMNS);
  FW_LDS(float, scalars, 3 * BATCH);  // decay, beta, key · query
  const int head = block_y(), sequence = block_z();
  const Rows rows = rows_of(p, sequence);
  if (rows.first >= rows.end) return;
  const int share = thread() % SHARE;
  const int column = block_x() * FW_GDN_COLUMNS + thread() / SHARE;
  const bool inside = column < p.value_dim;
  const int k_head = p.head_map ? head % p.k_heads : head / (p.v_heads / p.k_heads);
  const size_t matrix = (size_t)p.key_dim * p.value_dim, at = head * matrix + column;
  const int values_at = 2 * p.k_heads * p.key_dim + head * p.value_dim;

  const float* from = in<float>(p.state) + slot_in(p, sequence) * p.v_heads * matrix + at;
  float state[OWN_PIECES][4];
  FW_UNROLL
  for (int i = 0; i < OWN_PIECES; i++)
    FW_UNROLL
    for (int j = 0; j < 4; j++) {
      const int key = (i * SHARE + share) * 4 + j;
      state[i][j] = inside && key < p.key_dim ? from[key * p.value_dim] : 0.0f;
    }

  for (int first = rows.first; first < rows.end; first += BATCH) {
    const int count = least(BATCH, rows.end - first);
    barrier();  // until the last batch has been read
    FW_UNROLL
    for (int i = 0; i < BATCH * FW_GDN_COLUMNS / CHUNK_BLOCK; i++) {
      const int place = i * CHUNK_BLOCK + thread(), t = place / FW_GDN_COLUMNS;
      const int of = block_x() * FW_GDN_COLUMNS + place % FW_GDN_COLUMNS;
      values[place] = of < p.value_dim
                          ? widen(in<T>(p.qkv)[(size_t)(first + least(t, count - 1)) * p.channels +
                                               values_at + of])
                          : 0.0f;
    }
    constexpr int WAVES = CHUNK_BLOCK / W, AT_ONCE = WAVES;  // by the registers of a lane
    for (int i = uniform(thread() / W); i < BATCH; i += AT_ONCE * WAVES)
      stage_rows<W, AT_ONCE, T>(p, first, count, i, WAVES, head, k_head, keys, queries, scalars);
    barrier();
    for (int t = 0; t < count; t++) {
      const float decay = scalars[3 * t], beta = scalars[3 * t + 1], dot = scalars[3 * t + 2];
      float seen = 0, asked = 0;
      Words key[OWN_PIECES];
      FW_UNROLL
      for (int i = 0; i < OWN_PIECES; i++) {
        key[i] = keys[t * PIECES + i * SHARE + share];
        const Words query = queries[t * PIECES + i * SHARE + share];
        float part_seen = 0, part_asked = 0;  // short chains: rows wait for one another
        FW_UNROLL
        for (int j = 0; j < 4; j++) {
          part_seen = fma(state[i][j], element(key[i], j), part_seen);
          part_asked = fma(state[i][j], element(query, j), part_asked);
        }
        seen += part_seen;
        asked += part_asked;
      }
      seen = decay * group_sum<W, SHARE>(seen);
      asked = decay * group_sum<W, SHARE>(asked);
      const float delta = beta * (values[t * FW_GDN_COLUMNS + thread() / SHARE] - seen);
      FW_UNROLL
      for (int i = 0; i < OWN_PIECES; i++)
        FW_UNROLL
        for (int j = 0; j < 4; j++)
          state[i][j] = fma(element(key[i], j), delta, decay * state[i][j]);
      if (inside && share == 0)  // Sᵀq after the update is Sᵀq before it and (k · q) d
        out<T>(p.y)[((size_t)(first + t) * p.v_heads + head) * p.value_dim + column] =
            narrow<T>(fma(dot, delta, asked));
    }
  }

  const size_t slot = slot_out<false>(p, rows, rows.end - 1);
  if (!slot || !inside) return;
  float* kept = out<float>(p.state) + slot * p.v_heads * matrix + at;
  const int key_dim = again(p.key_dim);  // else a mask for each key would be kept since the start
  FW_UNROLL
  for (int i = 0; i < OWN_PIECES; i++)
    FW_UNROLL
    for (int j = 0; j < 4; j++) {
      const int key = (i * SHARE + share) * 4 + j;
      if (key < key_dim) kept[key * p.value_dim] = state[i][j];
    }
}

}  // namespace fw

#define ENTRY(suffix, T)                                   \
  FW_KERNEL(gdn_chunk_##suffix, 128, fw_gdn_chunk_params) { \
    fw::gdn_chunk<FW_WAVE, T>(p);                          \
  }
ENTRY(f32, float)
ENTRY(f16, fw::f16)
ENTRY(bf16, fw::bf16)
