// linear, gate_up_silu: products of a large matrix with few rows, on matrix units.
//
// The weight rows are the unit's 16-row side. All waves of a block share them and are added in a fixed
// order; which columns each takes follows from the shape alone: a row's bits are the same alone and
// in company. So a block asks for much of few rows, which lie together in panels. Where each panel has a
// compute unit for itself, a block has twice the waves, and each of them asks for twice as much.
//
// What comes around a product is done at its end: half of a norm, an output's convolution.
#include "conv.h"
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
        weights[s][i] = stream_words(weight[i] + ((size_t)(k + s * MATRIX_COLUMNS) << FW_PANEL_BITS) +
                                     Unit::row_offset(i));
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

// What follows a product. written() hears of every output as it is stored; begin() is called behind
// the first weights' loads.
struct Nothing {
  DEVICE void begin() {}
  DEVICE void written(int, int, float, bool) {}
};

// The scale of a row whose squares were added up by parts.
template <int W>
DEVICE float row_scale(const FwLinearParams& p, int row) {
  const int parts = p.x_stride / FW_NORM_PART;
  float sum = 0;
  for (int i = lane<W>(); i < parts; i += W) sum += in<float>(p.squares)[(size_t)row * parts + i];
  return 1.0f / sqrt(wave_sum<W>(sum) / p.x_stride + p.eps);
}

// On matrix units. A wave takes 16 weight rows and ROWS rows of x, a chunk of columns at a time. With
// up to 16 rows the next chunk is asked for as soon as the last one's registers are free.
template <int W, int BLOCK, int ROWS, typename T, bool GATED, bool SCALED, typename After>
DEVICE void linear_matrix(const FwLinearParams& p, After& after) {
  using Unit = Matrix<W, T>;
  constexpr int WAVES = BLOCK / W, HELD = FW_LINEAR_BLOCK / W;  // waves whose sums LDS has room for
  constexpr int TILES = ROWS > Unit::TOKENS ? ROWS / Unit::TOKENS : 1;
  constexpr int TOKENS = TILES * Unit::TOKENS;
  // Few tokens lie apart, so that a wave's lanes are in banks of their own.
  constexpr int TOKEN_SUMS = MATRIX_ROWS + (ROWS <= 16 ? 4 : 0), SUMS = TOKENS * TOKEN_SUMS;
  constexpr int OUTPUTS = GATED ? MATRIX_ROWS / 2 : MATRIX_ROWS;
  FW_LDS(float, partial, HELD * SUMS);
  FW_LDS(float, scales, SCALED ? ROWS : 1);
  const int row0 = block_y() * ROWS, live = live_rows(p.live, p.rows);
  if (row0 > 0 && row0 >= live) return;
  const int wave = uniform(thread() / W), first = block_x() * OUTPUTS;

  const T* weight[Unit::ROW_LOADS];
  FW_UNROLL
  for (int i = 0; i < Unit::ROW_LOADS; i++)
    weight[i] = in<T>(p.weight.data) +
                panel_row(p.weight, FW_PANEL_BITS, weight_row<OUTPUTS>(p, first, Unit::row(i)));
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
  constexpr int DEPTH = EARLY ? BLOCK / FW_LINEAR_BLOCK : 1;
  using Taken = Chunk<W, EARLY ? 4 : 2, TILES, T>;
  Taken chunks[DEPTH];
  const int whole = p.x_stride / COLUMNS * COLUMNS;
  const auto ask_early = [&](Taken& chunk, int at) {
    if (EARLY && at < whole) chunk.ask(weight, x, at);
  };
  int k = wave * COLUMNS;
  FW_UNROLL
  for (int i = 0; i < DEPTH; i++) ask_early(chunks[i], k + i * STEP);
  after.begin();
  if (SCALED)
    for (int r = wave; r < ROWS; r += WAVES) {
      const float scale = row_scale<W>(p, least(row0 + r, p.rows - 1));
      if (lane<W>() == 0) scales[r] = scale;
    }
  const auto turn = [&] {
    if constexpr (EARLY) {
      FW_UNROLL
      for (int i = 0; i < DEPTH; i++) {
        const int at = k + i * STEP;
        if (i > 0 && at >= whole) break;
        chunks[i].multiply(x, at, sums);
        ask_early(chunks[i], at + DEPTH * STEP);
      }
    } else {
      FW_NO_UNROLL  // the loads of both would want registers of their own
      for (int at = k; at < k + COLUMNS; at += Taken::COLUMNS) {
        chunks[0].ask(weight, x, at);
        chunks[0].multiply(x, at, sums);
      }
    }
  };
  const auto rest = [&] {
    Chunk<W, 1, TILES, T> step;
    step.ask(weight, x, k);
    step.multiply(x, k, sums);
  };
  const bool last = whole / COLUMNS % WAVES == wave;
  if constexpr (ROWS == 32) {  // has registers for what nvcc then asks for ahead; the others are slower so
    for (; k < whole; k += DEPTH * STEP) turn();
    for (k = last ? whole : p.x_stride; k < p.x_stride; k += MATRIX_COLUMNS) rest();
  } else {
    FW_NO_UNROLL
    for (; k < whole; k += DEPTH * STEP) turn();
    FW_NO_UNROLL
    for (k = last ? whole : p.x_stride; k < p.x_stride; k += MATRIX_COLUMNS) rest();
  }

  const auto each_sum = [&](auto&& with) {
    FW_UNROLL
    for (int t = 0; t < TILES; t++)
      FW_UNROLL
      for (int i = 0; i < Unit::SUMS; i++)
        with(sums[t][i], wave % HELD * SUMS + (t * Unit::TOKENS + Unit::sum_token(i)) * TOKEN_SUMS +
                             Unit::sum_row(i));
  };
  if (WAVES > HELD) {  // the later half is added to the first
    if (wave >= HELD) each_sum([&](float sum, int at) { partial[at] = sum; });
    barrier();
    if (wave < HELD) each_sum([&](float& sum, int at) { sum += partial[at]; });
  }
  if (wave < HELD) each_sum([&](float sum, int at) { partial[at] = sum; });
  write_outputs<OUTPUTS, ROWS, GATED>(
      p, 1, row0, live,
      [&](int, int n, int r) {
        float sum = 0;
        FW_UNROLL
        for (int i = 0; i < HELD; i++) sum += partial[i * SUMS + r * TOKEN_SUMS + n];
        return SCALED ? sum * scales[r] : sum;
      },
      [&](int n, int r, float value, bool kept) { after.written(n, r, value, kept); });
}

template <int W, int BLOCK, int ROWS, typename T, bool GATED, bool SCALED>
DEVICE void linear_matrix(const FwLinearParams& p) {
  Nothing nothing;
  linear_matrix<W, BLOCK, ROWS, T, GATED, SCALED>(p, nothing);
}

// The first half of a norm of what the product gives. A block's outputs are a part of the row, and a
// thread's are of one column.
template <int W, typename T>
struct Weighed {
  const FwLinearParams& p;
  const int row0, output;
  float factor;

  DEVICE explicit Weighed(const FwLinearParams& of, int first_row)
      : p(of), row0(first_row), output(block_x() * FW_NORM_PART + thread() % FW_NORM_PART) {}
  DEVICE void begin() { factor = in<float>(p.norm)[output] + p.norm_offset; }
  DEVICE void written(int n, int r, float value, bool kept) {
    const float stored = widen(narrow<T>(value));
    const float squares = group_sum<W, FW_NORM_PART>(stored * stored);
    if (!kept) return;
    const size_t row = row0 + r;
    out<T>(p.weighed)[row * p.outputs + output] = narrow<T>(stored * factor);
    if (n == 0) out<float>(p.squares)[row * (p.outputs / FW_NORM_PART) + block_x()] = squares;
  }
};

// What a channel's convolution waits for is brought to LDS behind the first weights' loads: `before`
// has a thread's inputs and taps. `values` are the product's, as the convolution would read them.
template <typename T, typename Values, typename Before>
struct Convolved {
  static constexpr int TAPS = FW_CONV_TAPS_FEW, KEPT = 2 * TAPS - 1;
  using Of = Channel<T, fw_conv_step_params, TAPS>;
  const fw_conv_step_params& p;
  Values& values;
  Before& before;

  DEVICE bool inside() const { return block_x() * MATRIX_ROWS < p.channels; }
  DEVICE int all() const { return p.sequences * MATRIX_ROWS; }
  DEVICE bool brought(int i) const { return i == thread() && i < FW_LINEAR_BLOCK; }
  DEVICE Of channel(int i) const {
    const int sequence = i / MATRIX_ROWS;
    return Of(p, rows_of(p, sequence), block_x() * MATRIX_ROWS + i % MATRIX_ROWS, sequence);
  }
  DEVICE void begin() {
    if (!inside() || thread() >= all() || !brought(thread())) return;
    Of of = channel(thread());
    of.load(of.rows.first);
    FW_UNROLL
    for (int i = 0; i < TAPS; i++) {
      before[thread() * KEPT + i] = of.weight[i];
      if (i + 1 < TAPS) before[thread() * KEPT + TAPS + i] = of.window[i];
    }
  }
  DEVICE void written(int n, int r, float value, bool kept) {
    if (kept) values[r * MATRIX_ROWS + n] = widen(narrow<T>(value));
  }
  DEVICE void finish() {
    if (!inside()) return;
    barrier();
    for (int i = thread(); i < all(); i += threads()) {
      Of of = channel(i);
      if (!brought(i)) of.load(of.rows.first);
      else
        FW_UNROLL
        for (int t = 0; t < TAPS; t++) {
          of.weight[t] = before[i * KEPT + t];
          if (t + 1 < TAPS) of.window[t] = before[i * KEPT + TAPS + t];
        }
      of.step([&](int row) { return values[row * MATRIX_ROWS + i % MATRIX_ROWS]; });
    }
  }
};

template <int W, int BLOCK, int ROWS, typename T>
DEVICE void linear_conv(const FwProjectionParams& p) {
  FW_LDS(float, values, ROWS * MATRIX_ROWS);
  FW_LDS(float, before, FW_LINEAR_BLOCK * (2 * FW_CONV_TAPS_FEW - 1));
  Convolved<T, decltype(values), decltype(before)> after{p.conv, values, before};
  linear_matrix<W, BLOCK, ROWS, T, false, true>(p.linear, after);
  after.finish();
}

template <int W, int BLOCK, int ROWS, typename T>
DEVICE void linear_weighed(const FwLinearParams& p) {
  Weighed<W, T> after(p, block_y() * ROWS);
  linear_matrix<W, BLOCK, ROWS, T, false, false>(p, after);
}

}  // namespace fw

// Told how many blocks of few rows are to be resident, nvcc orders these better; the others it doesn't.
#define PLAIN_KERNEL(name, rows, block, Params) FW_KERNEL(name, block, Params)
#define SCALED_KERNEL(name, rows, block, Params) \
  FW_KERNEL_RESIDENT(name, block, rows <= 16 ? 3 * FW_LINEAR_BLOCK / block : 0, Params)
#define MATRIX_ENTRY(rows, name, KERNEL, block, T, scaled)            \
  KERNEL(linear_##name##_##rows, rows, block, FwLinearParams) {       \
    fw::linear_matrix<FW_WAVE, block, rows, T, false, scaled>(p);     \
  }                                                                   \
  KERNEL(gate_up_silu_##name##_##rows, rows, block, FwLinearParams) { \
    fw::linear_matrix<FW_WAVE, block, rows, T, true, scaled>(p);      \
  }
// float16 has no room for a row that isn't scaled yet.
#define MATRIX_ENTRIES(rows, name, block)                                               \
  MATRIX_ENTRY(rows, name##_f16, PLAIN_KERNEL, block, fw::f16, false)                   \
  MATRIX_ENTRY(rows, name##_bf16, PLAIN_KERNEL, block, fw::bf16, false)                 \
  MATRIX_ENTRY(rows, scaled_##name##_bf16, SCALED_KERNEL, block, fw::bf16, true)        \
  FW_KERNEL(linear_weighed_##name##_bf16_##rows, block, FwLinearParams) {               \
    fw::linear_weighed<FW_WAVE, block, rows, fw::bf16>(p);                              \
  }                                                                                     \
  SCALED_KERNEL(linear_conv_scaled_##name##_bf16_##rows, rows, block, FwProjectionParams) { \
    fw::linear_conv<FW_WAVE, block, rows, fw::bf16>(p);                                 \
  }
#define BLOCK_ENTRIES(name, block) \
  MATRIX_ENTRIES(8, name, block)   \
  MATRIX_ENTRIES(16, name, block)  \
  MATRIX_ENTRIES(32, name, block)  \
  MATRIX_ENTRIES(64, name, block)
BLOCK_ENTRIES(matrix, FW_LINEAR_BLOCK)
BLOCK_ENTRIES(few_matrix, FW_LINEAR_BLOCK_FEW)
#endif
