// A block's tile of a product with many rows, and each wave's part of it.
#pragma once

#include "matrix.h"
#include "panels.h"

namespace fw {

template <int W, int ROWS_, int TOKENS_, typename T, int BLOCK>
struct GemmTile {
  using Unit = Matrix<W, T>;
  static constexpr int ROWS = ROWS_, TOKENS = TOKENS_;
  static constexpr int WAVES = BLOCK / W, ROW_WAVES = 2, TOKEN_WAVES = WAVES / ROW_WAVES;
  static constexpr int WAVE_ROWS = ROWS / ROW_WAVES, WAVE_TOKENS = TOKENS / TOKEN_WAVES;
  static constexpr int M = WAVE_ROWS / MATRIX_ROWS, N = WAVE_TOKENS / Unit::TOKENS;

  int weights, first_of_tokens;  // the tile's, and of a wave within it:
  int first_row, first_token;

  // Floats from a token's outputs in LDS to the next one's: in other banks, and 16 bytes apart.
  DEVICE static constexpr int pitch(int outputs) { return outputs + 4; }
  // Units of a wave's rows whose outputs, one of `gives` rows each, fit into so many 16-byte pieces.
  DEVICE static constexpr int largest_at_once(int pieces, int gives) {
    int units = M;
    while (units > 1 && (M % units || units * MATRIX_ROWS / gives > 32 ||
                         WAVES * WAVE_TOKENS * pitch(units * MATRIX_ROWS / gives) > pieces * 4))
      units--;
    return units;
  }

  // Where row 0 … ROWS - 1 of the tile's weights begins, at column `column` of the first panel's:
  // with gates, each 16 rows are 8 gates and their 8 ups.
  template <bool GATED>
  DEVICE const T* weight_row(const FwLinearParams& p, int row, int column) const {
    int n = least(weights * ROWS + row, p.outputs - 1);
    if (GATED) {
      const int output = least(weights * (ROWS / 2) + row / 16 * 8 + row % 8, p.outputs - 1);
      n = row % 16 < 8 ? output : p.outputs + output;
    }
    return in<T>(p.weight.data) + panel_row(p.weight, FW_PANEL_BITS, n) +
           panel_column(FW_PANEL_BITS, column);
  }
  // Where token 0 … TOKENS - 1 of the tile begins: those beyond the last repeat it, unused.
  DEVICE const T* token_row(const FwLinearParams& p, int live, int token, int column) const {
    return in<T>(p.x) + (size_t)least(first_of_tokens + token, live - 1) * p.x_stride + column;
  }
};

// A block's pieces of 16 bytes, COLUMNS of each row at a time: every thread has the same columns of
// some rows, of weights and then of tokens.
template <typename Tile, int COLUMNS, int BLOCK, typename T>
struct GemmPieces {
  static constexpr int CHUNKS = COLUMNS / 8, APART = BLOCK / CHUNKS;  // rows from one to the next
  static constexpr int ALL = (Tile::ROWS + Tile::TOKENS) * CHUNKS, OWN = ALL / BLOCK;
  DEVICE static constexpr bool is_weight(int i) { return i * APART < Tile::ROWS; }

  // Rows begin in banks of their own, for waves that read two, four or eight rows at once.
  DEVICE static int place(int row, int chunk) {
    return row * CHUNKS + (CHUNKS == 4 ? chunk ^ (row >> 1 & 3)
                                       : chunk ^ ((row & 1) << 2 | (row >> 1 & 3)));
  }

  const T* from[OWN];
  int row, chunk;
  template <bool GATED>
  DEVICE void find(const FwLinearParams& p, const Tile& tile, int live) {
    row = thread() / CHUNKS, chunk = thread() % CHUNKS;
    FW_UNROLL
    for (int i = 0; i < OWN; i++)
      from[i] = is_weight(i) ? tile.template weight_row<GATED>(p, i * APART + row, chunk * 8)
                             : tile.token_row(p, live, i * APART + row - Tile::ROWS, chunk * 8);
  }
  DEVICE int place(int i) const { return place(i * APART + row, chunk); }
  // Rows end at a multiple of 32 columns: a last step may find less than it takes.
  DEVICE bool there(const FwLinearParams& p, int k) const { return k + chunk * 8 < p.x_stride; }
  DEVICE const T* at(int i, int k) const {
    return from[i] + (is_weight(i) ? (size_t)k << FW_PANEL_BITS : k);
  }
};

}  // namespace fw
