// attention_prefill on matrix units, for heads of 64, 128 and 256 and KV of the activations' type.
//
// A wave takes a unit's tokens: each a row's query head of one KV head. It walks 32 positions at a
// time, from the first on: their products with the queries, weights by a running maximum, and the
// weights' products with the values, which the block turns in LDS. A token's sums depend neither on
// the others nor on how its prompt was cut into chunks.
#include "matrix.h"
#include "parameters.h"

#if defined(FW_MATRIX)
namespace fw {

constexpr int BLOCK = 256, POSITIONS = 32;
// Finite, so that a difference of two is a number: no maximum yet, and a position that isn't seen.
constexpr float LOWEST = -1e30f, UNSEEN = -2e30f;

// Weights are at most 2^15 in float16, in whose normal range all from 2^-29 of the largest on lie then:
// MI200's matrix units take denormals for zero. Their sum has the same factor.
template <typename T>
constexpr float RAISED = IsHalf<T>::value ? 10.3972077083991797f : 0;  // ln 2^15

// Over the lanes that share a token.
template <int W, int TOKEN_LANES, bool MAX>
DEVICE float over_token(float value) {
  FW_UNROLL
  for (int d = TOKEN_LANES; d < W; d *= 2) {
    const float other = shuffle<W>(value, lane<W>() ^ d);
    value = MAX ? fmax(value, other) : value + other;
  }
  return value;
}

// Where the keys of position `at` and those after it, up to its KV block's end, begin.
template <typename T>
DEVICE const T* keys_of(const FwAttentionParams& p, const int* table, int kv_head, int at) {
  int block = table[least(at / FW_BLOCK_TOKENS, p.table_blocks - 1)];
  if (block < 0 || block >= p.blocks) block = 0;
  return in<T>(p.kv) + (((size_t)block * p.kv_heads + kv_head) * FW_BLOCK_TOKENS +
                        at % FW_BLOCK_TOKENS) * p.head_dim;
}

// A thread's part of the values of POSITIONS positions, eight dimensions of eight of them, on its way
// to LDS, where piece 4 d + w has dimension d of the positions Unit::position(w, 0 … 7).
template <typename Unit, int DIM, typename T>
struct Values {
  static constexpr int TASKS = DIM / 8 * 4;
  static_assert(TASKS <= BLOCK, "a thread has one part at most");
  Words given[8];

  // Those from `start` on; positions from `end` on count as zeros.
  DEVICE void ask(const FwAttentionParams& p, const int* table, int kv_head, int start, int end) {
    const size_t values = (size_t)p.blocks * p.kv_heads * FW_BLOCK_TOKENS * p.head_dim;
    if (thread() >= TASKS) return;
    FW_UNROLL
    for (int j = 0; j < 8; j++) {
      const int at = start + Unit::position(thread() % 4, j);
      given[j] = at < end ? load_words(keys_of<T>(p, table, kv_head, at) + values + thread() / 4 * 8)
                          : no_words();
    }
  }
  template <typename V>
  DEVICE void turn(V& turned) const {
    if (thread() >= TASKS) return;
    FW_UNROLL
    for (int d = 0; d < 8; d++)
      turned[(thread() / 4 * 8 + d) * 4 + thread() % 4] = across_eight(given, d);
  }
};

template <int W, int DIM, typename T>
DEVICE void attention_matrix(const FwAttentionParams& p) {
  using Unit = Matrix<W, T>;
  constexpr int TOKENS = BLOCK / W * Unit::TOKENS, STEPS = DIM / MATRIX_COLUMNS;
  static_assert(TOKENS >= FW_ATTENTION_TOKENS, "the launch has a block for every token");
  constexpr int SLOTS = Unit::SLOTS, SUMS = Unit::SUMS;
  constexpr bool KEPT = Unit::TOKEN_LOADS == 1;  // queries in registers; else read again each time
  // Values are asked for a step ahead where one block has a unit for itself anyway.
  constexpr bool AHEAD = KEPT && DIM == FW_MAX_HEAD_DIM;
  FW_LDS(Words, turned, DIM * 4);
  FW_LDS(float, scratch, BLOCK / W);
  const int kv_head = block_x(), sequence = block_z(), shared = p.heads / p.kv_heads;
  const int first_row = most(in<int>(p.first_row)[sequence], 0);
  const int end_row = least(in<int>(p.first_row)[sequence] + in<int>(p.row_count)[sequence], p.rows);
  const int tokens = (end_row - first_row) * shared;
  // The last rows see the most: they begin first.
  const int first = ((p.rows * shared + TOKENS - 1) / TOKENS - 1 - block_y()) * TOKENS;
  if (first < 0 || first >= tokens) return;
  const int wave_first = first + uniform(thread() / W) * Unit::TOKENS;
  const auto place_of = [&](int token) {  // of its query head
    return (size_t)(first_row + token / shared) * p.heads + kv_head * shared + token % shared;
  };

  int length[SLOTS], longest_of_wave = 0;
  FW_UNROLL
  for (int i = 0; i < SLOTS; i++) {
    const int token = wave_first + Unit::sum_token(i);
    length[i] = token < tokens ? in<int>(p.row_length)[first_row + token / shared] : 0;
    length[i] = least(length[i], p.table_blocks * FW_BLOCK_TOKENS);
    longest_of_wave = most(longest_of_wave, length[i]);
  }
  longest_of_wave = (int)wave_max<W>((float)longest_of_wave);
  const int longest = (int)block_max<W>((float)longest_of_wave, scratch);

  const T* query = in<T>(p.q) + place_of(least(wave_first + Unit::token(0), tokens - 1)) * DIM;
  Words kept[KEPT ? STEPS : 1][Unit::TOKEN_LOADS];
  if constexpr (KEPT) {
    FW_UNROLL
    for (int s = 0; s < STEPS; s++)
      kept[s][0] = load_words(query + s * MATRIX_COLUMNS + Unit::token_offset(0));
  }
  const int* table = in<int>(p.block_table) + (size_t)sequence * p.table_blocks;
  float largest[SLOTS], weight[SLOTS], sums[DIM / MATRIX_ROWS][SUMS] = {};
  FW_UNROLL
  for (int i = 0; i < SLOTS; i++) largest[i] = LOWEST, weight[i] = 0;

  Values<Unit, DIM, T> next;
  if (AHEAD) next.ask(p, table, kv_head, 0, longest);
  for (int start = 0; start < longest; start += POSITIONS) {
    barrier();  // until the last values have been read
    if (!AHEAD) next.ask(p, table, kv_head, start, longest);
    next.turn(turned);
    barrier();
    if (AHEAD && start + POSITIONS < longest) next.ask(p, table, kv_head, start + POSITIONS, longest);
    if (start >= longest_of_wave) continue;

    float scores[2][SUMS] = {}, seen[SLOTS];
    FW_UNROLL
    for (int g = 0; g < 2; g++) {
      const T* keys = keys_of<T>(p, table, kv_head, start + g * MATRIX_ROWS);
      const auto step = [&](int s, const Words (&b)[Unit::TOKEN_LOADS]) {
        Words a[Unit::ROW_LOADS];
        FW_UNROLL
        for (int i = 0; i < Unit::ROW_LOADS; i++)
          a[i] = load_words(keys + Unit::row(i) * DIM + s * MATRIX_COLUMNS + Unit::row_offset(i));
        Unit::multiply(a, b, scores[g]);
      };
      if constexpr (KEPT) {
        FW_UNROLL
        for (int s = 0; s < STEPS; s++) step(s, kept[s]);
      } else {
        FW_NO_UNROLL  // each step's loads would want registers of their own
        for (int s = 0; s < STEPS; s++) {
          Words b[Unit::TOKEN_LOADS];
          FW_UNROLL
          for (int i = 0; i < Unit::TOKEN_LOADS; i++)
            b[i] = load_words(query + s * MATRIX_COLUMNS + Unit::token_offset(i));
          step(s, b);
        }
      }
    }
    FW_UNROLL
    for (int i = 0; i < SLOTS; i++) seen[i] = largest[i];
    FW_UNROLL
    for (int g = 0; g < 2; g++)
      FW_UNROLL
      for (int i = 0; i < SUMS; i++) {
        const bool there = start + g * MATRIX_ROWS + Unit::sum_row(i) < length[i % SLOTS];
        scores[g][i] = there ? scores[g][i] * p.scale : UNSEEN;
        seen[i % SLOTS] = fmax(seen[i % SLOTS], scores[g][i]);
      }
    float shrink[SLOTS];
    FW_UNROLL
    for (int i = 0; i < SLOTS; i++) {
      seen[i] = over_token<W, Unit::TOKEN_LANES, true>(seen[i]);
      shrink[i] = fast_exp(largest[i] - seen[i]);
      largest[i] = seen[i];
      weight[i] *= shrink[i];
    }
    FW_UNROLL
    for (int g = 0; g < 2; g++)
      FW_UNROLL
      for (int i = 0; i < SUMS; i++) {
        scores[g][i] = fast_exp(scores[g][i] - (largest[i % SLOTS] - RAISED<T>));
        weight[i % SLOTS] += scores[g][i];
      }
    Words weights[Unit::TOKEN_LOADS];
    Unit::turn(scores, weights);
    FW_UNROLL
    for (int d = 0; d < DIM / MATRIX_ROWS; d++) {
      Words a[Unit::ROW_LOADS];
      FW_UNROLL
      for (int i = 0; i < Unit::ROW_LOADS; i++)
        a[i] = turned[(d * MATRIX_ROWS + Unit::row(i)) * 4 + Unit::row_offset(i) / 8];
      FW_UNROLL
      for (int i = 0; i < SUMS; i++) sums[d][i] *= shrink[i % SLOTS];
      Unit::multiply(a, weights, sums[d]);
    }
  }

  FW_UNROLL
  for (int i = 0; i < SLOTS; i++) weight[i] = over_token<W, Unit::TOKEN_LANES, false>(weight[i]);
  FW_UNROLL
  for (int i = 0; i < SUMS; i++) {
    if (length[i % SLOTS] <= 0) continue;
    const size_t at = place_of(wave_first + Unit::sum_token(i)) * DIM;
    FW_UNROLL
    for (int d = 0; d < DIM / MATRIX_ROWS; d++)
      out<T>(p.y)[at + d * MATRIX_ROWS + Unit::sum_row(i)] =
          narrow<T>(sums[d][i] / weight[i % SLOTS]);
  }
}

}  // namespace fw

#define ENTRY(suffix, T, dim)                                                \
  FW_KERNEL(attention_matrix_##suffix##_##dim, 256, FwAttentionParams) {     \
    fw::attention_matrix<FW_WAVE, dim, T>(p);                                \
  }
#define ENTRIES(suffix, T) \
  ENTRY(suffix, T, 64)     \
  ENTRY(suffix, T, 128)    \
  ENTRY(suffix, T, 256)
ENTRIES(f16, fw::f16)
ENTRIES(bf16, fw::bf16)
#endif
