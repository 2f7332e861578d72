// linear and gate_up_silu of many rows: tiles of ROWS weight rows and TOKENS tokens.
//
// Columns are taken in order, for every row alike: a row's sums depend neither on its tile nor on how
// many rows there are. Sums leave through LDS, so that a lane stores 16 bytes at a time.
#include "matrix.h"
#include "panels.h"

#if defined(FW_MATRIX)
#include "gemm_tile.h"
#if defined(FW_ASYNC)
#include "gemm_async.h"
#else
#include "gemm_registers.h"
#endif

namespace fw {

// An output's sum with what is added to it.
DEVICE float with_added(const FwLinearParams& p, int row, int output, float sum) {
  if (p.bias) sum += in<float>(p.bias)[output];
  if (p.residual) sum += load_as(p.residual, p.output_dtype, (size_t)row * p.outputs + output);
  return sum;
}

// Eight outputs of a row from `output` on, as far as there are so many.
template <typename T>
DEVICE void store_eight(const FwLinearParams& p, int row, int output, float (&sums)[8]) {
  const size_t at = (size_t)row * p.outputs + output;
  if (p.outputs % 8 || p.output_dtype != (IsHalf<T>::value ? FW_F16 : FW_BF16)) {
    FW_UNROLL
    for (int i = 0; i < 8; i++)
      if (output + i < p.outputs)
        store_as(p.y, p.output_dtype, at + i, with_added(p, row, output + i, sums[i]));
    return;
  }
  const Eight<T> residual = p.residual ? load8(in<T>(p.residual) + at) : zero8<T>();
  FW_UNROLL
  for (int i = 0; i < 8; i++) {
    if (p.bias) sums[i] += in<float>(p.bias)[output + i];
    if (p.residual) sums[i] += residual.get(i);
  }
  store8(out<T>(p.y) + at, sums);
}

template <int W, int ROWS, int TOKENS, typename T, bool GATED>
DEVICE void gemm(const FwLinearParams& p) {
  using Unit = Matrix<W, T>;
  using Tile = GemmTile<W, ROWS, TOKENS, T, GEMM_BLOCK>;
  using Steps = GemmSteps<W, ROWS, TOKENS, T, GATED>;
  constexpr int M = Tile::M, N = Tile::N, GIVES = GATED ? 2 : 1;  // weight rows an output
  // As many of a wave's outputs at a time as find room in LDS; a token's are apart from the next one's.
  constexpr int AT_ONCE = Tile::largest_at_once(Steps::PIECES, GIVES);
  constexpr int OUTPUTS = AT_ONCE * MATRIX_ROWS / GIVES;
  constexpr int PITCH = Tile::pitch(OUTPUTS), OF_WAVE = Tile::WAVE_TOKENS * PITCH;
  FW_LARGE_LDS(Words, staged, Steps::PIECES);
  FW_LDS_AS(float, turned, Tile::WAVES * OF_WAVE, staged);
  const int row0 = block_x() * TOKENS, live = live_rows(p.live, p.rows);
  if (row0 >= live) return;

  const int wave = uniform(thread() / W);
  const Tile tile{block_y(), row0, wave / Tile::TOKEN_WAVES * Tile::WAVE_ROWS,
                  wave % Tile::TOKEN_WAVES * Tile::WAVE_TOKENS};
  float sums[M][N][Unit::SUMS] = {};
  Steps::add_columns(p, tile, live, staged, sums);

  FW_UNROLL
  for (int first = 0; first < M; first += AT_ONCE) {
    barrier();  // until what lies there has been read
    FW_UNROLL
    for (int m = 0; m < AT_ONCE; m++)
      FW_UNROLL
      for (int n = 0; n < N; n++)
        FW_UNROLL
        for (int i = 0; i < Unit::SUMS; i++) {
          const int at = wave * OF_WAVE + (n * Unit::TOKENS + Unit::sum_token(i)) * PITCH +
                         m * (MATRIX_ROWS / GIVES) + Unit::sum_row(i);
          const float sum = sums[first + m][n][i];
          if constexpr (GATED) {
            const float up = Unit::eight_rows_on(sums[first + m][n], i);
            if (Unit::sum_row(i) < MATRIX_ROWS / 2) turned[at] = silu(sum) * up;
          } else {
            turned[at] = sum;
          }
        }
    barrier();
    constexpr int EIGHTS = OUTPUTS / 8;
    FW_UNROLL
    for (int j = 0; j < Tile::WAVE_TOKENS * EIGHTS / W; j++) {
      const int task = j * W + lane<W>(), token = task / EIGHTS, of_wave = task % EIGHTS * 8;
      const int row = row0 + tile.first_token + token;
      const int output =
          (tile.weights * ROWS + tile.first_row + first * MATRIX_ROWS) / GIVES + of_wave;
      float eight[8];
      FW_UNROLL
      for (int i = 0; i < 8; i++) eight[i] = turned[wave * OF_WAVE + token * PITCH + of_wave + i];
      if (row < live && output < p.outputs) store_eight<T>(p, row, output, eight);
    }
  }
}

}  // namespace fw

#define GEMM_ENTRY(op, gated, rows, tokens, suffix, T)                                              \
  FW_KERNEL_LARGE_LDS(op##_gemm_##suffix##_##tokens, fw::GEMM_BLOCK,                                \
                      (16 * fw::GemmSteps<FW_WAVE, rows, tokens, T, gated>::PIECES), FwLinearParams) { \
    fw::gemm<FW_WAVE, rows, tokens, T, gated>(p);                                                   \
  }
#define GEMM_ENTRIES(suffix, T)                                            \
  GEMM_ENTRY(linear, false, FW_GEMM_ROWS, 64, suffix, T)                   \
  GEMM_ENTRY(linear, false, FW_GEMM_ROWS, 128, suffix, T)                  \
  GEMM_ENTRY(gate_up_silu, true, FW_GEMM_ROWS, 64, suffix, T)              \
  GEMM_ENTRY(gate_up_silu, true, FW_GEMM_ROWS, 128, suffix, T)
GEMM_ENTRIES(f16, fw::f16)
GEMM_ENTRIES(bf16, fw::bf16)
#if defined(FW_ASYNC)
#define GEMM_ENTRIES_TALL(suffix, T)                                       \
  GEMM_ENTRY(linear_tall, false, FW_GEMM_ROWS_TALL, 128, suffix, T)        \
  GEMM_ENTRY(gate_up_silu_tall, true, FW_GEMM_ROWS_TALL, 128, suffix, T)
GEMM_ENTRIES_TALL(f16, fw::f16)
GEMM_ENTRIES_TALL(bf16, fw::bf16)
#endif
#endif
