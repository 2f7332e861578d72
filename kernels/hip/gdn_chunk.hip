// gdn_chunk: the recurrence of gdn_step over a long run of rows, with the state kept at its end.
//
// SHARE lanes have COLUMNS columns of a V head's state in registers. BATCH rows, made by gdn_rows, lie in
// LDS while the next ones are on their way to registers. LDS and registers depend on nothing but the
// head's shape.
#include "gdn_group.h"

namespace fw {

template <typename S>
DEVICE Group read_group(S& facts, int group) {
  Words words[FACTS];
  FW_UNROLL
  for (int n = 0; n < FACTS; n++) words[n] = facts[group * FACTS + n];
  const auto fact = [&](int i) { return element(words[i / 4], i % 4); };
  Group of;
  FW_UNROLL
  for (int i = 0; i < GROUP; i++) of.decay[i] = fact(i);
  FW_UNROLL
  for (int i = 0; i < TRIANGLE; i++) of.gives[i] = fact(GROUP + i), of.brings[i] = fact(GROUP + TRIANGLE + i);
  return of;
}

// A column's rows. `sums` are the rows' keys' and then their queries' with the state before the group. y:
// of each row; added: what each one's key brings the state at the group's end.
DEVICE void follow(const Group& of, const float (&value)[GROUP], const float (&sums)[2 * GROUP],
                   float (&y)[GROUP], float (&added)[GROUP]) {
  float u[GROUP];
  FW_UNROLL
  for (int i = 0; i < GROUP; i++) u[i] = fma(-of.decay[i], sums[i], value[i]);
  FW_UNROLL
  for (int i = 0; i < GROUP; i++) {
    y[i] = of.decay[i] * sums[GROUP + i];
    added[i] = 0;
    FW_UNROLL
    for (int j = 0; j <= i; j++) {
      y[i] = fma(of.gives[of_triangle(i, j)], u[j], y[i]);
      added[i] = fma(of.brings[of_triangle(i, j)], u[j], added[i]);
    }
  }
}

constexpr int CHUNK_BLOCK = 4 * FW_GDN_COLUMNS, SHARE = 16, COLUMNS = 4, BATCH = 16;
static_assert(CHUNK_BLOCK / SHARE * COLUMNS == FW_GDN_COLUMNS, "a block has its columns' lanes");
constexpr int LEFT = SHARE / COLUMNS;  // lanes that go on with a column together
static_assert(LEFT == GROUP, "each of them stores a row");
constexpr int OWN_PIECES = PIECES / SHARE;

template <int W, typename T>
DEVICE void gdn_chunk(const FwGdnChunkParams& params) {
  constexpr int OWN_ROWS = BATCH * PIECES / CHUNK_BLOCK, OWN_VALUES = BATCH * FW_GDN_COLUMNS / CHUNK_BLOCK;
  FW_LDS(Words, keys, BATCH * PIECES);
  FW_LDS(Words, queries, BATCH * PIECES);
  FW_LDS(float, values, BATCH * FW_GDN_COLUMNS);
  FW_LDS(Words, facts, BATCH / GROUP * FACTS);
  const fw_gdn_chunk_params& p = params.op;
  const int head = block_y(), sequence = block_z();
  const Rows rows = rows_of(p, sequence);
  if (rows.first >= rows.end) return;
  const int share = thread() % SHARE, own = share / LEFT;  // the column whose rows it follows
  const int own_columns = thread() / SHARE * COLUMNS, column = block_x() * FW_GDN_COLUMNS + own_columns;
  const int k_head = p.head_map ? head % p.k_heads : head / (p.v_heads / p.k_heads);
  const size_t matrix = (size_t)p.key_dim * p.value_dim, at = head * matrix + column;
  const int groups = first_group(rows.first, sequence);

  // A batch's rows as a thread has them on their way. Groups beyond the last hold what they may.
  struct Next {
    Words keys[OWN_ROWS], queries[OWN_ROWS], fact;
    float values[OWN_VALUES];
  };
  const auto ask = [&](int first, Next& next) {
    const int group = groups + (first - rows.first) / GROUP;
    const size_t from = place_of_group(params, k_head, group) * GROUP * PIECES;
    FW_UNROLL
    for (int i = 0; i < OWN_ROWS; i++) {
      next.keys[i] = load_words(in<Words>(params.keys) + from + i * CHUNK_BLOCK + thread());
      next.queries[i] = load_words(in<Words>(params.queries) + from + i * CHUNK_BLOCK + thread());
    }
    FW_UNROLL
    for (int i = 0; i < OWN_VALUES; i++) {
      const int place = i * CHUNK_BLOCK + thread(), row = least(first + place / FW_GDN_COLUMNS, rows.end - 1);
      const int of = least(block_x() * FW_GDN_COLUMNS + place % FW_GDN_COLUMNS, p.value_dim - 1);
      next.values[i] = widen(in<T>(p.qkv)[(size_t)row * p.channels + 2 * p.k_heads * p.key_dim +
                                          head * p.value_dim + of]);
    }
    const int n = thread() % FACTS, of = group + least(thread() / FACTS, BATCH / GROUP - 1);
    next.fact = load_words(in<Words>(params.facts) + place_of_group(params, head, of) * FACTS + n);
  };

  const float* from = in<float>(p.state) + slot_in(p, sequence) * p.v_heads * matrix + at;
  float state[COLUMNS][OWN_PIECES][4];
  FW_UNROLL
  for (int i = 0; i < OWN_PIECES; i++)
    FW_UNROLL
    for (int j = 0; j < 4; j++)
      FW_UNROLL
      for (int c = 0; c < COLUMNS; c++) {
        const int key = (i * SHARE + share) * 4 + j;
        state[c][i][j] = column + c < p.value_dim && key < p.key_dim ? from[key * p.value_dim + c] : 0.0f;
      }

  Next next;
  ask(rows.first, next);
  for (int first = rows.first; first < rows.end; first += BATCH) {
    const int count = least(BATCH, rows.end - first);
    barrier();  // until the last batch has been read
    FW_UNROLL
    for (int i = 0; i < OWN_ROWS; i++) {
      keys[i * CHUNK_BLOCK + thread()] = next.keys[i];
      queries[i * CHUNK_BLOCK + thread()] = next.queries[i];
    }
    FW_UNROLL
    for (int i = 0; i < OWN_VALUES; i++) values[i * CHUNK_BLOCK + thread()] = next.values[i];
    if (thread() < BATCH / GROUP * FACTS) facts[thread()] = next.fact;
    barrier();
    if (first + BATCH < rows.end) ask(first + BATCH, next);

    for (int group = 0; group * GROUP < count; group++) {
      Words key[OWN_PIECES][GROUP];
      float sums[COLUMNS][2 * GROUP] = {};  // with the rows' keys, then with their queries
      FW_UNROLL
      for (int i = 0; i < OWN_PIECES; i++)
        FW_UNROLL
        for (int r = 0; r < GROUP; r++) {
          const int piece = (group * GROUP + r) * PIECES + i * SHARE + share;
          const Words query = queries[piece];
          key[i][r] = keys[piece];
          FW_UNROLL
          for (int j = 0; j < 4; j++)
            FW_UNROLL
            for (int c = 0; c < COLUMNS; c++) {
              sums[c][r] = fma(state[c][i][j], element(key[i][r], j), sums[c][r]);
              sums[c][GROUP + r] = fma(state[c][i][j], element(query, j), sums[c][GROUP + r]);
            }
        }
      // Lanes give one another the halves of their columns that they don't go on with, until each has one.
      FW_UNROLL
      for (int n = COLUMNS / 2, apart = SHARE / 2; n; n /= 2, apart /= 2) {
        const bool upper = share & apart;
        FW_UNROLL
        for (int c = 0; c < n; c++)
          FW_UNROLL
          for (int r = 0; r < 2 * GROUP; r++) {
            const float given = shuffle<W>(upper ? sums[c][r] : sums[c + n][r], lane<W>() ^ apart);
            sums[c][r] = (upper ? sums[c + n][r] : sums[c][r]) + given;
          }
      }
      group_sums<W, LEFT>(sums[0]);
      float value[GROUP], y[GROUP], added[GROUP];
      FW_UNROLL
      for (int r = 0; r < GROUP; r++)
        value[r] = values[(group * GROUP + r) * FW_GDN_COLUMNS + own_columns + own];
      const Group of = read_group(facts, group);
      follow(of, value, sums[0], y, added);
      // Each of a column's lanes stores a row.
      const int r_own = share % LEFT;
      float y_own = y[0];
      FW_UNROLL
      for (int r = 1; r < GROUP; r++) y_own = r == r_own ? y[r] : y_own;
      if (group * GROUP + r_own < count && column + own < p.value_dim)
        out<T>(p.y)[((size_t)(first + group * GROUP + r_own) * p.v_heads + head) * p.value_dim + column + own] =
            narrow<T>(y_own);
      FW_UNROLL
      for (int i = 0; i < OWN_PIECES; i++)
        FW_UNROLL
        for (int j = 0; j < 4; j++)
          FW_UNROLL
          for (int c = 0; c < COLUMNS; c++) state[c][i][j] *= of.decay[GROUP - 1];
      FW_UNROLL
      for (int r = 0; r < GROUP; r++) {
        float taken[COLUMNS];
        FW_UNROLL
        for (int c = 0; c < COLUMNS; c++)
          taken[c] = shuffle<W>(added[r], lane<W>() - share + c * LEFT + share % LEFT);
        FW_UNROLL
        for (int i = 0; i < OWN_PIECES; i++)
          FW_UNROLL
          for (int j = 0; j < 4; j++)
            FW_UNROLL
            for (int c = 0; c < COLUMNS; c++)
              state[c][i][j] = fma(element(key[i][r], j), taken[c], state[c][i][j]);
      }
    }
  }

  const size_t slot = slot_out<false>(p, rows, rows.end - 1);
  if (!slot) return;
  float* kept = out<float>(p.state) + slot * p.v_heads * matrix + at;
  const int key_dim = again(p.key_dim);  // else a mask for each key would be kept since the start
  FW_UNROLL
  for (int i = 0; i < OWN_PIECES; i++)
    FW_UNROLL
    for (int j = 0; j < 4; j++)
      FW_UNROLL
      for (int c = 0; c < COLUMNS; c++) {
        const int key = (i * SHARE + share) * 4 + j;
        if (column + c < p.value_dim && key < key_dim) kept[key * p.value_dim + c] = state[c][i][j];
      }
}

}  // namespace fw

#define ENTRY(suffix, T)                                             \
  FW_KERNEL(gdn_chunk_##suffix, fw::CHUNK_BLOCK, FwGdnChunkParams) { \
    fw::gdn_chunk<FW_WAVE, T>(p);                                    \
  }
ENTRY(f32, float)
ENTRY(f16, fw::f16)
ENTRY(bf16, fw::bf16)
