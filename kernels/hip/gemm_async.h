// A tile's sums where LDS is filled without registers (FW_ASYNC): STAGES - 1 steps of columns are on
// their way while one is multiplied, and half a step's operands are read while the other half is.
#pragma once

#include "gemm_tile.h"

namespace fw {

constexpr int GEMM_BLOCK = FW_GEMM_BLOCK_ASYNC;

template <int W, int TOKENS, typename T, bool GATED>
struct GemmSteps {
  using Unit = Matrix<W, T>;
  using Tile = GemmTile<W, TOKENS, T, GEMM_BLOCK>;
  static constexpr int STEP = MATRIX_COLUMNS, STAGES = 4, HALVES = 2;
  using Pieces = GemmPieces<Tile, STEP, GEMM_BLOCK, T>;
  static constexpr int PIECES = STAGES * Pieces::ALL, M = Tile::M, N = Tile::N;

  struct Operands {
    HalfRows rows[M];
    HalfTokens tokens[N];
  };
  template <typename S>
  DEVICE static void read(const Tile& tile, S& staged, int stage, int half, Operands& operands) {
    const auto at = [&](int row, int chunk) {
      return &staged[stage * Pieces::ALL + Pieces::place(row, half * 2 + chunk)];
    };
    FW_UNROLL
    for (int m = 0; m < M; m++)
      read_half_rows(operands.rows[m], at(tile.first_row + m * MATRIX_ROWS + half_row(), half_row_chunk()));
    FW_UNROLL
    for (int n = 0; n < N; n += 2)
      read_half_tokens(operands.tokens[n], operands.tokens[n + 1],
                       at(FW_GEMM_ROWS + tile.first_token + n * Unit::TOKENS + half_token(), half_token_chunk()));
  }

  template <typename S>
  DEVICE static void add_columns(const FwLinearParams& p, const Tile& tile, int live, S& staged,
                                 float (&sums)[M][N][Unit::SUMS]) {
    Pieces pieces;
    pieces.template find<GATED>(p, tile, live);
    const auto ask = [&](int k, int stage) {
      if (k < p.x_stride) {
        FW_UNROLL
        for (int i = 0; i < Pieces::OWN; i++)
          copy_async(&staged[stage * Pieces::ALL + pieces.place(i)], pieces.at(i, k));
      }
      end_async_group();  // one a step, be it empty: they are counted
    };
    FW_UNROLL
    for (int s = 0; s < STAGES - 1; s++) ask(s * STEP, s);
    wait_async_groups<STAGES - 2>();
    barrier();
    Operands operands[HALVES];
    read(tile, staged, 0, 0, operands[0]);
    int stage = 0, free = STAGES - 1;
    for (int k = 0; k < p.x_stride; k += STEP)
      FW_UNROLL
      for (int half = 0; half < HALVES; half++) {
        if (half == 0) {
          read(tile, staged, stage, 1, operands[1]);
          ask(k + (STAGES - 1) * STEP, free);
          free = (free + 1) % STAGES;
        } else {
          wait_async_groups<STAGES - 2>();
          barrier();  // the next step is there for all, and the last one was read by all
          stage = (stage + 1) % STAGES;
          read(tile, staged, stage, 0, operands[0]);
        }
        FW_UNROLL
        for (int m = 0; m < M; m++)
          FW_UNROLL
          for (int n = 0; n < N; n++)
            multiply_half<T>(operands[half].rows[m], operands[half].tokens[n], sums[m][n]);
      }
    wait_async_groups<0>();
  }
};

}  // namespace fw
