// A tile's sums where LDS is filled without registers (FW_ASYNC): STAGES - 1 steps of columns are on
// their way while one is multiplied, and operands are read AHEAD of it: all tokens of the step's other
// half, and as many units of rows as find room in registers.
#pragma once

#include "gemm_tile.h"

namespace fw {

constexpr int GEMM_BLOCK = FW_GEMM_BLOCK_ASYNC;

template <int W, int ROWS, int TOKENS, typename T, bool GATED>
struct GemmSteps {
  using Unit = Matrix<W, T>;
  using Tile = GemmTile<W, ROWS, TOKENS, T, GEMM_BLOCK>;
  static constexpr int STEP = MATRIX_COLUMNS, STAGES = 4, HALVES = 2;
  using Pieces = GemmPieces<Tile, STEP, GEMM_BLOCK, T>;
  static constexpr int PIECES = STAGES * Pieces::ALL, M = Tile::M, N = Tile::N;

  static constexpr int TURNS = HALVES * M, AHEAD = M > 4 ? 1 : 2, KEPT = M > 4 ? 2 : 4;
  static_assert(TURNS % KEPT == 0, "a turn finds its rows where they were in the step before");

  template <typename S>
  DEVICE static void read_rows(const Tile& tile, S& staged, int stage, int turn, HalfRows& rows) {
    const int row = tile.first_row + turn % M * MATRIX_ROWS + half_row();
    read_half_rows(rows, &staged[stage * Pieces::ALL + Pieces::place(row, turn / M * 2 + half_row_chunk())]);
  }
  template <typename S>
  DEVICE static void read_tokens(const Tile& tile, S& staged, int stage, int half, int n,
                                 HalfTokens (&tokens)[N]) {
    const int token = ROWS + tile.first_token + n * Unit::TOKENS + half_token();
    read_half_tokens(tokens[n], tokens[n + 1],
                     &staged[stage * Pieces::ALL + Pieces::place(token, half * 2 + half_token_chunk())]);
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
    HalfRows rows[KEPT];
    HalfTokens tokens[HALVES][N];
    FW_UNROLL
    for (int turn = 0; turn < AHEAD; turn++) read_rows(tile, staged, 0, turn, rows[turn]);
    FW_UNROLL
    for (int n = 0; n < N; n += 2) read_tokens(tile, staged, 0, 0, n, tokens[0]);
    int stage = 0, free = STAGES - 1;
    for (int k = 0; k < p.x_stride; k += STEP) {
      ask(k + (STAGES - 1) * STEP, free);
      free = free + 1 == STAGES ? 0 : free + 1;
      FW_UNROLL
      for (int turn = 0; turn < TURNS; turn++) {
        const int half = turn / M, m = turn % M;
        if (turn + AHEAD == TURNS) {
          wait_async_groups<STAGES - 2>();
          barrier();  // the next step is there for all, and this one was read by all
          stage = stage + 1 == STAGES ? 0 : stage + 1;
          FW_UNROLL
          for (int n = 0; n < N; n += 2) read_tokens(tile, staged, stage, 0, n, tokens[0]);
        }
        read_rows(tile, staged, stage, (turn + AHEAD) % TURNS, rows[(turn + AHEAD) % KEPT]);
        if (half == 0 && m * 2 < N) read_tokens(tile, staged, stage, 1, m * 2, tokens[1]);
        FW_UNROLL
        for (int n = 0; n < N; n++) multiply_half<T>(rows[turn % KEPT], tokens[half][n], sums[m][n]);
      }
    }
    wait_async_groups<0>();
  }
};

}  // namespace fw
