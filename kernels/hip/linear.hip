// linear, gate_up_silu: products of a large matrix with few rows, by multiply-adds.
//
// A wave takes some weight rows at once and all of a tile's x rows, so that a weight is read once.
// Lane l adds up columns 8 l … 8 l + 7 of each 8 · lanes, and the lanes are joined by a butterfly.
// The `split` waves that share a weight row are added in their order. None of that depends on the
// number of rows: a row's bits are the same alone and in company.
#include "linear.h"
#include "matrix.h"

namespace fw {

constexpr int WEIGHT_ROWS = 4;

// Panels are for matrix units, which leave products of unequal types to these kernels.
template <typename TW, typename TX>
DEVICE int panel_bits(const FwLinearParams& p) {
#if defined(FW_MATRIX)
  constexpr bool MATRIX = true;
#else
  constexpr bool MATRIX = false;
#endif
  return MATRIX && sizeof(TW) != sizeof(TX) ? p.weight.panel_bits : 0;
}

// Sums of WEIGHT_ROWS weight rows with ROWS rows of x, over the columns of this lane.
template <int W, int ROWS, typename TW, typename TX>
DEVICE void multiply(const FwLinearParams& p, const TW* const (&weight)[WEIGHT_ROWS],
                     const TX* const (&x)[ROWS], int part, float (&sums)[WEIGHT_ROWS][ROWS]) {
  for (int k = (part * W + lane<W>()) * 8; k < p.x_stride; k += p.split * W * 8) {
    Eight<TW> w[WEIGHT_ROWS];
    FW_UNROLL
    for (int n = 0; n < WEIGHT_ROWS; n++) w[n] = stream8(weight[n] + panel_column(panel_bits<TW, TX>(p), k));
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
    weight[n] = in<TW>(p.weight.data) +
                panel_row(p.weight, panel_bits<TW, TX>(p), weight_row<OUTPUTS>(p, first, n));
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
  write_outputs<OUTPUTS, ROWS, GATED>(p, groups, row0, live, [&](int group, int n, int r) {
    float sum = 0;
    for (int i = 0; i < p.split; i++)
      sum += partial[(group * p.split + i) * SUMS + n * ROWS + r];
    return sum;
  });
}

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
