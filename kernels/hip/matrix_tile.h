// Tiles of 16 rows × 32 columns that lie in LDS as a unit reads them best, made for it by another kernel.
//
// A tile's tokens are turned sums (Matrix::turn), so its columns are rows of a pair of such tiles: the
// t-th of 32 stands as the pair's row slot(t), and row r is the placed(r)-th.
#pragma once

#include "matrix.h"

#if defined(FW_MATRIX)
namespace fw {

constexpr int TILE = 64;  // pieces of 16 bytes
// Rows begin in banks of their own.
DEVICE int piece_of(int tile, int row, int chunk) { return tile * TILE + row * 4 + (chunk ^ (row >> 1 & 3)); }

template <int W, typename T>
struct MatrixTile {
  using Unit = Matrix<W, T>;

#if defined(FW_MMA)
  HalfRows halves[2];

  template <typename S>
  DEVICE void read(S& staged, int tile) {
    FW_UNROLL
    for (int h = 0; h < 2; h++)
      read_half_rows(halves[h], &staged[piece_of(tile, half_row(), h * 2 + half_row_chunk())]);
  }
  DEVICE void multiply(const Words (&tokens)[1], float (&sums)[Unit::SUMS]) const {
    multiply_half<T>(halves[0], HalfTokens{{tokens[0].x, tokens[0].y}}, sums);
    multiply_half<T>(halves[1], HalfTokens{{tokens[0].z, tokens[0].w}}, sums);
  }
#else
  Words loads[Unit::ROW_LOADS];

  template <typename S>
  DEVICE void read(S& staged, int tile) {
    FW_UNROLL
    for (int i = 0; i < Unit::ROW_LOADS; i++) {
#if defined(FW_EMULATION) && FW_WAVE == 32  // what FW_MMA's lanes get
      uint32_t words[4];
      for (int c = 0; c < 4; c++)
        words[c] = word(staged[piece_of(tile, Unit::row(i), c)], Unit::row_offset(i) / 8);
      loads[i] = make_words(words[0], words[1], words[2], words[3]);
#else
      loads[i] = staged[piece_of(tile, Unit::row(i), Unit::row_offset(i) / 8)];
#endif
    }
  }
  DEVICE void multiply(const Words (&tokens)[Unit::TOKEN_LOADS], float (&sums)[Unit::SUMS]) const {
    Unit::multiply(loads, tokens, sums);
  }
#endif

#if defined(FW_MFMA) || (defined(FW_EMULATION) && FW_WAVE == 64)
  DEVICE static int slot(int t) { return Unit::position(t / 8, t % 8); }
  DEVICE static int placed(int r) { return r % 16 / 4 * 8 + r / 16 * 4 + r % 4; }
#else
  DEVICE static int slot(int t) { return t; }
  DEVICE static int placed(int r) { return r; }
#endif
};

}  // namespace fw
#endif
