// A tile's sums with one step of columns in LDS: while it is multiplied, the next one's weights and
// tokens are on their way to registers, of more columns than a unit takes, so that latency is hidden.
#pragma once

#include "gemm_tile.h"

namespace fw {

constexpr int GEMM_BLOCK = FW_GEMM_BLOCK;

template <int W, int ROWS, int TOKENS, typename T, bool GATED>
struct GemmSteps {
  using Unit = Matrix<W, T>;
  using Tile = GemmTile<W, ROWS, TOKENS, T, GEMM_BLOCK>;
  static constexpr int STEP = 2 * MATRIX_COLUMNS;
  using Pieces = GemmPieces<Tile, STEP, GEMM_BLOCK, T>;
  static constexpr int PIECES = Pieces::ALL, M = Tile::M, N = Tile::N;

  template <typename S>
  DEVICE static void multiply(const Tile& tile, S& staged, int at, float (&sums)[M][N][Unit::SUMS]) {
    Words b[N][Unit::TOKEN_LOADS];
    FW_UNROLL
    for (int n = 0; n < N; n++)
      FW_UNROLL
      for (int i = 0; i < Unit::TOKEN_LOADS; i++)
        b[n][i] = staged[Pieces::place(
            ROWS + tile.first_token + n * Unit::TOKENS + Unit::token(i), at + Unit::token_offset(i) / 8)];
    FW_UNROLL
    for (int m = 0; m < M; m++) {
      Words a[Unit::ROW_LOADS];
      FW_UNROLL
      for (int i = 0; i < Unit::ROW_LOADS; i++)
        a[i] = staged[Pieces::place(tile.first_row + m * MATRIX_ROWS + Unit::row(i), at + Unit::row_offset(i) / 8)];
      FW_UNROLL
      for (int n = 0; n < N; n++) Unit::multiply(a, b[n], sums[m][n]);
    }
  }

  template <typename S>
  DEVICE static void add_columns(const FwLinearParams& p, const Tile& tile, int live, S& staged,
                                 float (&sums)[M][N][Unit::SUMS]) {
    Pieces pieces;
    pieces.template find<GATED>(p, tile, live);
    Words next[Pieces::OWN];
    const auto ask = [&](int k) {
      FW_UNROLL
      for (int i = 0; i < Pieces::OWN; i++)
        next[i] = pieces.there(p, k) ? load_words(pieces.at(i, k)) : no_words();
    };
    ask(0);
    for (int k = 0; k < p.x_stride; k += STEP) {
      barrier();  // until the last step has been read
      FW_UNROLL
      for (int i = 0; i < Pieces::OWN; i++) staged[pieces.place(i)] = next[i];
      barrier();
      if (k + STEP < p.x_stride) ask(k + STEP);
      constexpr int CHUNKS = Pieces::CHUNKS, UNIT = MATRIX_COLUMNS / 8;
      if constexpr (Unit::ROW_LOADS * Unit::TOKEN_LOADS > 4) {
        FW_NO_UNROLL  // the loads of both would want registers of their own
        for (int at = 0; at < CHUNKS; at += UNIT) multiply(tile, staged, at, sums);
      } else {
        FW_UNROLL
        for (int at = 0; at < CHUNKS; at += UNIT) multiply(tile, staged, at, sums);
      }
    }
  }
};

}  // namespace fw
