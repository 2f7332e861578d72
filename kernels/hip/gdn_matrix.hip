// gdn_matrix: gdn_chunk's recurrence on matrix units, with activations in bfloat16.
//
// A wave has a unit's tokens, columns of a V head's state, as sums of the unit: tiles of 16 keys. For
// each group of rows it splits them into bfloat16 parts and turns them, for their products with the
// rows' keys and queries; what those leave of the values is turned for the rows' own matrices; and what
// they bring, for the keys. The group's operands lie in LDS while the next ones are on their way.
#include "gdn_matrix.h"

#if defined(FW_GDN_MATRIX)
namespace fw {

constexpr int MATRIX_BLOCK = FW_GDN_MATRIX_BLOCK;

// A pair of a wave's sums, turned, in parts. The pair is used up.
template <typename Unit, int N>
DEVICE void turn_parts(float (&sums)[2][Unit::SUMS], Words (&parts)[N][Unit::TOKEN_LOADS]) {
  FW_UNROLL
  for (int part = 0; part < N; part++) {
    Unit::template turn<true>(sums, parts[part]);
    if (part + 1 == N) break;
    FW_UNROLL
    for (int g = 0; g < 2; g++)
      FW_UNROLL
      for (int i = 0; i < Unit::SUMS; i++) sums[g][i] = remainder(sums[g][i]);
  }
}

// To each of N sums its tile's products with as many parts as it uses.
template <typename Tile, int N, typename S, typename TileOf, typename Uses>
DEVICE void add_products(S& staged, const Words (&parts)[PARTS][Tile::Unit::TOKEN_LOADS],
                         float (&sums)[N][Tile::Unit::SUMS], TileOf tile_of, Uses uses) {
  Tile tiles[N];
  FW_UNROLL
  for (int n = 0; n < N; n++)
    if (uses(n) > 0) tiles[n].read(staged, tile_of(n));
  FW_UNROLL
  for (int part = 0; part < PARTS; part++)
    FW_UNROLL
    for (int n = 0; n < N; n++)
      if (part < uses(n)) tiles[n].multiply(parts[part], sums[n]);
}

template <int W>
DEVICE void gdn_matrix(const FwGdnMatrixParams& params) {
  using Unit = Matrix<W, bf16>;
  using Tile = MatrixTile<W, bf16>;
  constexpr int SUMS = Unit::SUMS, COLUMNS = MATRIX_BLOCK / W * Unit::TOKENS;
  static_assert(COLUMNS >= FW_GDN_MATRIX_COLUMNS, "the launch has a block for every column");
  constexpr int ALL = SHARED + FACTORS_AT, EACH = ALL / MATRIX_BLOCK;
  static_assert(ALL % MATRIX_BLOCK == 0 && SHARED % MATRIX_BLOCK == 0, "every thread stages as many");
  FW_LDS(Words, staged, ALL);
  FW_LDS(float, factors, FACTORS);
  const fw_gdn_chunk_params& p = params.op;
  const int head = block_y(), sequence = block_z();
  const int first_column = (block_x() * (MATRIX_BLOCK / W) + uniform(thread() / W)) * Unit::TOKENS;
  const Rows rows = rows_of(p, sequence);
  if (rows.first >= rows.end || block_x() * COLUMNS >= p.value_dim) return;
  const int k_head = p.head_map ? head % p.k_heads : head / (p.v_heads / p.k_heads);
  const int groups = first_group(rows.first, sequence);
  const auto column_of = [&](int i) { return first_column + Unit::sum_token(i); };
  const auto row_of = [&](int m, int i) { return Tile::placed(m * MATRIX_ROWS + Unit::sum_row(i)); };

  struct Next {
    Words pieces[EACH];
    float factor;
    bf16 values[2][SUMS];
  } next;
  const auto ask = [&](int first) {
    const int group = groups + (first - rows.first) / SPAN;
    const Words* shared = in<Words>(params.shared) + ((size_t)k_head * params.groups + group) * SHARED;
    const Words* own = in<Words>(params.own) + ((size_t)head * params.groups + group) * OWN;
    FW_UNROLL
    for (int i = 0; i < EACH; i++) {
      const int at = i * MATRIX_BLOCK + thread();
      next.pieces[i] = load_words(i * MATRIX_BLOCK < SHARED ? shared + at : own + (at - SHARED));
    }
    next.factor = in<float>(params.own)[(((size_t)head * params.groups + group) * OWN + FACTORS_AT) * 4 +
                                        least(thread(), FACTORS - 1)];
    const bf16* values = in<bf16>(p.qkv) + (size_t)first * p.channels + 2 * p.k_heads * p.key_dim +
                         head * p.value_dim;
    const int stride = again(p.channels);  // else a place for each would be kept
    FW_UNROLL
    for (int m = 0; m < 2; m++)
      FW_UNROLL
      for (int i = 0; i < SUMS; i++) {
        const uint32_t row = least(row_of(m, i), rows.end - 1 - first);
        next.values[m][i] = values[row * stride + least(column_of(i), p.value_dim - 1)];
      }
  };
  const size_t matrix = (size_t)p.key_dim * p.value_dim;
  const auto key_of = [&](int tile, int i) { return tile / 2 * MATRIX_COLUMNS + row_of(tile % 2, i); };
  const float* from = in<float>(p.state) + (slot_in(p, sequence) * p.v_heads + head) * matrix;
  // Keys and columns beyond the last are another's: such keys of rows are 0, and they aren't kept.
  float state[KEY_TILES][SUMS];
  FW_UNROLL
  for (int tile = 0; tile < KEY_TILES; tile++)
    FW_UNROLL
    for (int i = 0; i < SUMS; i++) {
      const uint32_t key = least(key_of(tile, i), p.key_dim - 1);
      state[tile][i] = from[key * p.value_dim + least(column_of(i), p.value_dim - 1)];
    }

  ask(rows.first);
  for (int first = rows.first; first < rows.end; first += SPAN) {
    barrier();  // until the last group has been read
    FW_UNROLL
    for (int i = 0; i < EACH; i++) staged[i * MATRIX_BLOCK + thread()] = next.pieces[i];
    if (thread() < FACTORS) factors[thread()] = next.factor;
    float left[2][SUMS];
    FW_UNROLL
    for (int m = 0; m < 2; m++)
      FW_UNROLL
      for (int i = 0; i < SUMS; i++) left[m][i] = widen(next.values[m][i]);
    barrier();
    if (first + SPAN < rows.end) ask(first + SPAN);

    // Of each row of the group: sums with the keys, which become what is brought, and those with the
    // queries, which become y.
    Words parts[PARTS][Unit::TOKEN_LOADS];
    float sums[4][SUMS] = {};
    FW_UNROLL
    for (int s = 0; s < PAIRS; s++) {
      float pair[2][SUMS];
      FW_UNROLL
      for (int g = 0; g < 2; g++)
        FW_UNROLL
        for (int i = 0; i < SUMS; i++) pair[g][i] = state[2 * s + g][i];
      turn_parts<Unit>(pair, parts);
      add_products<Tile>(
          staged, parts, sums,
          [&](int n) { return (n < 2 ? KEYS_AT : QUERIES_AT) / TILE + n % 2 * PAIRS + s; },
          [](int n) { return n < 2 ? PARTS : GIVES_PARTS; });
    }
    FW_UNROLL
    for (int m = 0; m < 2; m++)
      FW_UNROLL
      for (int i = 0; i < SUMS; i++) {
        const int row = m * MATRIX_ROWS + Unit::sum_row(i);
        left[m][i] = fma(-(float)factors[row], sums[m][i], left[m][i]);
        sums[m][i] = 0;
        sums[2 + m][i] *= factors[SPAN + row];
      }
    turn_parts<Unit>(left, parts);
    FW_UNROLL
    for (int part = 0; part < PARTS; part++)  // of the products of parts, those that count
      add_products<Tile>(
          staged, parts, sums,
          [&](int n) { return (SHARED + (n < 2 ? BRINGS_AT : 0)) / TILE + part * 2 + n % 2; },
          [&](int n) { return (n < 2 ? PARTS : GIVES_PARTS) - part; });
    bf16* y = out<bf16>(p.y) + ((size_t)first * p.v_heads + head) * p.value_dim;
    const int stride = again(p.v_heads * p.value_dim);  // as above
    FW_UNROLL
    for (int m = 0; m < 2; m++)
      FW_UNROLL
      for (int i = 0; i < SUMS; i++) {
        left[m][i] = sums[m][i];
        if (row_of(m, i) < rows.end - first && column_of(i) < p.value_dim)
          y[(uint32_t)row_of(m, i) * stride + column_of(i)] = narrow<bf16>(sums[2 + m][i]);
      }
    turn_parts<Unit>(left, parts);
    const float decay = factors[2 * SPAN];
    FW_UNROLL
    for (int tile = 0; tile < KEY_TILES; tile += 4) {
      float gained[4][SUMS] = {};
      add_products<Tile>(
          staged, parts, gained, [&](int n) { return TURNED_AT / TILE + tile + n; },
          [](int) { return PARTS; });
      FW_UNROLL
      for (int n = 0; n < 4; n++)
        FW_UNROLL
        for (int i = 0; i < SUMS; i++) state[tile + n][i] = fma(state[tile + n][i], decay, gained[n][i]);
    }
  }

  const size_t slot = slot_out<false>(p, rows, rows.end - 1);
  if (!slot) return;
  float* kept = out<float>(p.state) + (slot * p.v_heads + head) * matrix;
  // Else a mask and a place for each key would be kept since the start.
  const int key_dim = again(p.key_dim), value_dim = again(p.value_dim);
  FW_UNROLL
  for (int tile = 0; tile < KEY_TILES; tile++)
    FW_UNROLL
    for (int i = 0; i < SUMS; i++)
      if (column_of(i) < value_dim && key_of(tile, i) < key_dim)
        kept[(uint32_t)key_of(tile, i) * value_dim + column_of(i)] = state[tile][i];
}

}  // namespace fw

FW_KERNEL(gdn_matrix_bf16, fw::MATRIX_BLOCK, FwGdnMatrixParams) { fw::gdn_matrix<FW_WAVE>(p); }
#endif
