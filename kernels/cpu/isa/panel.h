// The activations of a linear layer, gathered into panels of rows as its kernels read them.
#ifndef FLATWAKE_CPU_ISA_PANEL_H
#define FLATWAKE_CPU_ISA_PANEL_H

#include "layer.h"
#include "simd.h"
#include "worker.h"

namespace flatwake {
namespace FW_ISA {
namespace {

// Rows that are multiplied at once: their sums stay in registers.
constexpr int PANEL = W == 16 ? 12 : 4;
// Columns that a thread gathers at a time, and values that are worth another thread's help.
constexpr int64_t GATHER_COLUMNS = 256;
constexpr int64_t GATHER_GRAIN = 8192;

// Where one multiplication and addition is rounded once, a block's integers are added up on top of
// the bits of 1.5 · 2^23: seen as a float, such a sum below 2^22 is that number more, exactly, and
// needs no conversion. Elsewhere 0.
#if defined(__AVX2__)
constexpr int32_t LIFT = 0x4b400000;
#else
constexpr int32_t LIFT = 0;
#endif
inline float lifted_zero() { return LIFT ? 12582912.0f : 0.0f; }

// What 32 int8 activations of a row stand for, and where a dot product starts: LIFT, less their sums
// times what quants are stored above their value (8, 128, and 32 by halves).
struct Block {
  float scale;
  float scaled_sum;
  int32_t start8;
  int32_t start128;
  int32_t start32[2];
};

// R rows: quants [blocks][R][32], blocks [blocks][R], floats [columns][R].
struct Panel {
  int rows;
  const int8_t* quants;
  const Block* blocks;
  const float* floats;
};

// The panels of `rows` rows of `columns` in shared scratch.
class Panels {
 public:
  Panels(char* shared, int64_t rows, int64_t columns, bool integers, bool floats)
      : shared_(shared), rows_(rows), columns_(columns) {
    const int64_t blocks = columns / BLOCK_COLUMNS;
    quants_ = 0;
    blocks_ = quants_ + (integers ? round_up(PANEL * columns, 64) : 0);
    floats_ = blocks_ + (integers ? round_up(PANEL * blocks * int64_t(sizeof(Block)), 64) : 0);
    stride_ = floats_ + (floats ? round_up(PANEL * columns * 4, 64) : 0);
    integers_ = integers;
    has_floats_ = floats;
  }

  int64_t count() const { return (rows_ + PANEL - 1) / PANEL; }
  int64_t bytes() const { return count() * stride_; }

  Panel panel(int64_t index) const {
    char* start = shared_ + index * stride_;
    return {int(least(PANEL, rows_ - index * PANEL)),
            reinterpret_cast<const int8_t*>(start + quants_),
            reinterpret_cast<const Block*>(start + blocks_),
            reinterpret_cast<const float*>(start + floats_)};
  }

  // Fill all panels from x, with the whole team (phase 0); all may read them afterwards.
  template <class T>
  void gather(const T* x, Worker& w) const {
    const int64_t parts = (columns_ + GATHER_COLUMNS - 1) / GATHER_COLUMNS;
    const int64_t grain = most(1, GATHER_GRAIN / (least(PANEL, rows_) * GATHER_COLUMNS));
    for (int64_t begin, end; w.take(0, count() * parts, grain, begin, end);) {
      for (int64_t item = begin; item < end; ++item) {
        const int64_t index = item / parts, first = item % parts * GATHER_COLUMNS;
        const int64_t last = least(first + GATHER_COLUMNS, columns_);
        gather_part(panel(index), x + index * PANEL * columns_, first, last);
      }
    }
    w.wait(0);
  }

 private:
  template <class T>
  void gather_part(const Panel& panel, const T* x, int64_t first, int64_t last) const {
    for (int r = 0; r < panel.rows; ++r) {
      const T* row = x + r * columns_;
      if (integers_)
        for (int64_t c = first; c < last; c += BLOCK_COLUMNS) {
          const int64_t place = c / BLOCK_COLUMNS * panel.rows + r;
          round_block(row + c, const_cast<int8_t*>(panel.quants) + place * BLOCK_COLUMNS,
                      const_cast<Block&>(panel.blocks[place]));
        }
      if (has_floats_) {
        auto* floats = const_cast<float*>(panel.floats);
        for (int64_t c = first; c < last; ++c) floats[c * panel.rows + r] = widen(row[c]);
      }
    }
  }

  // As the reference's quantise_int8: q = round(x · (127 / max|x|)), scale max|x| / 127.
  template <class T>
  static void round_block(const T* x, int8_t* quants, Block& block) {
    constexpr int VECTORS = BLOCK_COLUMNS / W;
    typedef int8_t vb __attribute__((vector_size(W)));
    vf values[VECTORS], top{};
    for (int i = 0; i < VECTORS; ++i) {
      values[i] = load(x + i * W);
      top = larger(top, magnitude(values[i]));
    }
    float most = largest(top);
    if (most < 1e-30f) most = 0;
    const float inverse = most != 0 ? 127.0f / most : 0;
    int32_t sums[2] = {0, 0};
    for (int i = 0; i < VECTORS; ++i) {
      const vi whole = to_int(values[i] * inverse);
      const vb narrow = __builtin_convertvector(whole, vb);
      memcpy(quants + i * W, &narrow, W);
      sums[i * W / 16] += sum(whole);
    }
    block.scale = most / 127.0f;
    block.scaled_sum = block.scale * float(sums[0] + sums[1]);
    block.start8 = LIFT - 8 * (sums[0] + sums[1]);
    block.start128 = LIFT - 128 * (sums[0] + sums[1]);
    block.start32[0] = LIFT - 32 * sums[0];
    block.start32[1] = LIFT - 32 * sums[1];
  }

  char* shared_;
  int64_t rows_, columns_, quants_, blocks_, floats_, stride_;
  bool integers_, has_floats_;
};

}  // namespace
}  // namespace FW_ISA
}  // namespace flatwake

#endif
