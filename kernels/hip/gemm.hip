// linear and gate_up_silu of many rows: tiles of 128 weight rows and TOKENS tokens in LDS.
//
// Columns are taken 64 at a time, in order, for every row alike: a row's sums depend neither on its
// tile nor on how many rows there are. While a step is multiplied, the next one's weights and tokens
// are on their way to registers: of more columns than 32, so that their latency is hidden.
#include "matrix.h"
#include "panels.h"

namespace fw {

#if defined(FW_MATRIX)

constexpr int TILE_ROWS = FW_GEMM_ROWS, STEP = 2 * MATRIX_COLUMNS, CHUNKS = STEP / 8;  // 16-byte pieces of a row

// Where a piece lies: rows begin in banks of their own, for waves that read two or eight rows at once.
DEVICE int staged_at(int row, int chunk) {
  return row * CHUNKS + (chunk ^ ((row & 1) << 2 | (row >> 1 & 3)));
}

// The outputs of a tile's rows: with gates, each 16 rows are 8 gates and their 8 ups.
template <bool GATED>
DEVICE size_t tile_weight_row(const FwLinearParams& p, int tile, int row) {
  if (!GATED) return least(tile * TILE_ROWS + row, p.outputs - 1);
  const int output = least(tile * (TILE_ROWS / 2) + row / 16 * 8 + row % 8, p.outputs - 1);
  return row % 16 < 8 ? output : p.outputs + output;
}

DEVICE void store_output(const FwLinearParams& p, int row, int output, float value) {
  const size_t at = (size_t)row * p.outputs + output;
  if (p.bias) value += in<float>(p.bias)[output];
  if (p.residual) value += load_as(p.residual, p.output_dtype, at);
  store_as(p.y, p.output_dtype, at, value);
}

template <int W, int TOKENS, typename T, bool GATED>
DEVICE void gemm(const FwLinearParams& p) {
  using Unit = Matrix<W, T>;
  constexpr int WAVES = FW_LINEAR_BLOCK / W, ROW_WAVES = 2, TOKEN_WAVES = WAVES / ROW_WAVES;
  constexpr int WAVE_ROWS = TILE_ROWS / ROW_WAVES, WAVE_TOKENS = TOKENS / TOKEN_WAVES;
  constexpr int M = WAVE_ROWS / MATRIX_ROWS, N = WAVE_TOKENS / Unit::TOKENS;
  constexpr int STAGE = (TILE_ROWS + TOKENS) * CHUNKS, OWN = STAGE / FW_LINEAR_BLOCK;
  FW_LDS(Words, staged, STAGE);
  const int row0 = block_y() * TOKENS, live = live_rows(p.live, p.rows);
  if (row0 >= live) return;

  // A thread's pieces: of weight rows, or of tokens beyond them; all at the same columns.
  constexpr int APART = FW_LINEAR_BLOCK / CHUNKS;
  const int own_row = thread() / CHUNKS, chunk = thread() % CHUNKS;
  const T* from[OWN];
  FW_UNROLL
  for (int i = 0; i < OWN; i++) {
    const int row = i * APART + own_row;
    from[i] = row < TILE_ROWS
                  ? in<T>(p.weight.data) + panel_column(FW_PANEL_BITS, chunk * 8) +
                        panel_row(p.weight, FW_PANEL_BITS, tile_weight_row<GATED>(p, block_x(), row))
                  : in<T>(p.x) + (size_t)least(row0 + row - TILE_ROWS, live - 1) * p.x_stride + chunk * 8;
  }
  const int wave = uniform(thread() / W);
  const int first_row = wave / TOKEN_WAVES * WAVE_ROWS, first_token = wave % TOKEN_WAVES * WAVE_TOKENS;

  float sums[M][N][Unit::SUMS] = {};
  Words next[OWN];
  const auto ask = [&](int k) {  // rows end at a multiple of 32: zeros fill a last step
    FW_UNROLL
    for (int i = 0; i < OWN; i++)
      next[i] = k + chunk * 8 < p.x_stride
                    ? load_words(from[i] + (i * APART < TILE_ROWS ? (size_t)k << FW_PANEL_BITS : k))
                    : no_words();
  };
  ask(0);
  for (int k = 0; k < p.x_stride; k += STEP) {
    barrier();  // until the last step has been read
    FW_UNROLL
    for (int i = 0; i < OWN; i++) staged[staged_at(i * APART + own_row, chunk)] = next[i];
    barrier();
    if (k + STEP < p.x_stride) ask(k + STEP);
    const auto multiply = [&](int at) {
      Words b[N][Unit::TOKEN_LOADS];
      FW_UNROLL
      for (int n = 0; n < N; n++)
        FW_UNROLL
        for (int i = 0; i < Unit::TOKEN_LOADS; i++)
          b[n][i] = staged[staged_at(TILE_ROWS + first_token + n * Unit::TOKENS + Unit::token(i),
                                     at + Unit::token_offset(i) / 8)];
      FW_UNROLL
      for (int m = 0; m < M; m++) {
        Words a[Unit::ROW_LOADS];
        FW_UNROLL
        for (int i = 0; i < Unit::ROW_LOADS; i++)
          a[i] = staged[staged_at(first_row + m * MATRIX_ROWS + Unit::row(i),
                                  at + Unit::row_offset(i) / 8)];
        FW_UNROLL
        for (int n = 0; n < N; n++) Unit::multiply(a, b[n], sums[m][n]);
      }
    };
    constexpr int PIECES = MATRIX_COLUMNS / 8;
    if constexpr (Unit::ROW_LOADS * Unit::TOKEN_LOADS > 4) {
      FW_NO_UNROLL  // the loads of both would want registers of their own
      for (int at = 0; at < CHUNKS; at += PIECES) multiply(at);
    } else {
      FW_UNROLL
      for (int at = 0; at < CHUNKS; at += PIECES) multiply(at);
    }
  }

  FW_UNROLL
  for (int m = 0; m < M; m++)
    FW_UNROLL
    for (int n = 0; n < N; n++)
      FW_UNROLL
      for (int i = 0; i < Unit::SUMS; i++) {
        const int of_unit = Unit::sum_row(i);
        const int token = row0 + first_token + n * Unit::TOKENS + Unit::sum_token(i);
        if constexpr (GATED) {
          const float up = Unit::eight_rows_on(sums[m][n], i);
          const int output = block_x() * (TILE_ROWS / 2) + (first_row + m * MATRIX_ROWS) / 2 + of_unit;
          if (of_unit < 8 && token < live && output < p.outputs)
            store_output(p, token, output, silu(sums[m][n][i]) * up);
        } else {
          const int output = block_x() * TILE_ROWS + first_row + m * MATRIX_ROWS + of_unit;
          if (token < live && output < p.outputs) store_output(p, token, output, sums[m][n][i]);
        }
      }
}

#endif

}  // namespace fw

#if defined(FW_MATRIX)
#define GEMM_ENTRY(tokens, suffix, T)                                               \
  FW_KERNEL(linear_gemm_##suffix##_##tokens, FW_LINEAR_BLOCK, FwLinearParams) {     \
    fw::gemm<FW_WAVE, tokens, T, false>(p);                                         \
  }                                                                                 \
  FW_KERNEL(gate_up_silu_gemm_##suffix##_##tokens, FW_LINEAR_BLOCK, FwLinearParams) { \
    fw::gemm<FW_WAVE, tokens, T, true>(p);                                          \
  }
GEMM_ENTRY(64, f16, fw::f16)
GEMM_ENTRY(128, f16, fw::f16)
GEMM_ENTRY(64, bf16, fw::bf16)
GEMM_ENTRY(128, bf16, fw::bf16)
#endif
