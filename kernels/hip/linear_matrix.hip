// linear, gate_up_silu: products of a large matrix with few rows, on matrix units.
//
// The weight rows are the unit's 16-row side. All waves of a block share them and are added in their
// order; which columns each takes follows from the shape alone: a row's bits are the same alone and
// in company. So a block asks for much of few rows: its loads are near one another in memory.
#include "linear.h"
#include "matrix.h"

#if defined(FW_MATRIX)
namespace fw {

// STEPS times 32 columns of 16 weight rows, and of the tokens if there is one tile of them: their
// latency would come after the weights'. More tiles, or units that want more words of a token, have
// no registers for that.
template <int W, int STEPS, int TILES, typename T>
struct Chunk {
  using Unit = Matrix<W, T>;
  static constexpr bool AHEAD = TILES == 1 && Unit::TOKEN_LOADS == 1;
  static constexpr int COLUMNS = STEPS * MATRIX_COLUMNS;
  Words weights[STEPS][Unit::ROW_LOADS], tokens[AHEAD ? STEPS : 1];

  DEVICE void ask(const T* const (&weight)[Unit::ROW_LOADS], const T* const (&x)[TILES], int k) {
    FW_UNROLL
    for (int s = 0; s < STEPS; s++)
      FW_UNROLL
      for (int i = 0; i < Unit::ROW_LOADS; i++)
        weights[s][i] = stream_words(weight[i] + k + s * MATRIX_COLUMNS + Unit::row_offset(i));
    if constexpr (AHEAD) {
      FW_UNROLL
      for (int s = 0; s < STEPS; s++)
        tokens[s] = load_words(x[0] + k + s * MATRIX_COLUMNS + Unit::token_offset(0));
    }
  }
  DEVICE void multiply(const T* const (&x)[TILES], int k, float (&sums)[TILES][Unit::SUMS]) const {
    FW_UNROLL
    for (int s = 0; s < STEPS; s++)
      FW_UNROLL
      for (int t = 0; t < TILES; t++) {
        Words b[Unit::TOKEN_LOADS];
        FW_UNROLL
        for (int i = 0; i < Unit::TOKEN_LOADS; i++)
          b[i] = AHEAD ? tokens[AHEAD ? s : 0]
                       : load_words(x[t] + k + s * MATRIX_COLUMNS + Unit::token_offset(i));
        Unit::multiply(weights[s], b, sums[t]);
      }
  }
};

// On matrix units. A wave takes 16 weight rows and ROWS rows of x, a chunk of columns at a time. With
// up to 16 rows the next chunk is asked for as soon as the last one's registers are free.
template <int W, int ROWS, typename T, bool GATED>
DEVICE void linear_matrix(const FwLinearParams& p) {
  using Unit = Matrix<W, T>;
  constexpr int WAVES = FW_LINEAR_BLOCK / W;
  constexpr int TILES = ROWS > Unit::TOKENS ? ROWS / Unit::TOKENS : 1;
  constexpr int TOKENS = TILES * Unit::TOKENS;
  // Few tokens lie apart, so that a wave's lanes are in banks of their own.
  constexpr int TOKEN_SUMS = MATRIX_ROWS + (ROWS <= 16 ? 4 : 0), SUMS = TOKENS * TOKEN_SUMS;
  constexpr int OUTPUTS = GATED ? MATRIX_ROWS / 2 : MATRIX_ROWS;
  FW_LDS(float, partial, WAVES * SUMS);
  const int row0 = block_y() * ROWS, live = live_rows(p.live, p.rows);
  if (row0 > 0 && row0 >= live) return;
  const int wave = uniform(thread() / W), first = block_x() * OUTPUTS;

  const T* weight[Unit::ROW_LOADS];
  FW_UNROLL
  for (int i = 0; i < Unit::ROW_LOADS; i++)
    weight[i] = in<T>(p.weight.data) + weight_row<OUTPUTS>(p, first, Unit::row(i)) * p.weight.stride;
  // Tokens beyond the last live one are computed and not kept, so that nothing waits for their number.
  const T* x[TILES];
  FW_UNROLL
  for (int t = 0; t < TILES; t++) {
    const int row = least(row0 + t * Unit::TOKENS + Unit::token(0), p.rows - 1);
    x[t] = in<T>(p.x) + (size_t)row * p.x_stride;
  }

  float sums[TILES][Unit::SUMS] = {};
  constexpr bool EARLY = ROWS <= 16;
  constexpr int COLUMNS = 4 * MATRIX_COLUMNS, STEP = WAVES * COLUMNS;
  Chunk<W, EARLY ? 4 : 2, TILES, T> chunk;
  const int whole = p.x_stride / COLUMNS * COLUMNS;
  int k = wave * COLUMNS;
  if (EARLY && k < whole) chunk.ask(weight, x, k);
  for (; k < whole; k += STEP) {
    if (EARLY) {
      chunk.multiply(x, k, sums);
      if (k + STEP < whole) chunk.ask(weight, x, k + STEP);
      continue;
    }
    FW_NO_UNROLL  // the loads of both would want registers of their own
    for (int at = k; at < k + COLUMNS; at += chunk.COLUMNS) {
      chunk.ask(weight, x, at);
      chunk.multiply(x, at, sums);
    }
  }
  if (whole / COLUMNS % WAVES == wave)
    for (k = whole; k < p.x_stride; k += MATRIX_COLUMNS) {
      Chunk<W, 1, TILES, T> rest;
      rest.ask(weight, x, k);
      rest.multiply(x, k, sums);
    }

  FW_UNROLL
  for (int t = 0; t < TILES; t++)
    FW_UNROLL
    for (int i = 0; i < Unit::SUMS; i++)
      partial[wave * SUMS + (t * Unit::TOKENS + Unit::sum_token(i)) * TOKEN_SUMS + Unit::sum_row(i)] =
          sums[t][i];
  write_outputs<OUTPUTS, ROWS, GATED>(p, 1, row0, live, [&](int, int n, int r) {
    float sum = 0;
    FW_UNROLL
    for (int i = 0; i < WAVES; i++) sum += partial[i * SUMS + r * TOKEN_SUMS + n];
    return sum;
  });
}

}  // namespace fw

#define MATRIX_ENTRY(rows, suffix, T)                                                 \
  FW_KERNEL(linear_matrix_##suffix##_##rows, FW_LINEAR_BLOCK, FwLinearParams) {       \
    fw::linear_matrix<FW_WAVE, rows, T, false>(p);                                    \
  }                                                                                   \
  FW_KERNEL(gate_up_silu_matrix_##suffix##_##rows, FW_LINEAR_BLOCK, FwLinearParams) { \
    fw::linear_matrix<FW_WAVE, rows, T, true>(p);                                     \
  }
#define MATRIX_ENTRIES(suffix, T) \
  MATRIX_ENTRY(8, suffix, T)      \
  MATRIX_ENTRY(16, suffix, T)     \
  MATRIX_ENTRY(32, suffix, T)     \
  MATRIX_ENTRY(64, suffix, T)
MATRIX_ENTRIES(f16, fw::f16)
MATRIX_ENTRIES(bf16, fw::bf16)
#endif
