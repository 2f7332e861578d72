// linear, gate_up_silu: products of a large matrix with few rows, on multiply-adds or matrix units.
//
// A wave takes some weight rows at once and all of a tile's x rows, so that a weight is read once.
// On multiply-adds, lane l adds up columns 8 l … 8 l + 7 of each 8 · lanes, and the lanes are
// joined by a butterfly. The `split` waves that share a weight row are added in their order. None
// of that depends on the number of rows: a row's bits are the same alone and in company.
#include "matrix.h"
#include "parameters.h"

namespace fw {

constexpr int WEIGHT_ROWS = 4;

// Sums of WEIGHT_ROWS weight rows with ROWS rows of x, over the columns of this lane.
template <int W, int ROWS, typename TW, typename TX>
DEVICE void multiply(const FwLinearParams& p, const TW* const (&weight)[WEIGHT_ROWS],
                     const TX* const (&x)[ROWS], int part, float (&sums)[WEIGHT_ROWS][ROWS]) {
  for (int k = (part * W + lane<W>()) * 8; k < p.x_stride; k += p.split * W * 8) {
    Eight<TW> w[WEIGHT_ROWS];
    FW_UNROLL
    for (int n = 0; n < WEIGHT_ROWS; n++) w[n] = stream8(weight[n] + k);
    FW_UNROLL
    for (int r = 0; r < ROWS; r++) {
      const Eight<TX> values = load8(x[r] + k);
      FW_UNROLL
      for (int n = 0; n < WEIGHT_ROWS; n++)
        FW_UNROLL
        for (int j = 0; j < 8; j++) sums[n][r] = fma(w[n].get(j), values.get(j), sums[n][r]);
    }
  }
}

// From sums in LDS to outputs: total(group, n, r) is weight row n of a group's with x row r.
template <int OUTPUTS, int ROWS, bool GATED, typename Total>
DEVICE void write_outputs(const FwLinearParams& p, int groups, int row0, int live, Total total) {
  for (int i = thread(); i < groups * OUTPUTS * ROWS; i += threads()) {
    const int r = i / (groups * OUTPUTS), group = i / OUTPUTS % groups, n = i % OUTPUTS;
    const int output = (block_x() * groups + group) * OUTPUTS + n, row = row0 + r;
    if (row >= live || output >= p.outputs) continue;
    float value = total(group, n, r);
    if (GATED) value = silu(value) * total(group, OUTPUTS + n, r);
    const size_t at = (size_t)row * p.outputs + output;
    if (p.bias) value += in<float>(p.bias)[output];
    if (p.residual) value += load_as(p.residual, p.output_dtype, at);
    store_as(p.y, p.output_dtype, at, value);
  }
}

// Row n of those that make a group's outputs: its gates come first, then its ups.
template <int OUTPUTS>
DEVICE size_t weight_row(const FwLinearParams& p, int first, int n) {
  const int output = least(first + n % OUTPUTS, p.outputs - 1);
  return n < OUTPUTS ? output : p.outputs + output;
}

template <int W, int ROWS, typename TW, typename TX, bool GATED>
DEVICE void linear(const FwLinearParams& p) {
  constexpr int WAVES = FW_LINEAR_BLOCK / W, SUMS = WEIGHT_ROWS * ROWS;
  constexpr int OUTPUTS = GATED ? WEIGHT_ROWS / 2 : WEIGHT_ROWS;
  FW_LDS(float, partial, WAVES * SUMS);
  const int row0 = block_y() * ROWS, live = live_rows(p.live, p.rows);
  if (row0 >= live) return;
  const int wave = uniform(thread() / W), part = wave % p.split, groups = WAVES / p.split;
  const int first = (block_x() * groups + wave / p.split) * OUTPUTS;

  const TW* weight[WEIGHT_ROWS];
  FW_UNROLL
  for (int n = 0; n < WEIGHT_ROWS; n++)
    weight[n] = in<TW>(p.weight.data) + weight_row<OUTPUTS>(p, first, n) * p.weight.stride;
  const TX* x[ROWS];
  FW_UNROLL
  for (int r = 0; r < ROWS; r++)
    x[r] = in<TX>(p.x) + (size_t)least(row0 + r, p.rows - 1) * p.x_stride;

  float sums[WEIGHT_ROWS][ROWS] = {};
  multiply<W, ROWS>(p, weight, x, part, sums);
  FW_UNROLL
  for (int n = 0; n < WEIGHT_ROWS; n++)
    FW_UNROLL
    for (int r = 0; r < ROWS; r++) {
      const float sum = wave_sum<W>(sums[n][r]);
      if (lane<W>() == 0) partial[wave * SUMS + n * ROWS + r] = sum;
    }
  barrier();
  write_outputs<OUTPUTS, ROWS, GATED>(p, groups, row0, live, [&](int group, int n, int r) {
    float sum = 0;
    for (int i = 0; i < p.split; i++)
      sum += partial[(group * p.split + i) * SUMS + n * ROWS + r];
    return sum;
  });
}

#if defined(FW_MATRIX)

// STEPS times 32 columns from k on; all weights are asked for before the first is used.
//
// With one tile the tokens are asked for then, too: their latency would come after the weights'.
// More tiles, or units that want more words of a token, have no registers for that.
template <int W, int STEPS, int TILES, typename T>
DEVICE void multiply_chunk(const T* const (&weight)[Matrix<W, T>::ROW_LOADS],
                           const T* const (&x)[TILES], int k,
                           float (&sums)[TILES][Matrix<W, T>::SUMS]) {
  using Unit = Matrix<W, T>;
  constexpr bool AHEAD = TILES == 1 && Unit::TOKEN_LOADS == 1;
  Words a[STEPS][Unit::ROW_LOADS], ahead[AHEAD ? STEPS : 1];
  FW_UNROLL
  for (int s = 0; s < STEPS; s++)
    FW_UNROLL
    for (int i = 0; i < Unit::ROW_LOADS; i++)
      a[s][i] = stream_words(weight[i] + k + s * MATRIX_COLUMNS + Unit::row_offset(i));
  if constexpr (AHEAD) {
    FW_UNROLL
    for (int s = 0; s < STEPS; s++)
      ahead[s] = load_words(x[0] + k + s * MATRIX_COLUMNS + Unit::token_offset(0));
  }
  FW_UNROLL
  for (int s = 0; s < STEPS; s++)
    FW_UNROLL
    for (int t = 0; t < TILES; t++) {
      Words b[Unit::TOKEN_LOADS];
      FW_UNROLL
      for (int i = 0; i < Unit::TOKEN_LOADS; i++)
        b[i] = AHEAD ? ahead[AHEAD ? s : 0]
                     : load_words(x[t] + k + s * MATRIX_COLUMNS + Unit::token_offset(i));
      Unit::multiply(a[s], b, sums[t]);
    }
}

// On matrix units. A wave takes 16 weight rows and ROWS rows of x, CHUNK columns at a time.
template <int W, int ROWS, typename T, bool GATED>
DEVICE void linear_matrix(const FwLinearParams& p) {
  using Unit = Matrix<W, T>;
  constexpr int WAVES = FW_LINEAR_BLOCK / W, STEPS = 4, CHUNK = STEPS * MATRIX_COLUMNS;
  constexpr int TILES = ROWS > Unit::TOKENS ? ROWS / Unit::TOKENS : 1;
  constexpr int TOKENS = TILES * Unit::TOKENS, SUMS = MATRIX_ROWS * TOKENS;
  constexpr int OUTPUTS = GATED ? MATRIX_ROWS / 2 : MATRIX_ROWS;
  FW_LDS(float, partial, WAVES * SUMS);
  const int row0 = block_y() * ROWS, live = live_rows(p.live, p.rows);
  if (row0 >= live) return;
  const int wave = uniform(thread() / W), part = wave % p.split, groups = WAVES / p.split;
  const int first = (block_x() * groups + wave / p.split) * OUTPUTS;

  const T* weight[Unit::ROW_LOADS];
  FW_UNROLL
  for (int i = 0; i < Unit::ROW_LOADS; i++)
    weight[i] = in<T>(p.weight.data) + weight_row<OUTPUTS>(p, first, Unit::row(i)) * p.weight.stride;
  const T* x[TILES];  // tokens beyond the last are computed and not kept
  FW_UNROLL
  for (int t = 0; t < TILES; t++) {
    const int row = least(row0 + t * Unit::TOKENS + Unit::token(0), live - 1);
    x[t] = in<T>(p.x) + (size_t)row * p.x_stride;
  }

  float sums[TILES][Unit::SUMS] = {};
  const int whole = p.x_stride / CHUNK * CHUNK;
  for (int k = part * CHUNK; k < whole; k += p.split * CHUNK)
    multiply_chunk<W, STEPS, TILES, T>(weight, x, k, sums);
  if (whole / CHUNK % p.split == part)
    for (int k = whole; k < p.x_stride; k += MATRIX_COLUMNS)
      multiply_chunk<W, 1, TILES, T>(weight, x, k, sums);

  FW_UNROLL
  for (int t = 0; t < TILES; t++)
    FW_UNROLL
    for (int i = 0; i < Unit::SUMS; i++)
      partial[wave * SUMS + Unit::sum_row(i) * TOKENS + t * Unit::TOKENS + Unit::sum_token(i)] =
          sums[t][i];
  barrier();
  write_outputs<OUTPUTS, ROWS, GATED>(p, groups, row0, live, [&](int group, int n, int r) {
    float sum = 0;
    for (int i = 0; i < p.split; i++)
      sum += partial[(group * p.split + i) * SUMS + n * TOKENS + r];
    return sum;
  });
}

#endif

// x as the products read it: rows padded to whole steps, in the type that they are built for.
DEVICE void pad_rows(const FwPadParams& p) {
  const int row = block_y(), i = block_x() * threads() + thread();
  if (i >= p.stride) return;
  const float value = i < p.width ? load_as(p.x, p.dtype, (size_t)row * p.width + i) : 0.0f;
  store_as(p.y, p.y_dtype, (size_t)row * p.stride + i, value);
}

}  // namespace fw

FW_KERNEL(pad_rows, 256, FwPadParams) { fw::pad_rows(p); }

#define ENTRY(rows, w, TW, x, TX)                                              \
  FW_KERNEL(linear_##w##_##x##_##rows, FW_LINEAR_BLOCK, FwLinearParams) {      \
    fw::linear<FW_WAVE, rows, TW, TX, false>(p);                               \
  }                                                                            \
  FW_KERNEL(gate_up_silu_##w##_##x##_##rows, FW_LINEAR_BLOCK, FwLinearParams) { \
    fw::linear<FW_WAVE, rows, TW, TX, true>(p);                                \
  }
#define ROWS(w, TW, x, TX) \
  ENTRY(1, w, TW, x, TX)   \
  ENTRY(2, w, TW, x, TX)   \
  ENTRY(4, w, TW, x, TX)   \
  ENTRY(8, w, TW, x, TX)
// Of other pairs of types, x is widened to float first: exact, and a template less.
ROWS(f16, fw::f16, f16, fw::f16)
ROWS(f16, fw::f16, f32, float)
ROWS(bf16, fw::bf16, bf16, fw::bf16)
ROWS(bf16, fw::bf16, f32, float)
ROWS(f32, float, f32, float)

#if defined(FW_MATRIX)
#define MATRIX_ENTRY(rows, suffix, T)                                              \
  FW_KERNEL(linear_matrix_##suffix##_##rows, FW_LINEAR_BLOCK, FwLinearParams) {    \
    fw::linear_matrix<FW_WAVE, rows, T, false>(p);                                 \
  }                                                                                \
  FW_KERNEL(gate_up_silu_matrix_##suffix##_##rows, FW_LINEAR_BLOCK, FwLinearParams) { \
    fw::linear_matrix<FW_WAVE, rows, T, true>(p);                                  \
  }
#define MATRIX_ENTRIES(suffix, T) \
  MATRIX_ENTRY(8, suffix, T)      \
  MATRIX_ENTRY(16, suffix, T)     \
  MATRIX_ENTRY(32, suffix, T)     \
  MATRIX_ENTRY(64, suffix, T)
MATRIX_ENTRIES(f16, fw::f16)
MATRIX_ENTRIES(bf16, fw::bf16)
#endif
