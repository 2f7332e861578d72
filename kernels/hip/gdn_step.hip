// gdn_step: a delta net's recurrence, row by row, with the state kept after every one of them.
//
// A block has FW_GDN_VALUES columns of a V head's state in registers: COLUMNS neighbours of PART keys a
// thread. One wave more holds nothing of it. While the state is on its way here, that makes what all
// columns share of a row; while it is on its way back, the norm of what they give.
#include "head_norm.h"
#include "slots.h"

namespace fw {

constexpr int COLUMNS = 4, LANES = FW_GDN_VALUES / COLUMNS;
constexpr int PARTS = FW_GDN_HOLDERS / LANES, PART = FW_GDN_KEYS / PARTS;
constexpr int PIECES = FW_GDN_KEYS / 4;  // of four keys
constexpr int KEY_STEP = 8;              // key_dim is a multiple of it
static_assert(FW_HEAD_KEPT == FW_GDN_VALUES, "a head whose norm the last wave makes is one block's");
enum { DECAY, BETA, PRODUCT, FACTS };

// What all columns share of a row, by a wave: key and query of length one, four elements a lane, and in
// `facts` by what the state decays, how much of the row comes to it, and the key times the query.
template <int W, typename T, typename Pieces, typename Facts>
DEVICE void make_row(const fw_gdn_step_params& p, int row, int head, Pieces& keys, Pieces& queries,
                     Facts& facts) {
  const int k_head = p.head_map ? head % p.k_heads : head / (p.v_heads / p.k_heads);
  const T* from = in<T>(p.qkv) + (size_t)row * p.channels + (size_t)k_head * p.key_dim;
  const T* ab = in<T>(p.ab) + (size_t)row * p.ab_stride;
  float q[4], k[4], dots[3] = {};
  FW_UNROLL
  for (int i = 0; i < 4; i++) {
    const int at = least(lane<W>() * 4 + i, p.key_dim - 1);
    q[i] = widen(from[at]);
    k[i] = widen(from[p.k_heads * p.key_dim + at]);
  }
  const float a = widen(ab[p.a_offset + head]) + in<float>(p.dt_bias)[head];
  const float b = widen(ab[p.b_offset + head]), negative_a = in<float>(p.negative_a)[head];
  FW_UNROLL
  for (int i = 0; i < 4; i++) {
    if (lane<W>() * 4 + i >= p.key_dim) q[i] = k[i] = 0;
    dots[0] = fma(q[i], q[i], dots[0]);
    dots[1] = fma(k[i], k[i], dots[1]);
    dots[2] = fma(q[i], k[i], dots[2]);
  }
  group_sums<W, W>(dots);
  const float q_scale = 1.0f / sqrt((dots[0] + p.eps) * p.key_dim);
  const float k_scale = 1.0f / sqrt(dots[1] + p.eps);
  if (lane<W>() < PIECES) {
    queries[lane<W>()] = floats(q[0] * q_scale, q[1] * q_scale, q[2] * q_scale, q[3] * q_scale);
    keys[lane<W>()] = floats(k[0] * k_scale, k[1] * k_scale, k[2] * k_scale, k[3] * k_scale);
  }
  if (lane<W>() > 0) return;
  facts[DECAY] = exp(negative_a * softplus(a));
  facts[BETA] = sigmoid(b);
  facts[PRODUCT] = dots[2] * q_scale * k_scale;
}

template <int W, typename T>
DEVICE void gdn_step(const FwGdnStepParams& params) {
  FW_LDS(Words, keys, PIECES);
  FW_LDS(Words, queries, PIECES);
  FW_LDS(float, facts, FACTS);
  FW_LDS(float, seen_part, PARTS * FW_GDN_VALUES);
  FW_LDS(float, asked_part, PARTS * FW_GDN_VALUES);
  FW_LDS(float, deltas, FW_GDN_VALUES);
  FW_LDS(float, given, FW_GDN_VALUES);
  const fw_gdn_step_params& p = params.op;
  const int head = block_y(), sequence = block_z(), first_column = block_x() * FW_GDN_VALUES;
  const int slot_from = uniform((int)slot_in(p, sequence));
  const Rows rows = rows_of(p, sequence);
  if (rows.first >= rows.end) return;

  // A row's three barriers: what is shared is there; all sums are; what they give is. And one until
  // the next row may be made.
  if (uniform(thread() / W) == FW_GDN_HOLDERS / W) {
    const fw_gated_rms_norm_params& of = params.norm;
    const int normed = of.y ? live_rows(of.live, of.rows) : 0;
    for (int row = rows.first; row < rows.end; row++) {
      make_row<W, T>(p, row, head, keys, queries, facts);
      barrier();
      HeadNorm<W, T> norm(of);
      if (row < normed) norm.load(row, head);
      barrier();
      barrier();
      if (row < normed) {
        float x[HeadNorm<W, T>::KEPT];
        FW_UNROLL
        for (int turn = 0; turn < HeadNorm<W, T>::KEPT; turn++) x[turn] = given[turn * W + lane<W>()];
        norm.write(row, head, x, norm.scale(norm.squares(x)));
      }
      if (row + 1 < rows.end) barrier();
    }
    return;
  }

  const int own = thread() % LANES, part = thread() / LANES, column = first_column + own * COLUMNS;
  const int own_keys = column < p.value_dim ? p.key_dim - part * PART : 0;
  // Sums lie in LDS so that neither lanes nor columns share a bank: this is whose a thread adds up.
  const int ends = first_column + own * COLUMNS + part % COLUMNS;
  const size_t matrix = (size_t)p.key_dim * p.value_dim;
  const float* from = in<float>(p.state) + ((size_t)slot_from * p.v_heads + head) * matrix;
  // Keys and columns beyond the last are another's: their keys in LDS are 0, and they aren't kept.
  float state[PART][COLUMNS];
  FW_UNROLL
  for (int i = 0; i < PART; i++) {
    const int first = least(part * PART + i / KEY_STEP * KEY_STEP, p.key_dim - KEY_STEP) * p.value_dim;
    const uint32_t at = first + least(column, p.value_dim - COLUMNS);
    const Words piece = load_words(from + at + i % KEY_STEP * p.value_dim);
    FW_UNROLL
    for (int c = 0; c < COLUMNS; c++) state[i][c] = element(piece, c);
  }

  for (int row = rows.first; row < rows.end; row++) {
    const size_t value = 2 * p.k_heads * p.key_dim + head * p.value_dim + least(ends, p.value_dim - 1);
    const T v = in<T>(p.qkv)[(size_t)row * p.channels + value];
    const int slot = uniform((int)slot_out<true>(p, rows, row));
    barrier();
    const float decay = facts[DECAY];
    float seen[COLUMNS] = {}, asked[COLUMNS] = {};
    FW_UNROLL
    for (int n = 0; n < PART / 4; n++) {
      const Words key = keys[part * (PART / 4) + n], query = queries[part * (PART / 4) + n];
      FW_UNROLL
      for (int i = 0; i < 4; i++)
        FW_UNROLL
        for (int c = 0; c < COLUMNS; c++) {
          float& s = state[4 * n + i][c];
          s *= decay;
          seen[c] = fma(s, element(key, i), seen[c]);
          asked[c] = fma(s, element(query, i), asked[c]);
        }
    }
    FW_UNROLL
    for (int c = 0; c < COLUMNS; c++) {
      seen_part[part * FW_GDN_VALUES + c * LANES + own] = seen[c];
      asked_part[part * FW_GDN_VALUES + c * LANES + own] = asked[c];
    }
    barrier();
    if (thread() < FW_GDN_VALUES) {
      float all_seen = 0, all_asked = 0;
      FW_UNROLL
      for (int i = 0; i < PARTS; i++) {
        all_seen += seen_part[i * FW_GDN_VALUES + thread()];
        all_asked += asked_part[i * FW_GDN_VALUES + thread()];
      }
      const float delta = facts[BETA] * (widen(v) - all_seen);
      // Sᵀq after the update is Sᵀq before it and (k · q) d
      const T y = narrow<T>(fma(facts[PRODUCT], delta, all_asked));
      deltas[thread()] = delta;
      given[ends - first_column] = widen(y);
      if (ends < p.value_dim) out<T>(p.y)[((size_t)row * p.v_heads + head) * p.value_dim + ends] = y;
    }
    barrier();
    float delta[COLUMNS];
    FW_UNROLL
    for (int c = 0; c < COLUMNS; c++) delta[c] = deltas[c * LANES + own];
    FW_UNROLL
    for (int n = 0; n < PART / 4; n++) {
      const Words key = keys[part * (PART / 4) + n];
      FW_UNROLL
      for (int i = 0; i < 4; i++)
        FW_UNROLL
        for (int c = 0; c < COLUMNS; c++)
          state[4 * n + i][c] = fma(element(key, i), delta[c], state[4 * n + i][c]);
    }
    if (slot) {
      float* kept = out<float>(p.state) + ((size_t)slot * p.v_heads + head) * matrix;
      const uint32_t at = part * PART * p.value_dim + column;
      FW_UNROLL
      for (int i = 0; i < PART; i++)
        if (i / KEY_STEP * KEY_STEP < own_keys)
          store_words(kept + at + (size_t)i * p.value_dim,
                      floats(state[i][0], state[i][1], state[i][2], state[i][3]));
    }
    if (row + 1 < rows.end) barrier();
  }
}

}  // namespace fw

#define ENTRY(suffix, T)                                                                        \
  FW_KERNEL_RESIDENT(gdn_step_##suffix, FW_GDN_HOLDERS + FW_WAVE, 2, FwGdnStepParams) {         \
    fw::gdn_step<FW_WAVE, T>(p);                                                                \
  }
ENTRY(f32, float)
ENTRY(f16, fw::f16)
ENTRY(bf16, fw::bf16)
