// A tile of sixteen weight rows times a panel of activation rows.
//
// Sums run over the columns in one order, whatever the number of rows in the panel: integers are
// exact within a block, blocks are added one after another, floats by even and odd columns.
#ifndef FLATWAKE_CPU_ISA_DOT_H
#define FLATWAKE_CPU_ISA_DOT_H

#include "panel.h"

namespace flatwake {
namespace FW_ISA {
namespace {

// out[r][16] = the panel's row r times the tile's sixteen rows.
using Dot = void (*)(const uint8_t* tile, const Tiling& tiling, int64_t columns,
                     const Panel& panel, float* out);

// Ask for weights that are needed soon: a tile's stream is longer than a page, at whose end the
// processor's own prefetching stops. Two pages, since a far cache may answer later than one page's
// products take; and no nearer than the second cache: what waits for memory holds one of the first
// one's few places for misses (24 on Zen 4), and those alone bound a thread to half of what it can
// read.
inline void fetch_ahead(const void* weights) {
  __builtin_prefetch(static_cast<const char*>(weights) + 8192, 0, 2);
}

inline vi word(const int8_t* four) {
  int32_t value;
  memcpy(&value, four, 4);
  return set(value);
}

// sum + the four unsigned bytes of each lane of `w` times the four signed ones of x.
inline vi dot4(vi sum, vi w, vi x) {
#if defined(__AVX512VNNI__)
  return (vi)_mm512_dpbusd_epi32((__m512i)sum, (__m512i)w, (__m512i)x);
#elif defined(__AVX2__)
  // Pairs must stay below 2^15: w is at most 63 here.
  const __m256i pairs = _mm256_maddubs_epi16((__m256i)w, (__m256i)x);
  return sum + (vi)_mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
#elif defined(__SSE2__)
  // Even bytes and odd ones as pairs of 16 bits.
  const __m128i bytes = (__m128i)w, signs = (__m128i)x;
  const __m128i even = _mm_madd_epi16(_mm_and_si128(bytes, _mm_set1_epi16(255)),
                                      _mm_srai_epi16(_mm_slli_epi16(signs, 8), 8));
  const __m128i odd = _mm_madd_epi16(_mm_srli_epi16(bytes, 8), _mm_srai_epi16(signs, 8));
  return sum + (vi)even + (vi)odd;
#else
  for (int j = 0; j < 4; ++j) sum += (w >> 8 * j & 255) * (x << (24 - 8 * j) >> 24);
  return sum;
#endif
}

// The same for bytes that are stored 128 above their value, that excess left out.
inline vi dot4_signed(vi sum, vi w, vi x) {
#if defined(__AVX2__) && !defined(__AVX512F__)
  const __m256i value = _mm256_xor_si256((__m256i)w, _mm256_set1_epi8(-128));
  const __m256i turned = _mm256_sign_epi8((__m256i)x, value);
  const __m256i pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(value), turned);
  return sum + (vi)_mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
#else
  return dot4(sum, w, x);
#endif
}

inline vf byte_floats(const uint8_t* from, bool is_signed) {
  typedef uint8_t vub __attribute__((vector_size(W)));
  typedef int8_t vsb __attribute__((vector_size(W)));
  if (is_signed) return to_float(__builtin_convertvector(bring<vsb>(from), vi));
  return to_float(__builtin_convertvector(bring<vub>(from), vi));
}

inline vf half_floats(const uint8_t* from) { return load(reinterpret_cast<const Half*>(from)); }

// A weight is scale · (quant - zero) + offset. Of lanes h W to h W + W - 1, for the block's part.
template <Scales S>
inline void block_scales(const uint8_t* scales, int64_t block, int part, int h, vf& scale,
                         vf& offset) {
  const int lane = h * W;
  offset = vf{};
  fetch_ahead(scales + (S == Scales::DM ? 64 : 32) * block);
  if (S == Scales::D) {
    scale = half_floats(scales + block * 32 + 2 * lane);
  } else if (S == Scales::DM) {
    scale = half_floats(scales + block * 64 + 2 * lane);
    offset = half_floats(scales + block * 64 + 32 + 2 * lane);
  } else if (S == Scales::SUPER) {
    const uint8_t* super = scales + block / 8 * 320;
    const int64_t sub = 16 * (block % 8) + lane;
    scale = half_floats(super + 2 * lane) * byte_floats(super + 64 + sub, false);
    offset = -(half_floats(super + 32 + 2 * lane) * byte_floats(super + 192 + sub, false));
  } else {
    const uint8_t* super = scales + block / 8 * 288;
    const int64_t sub = 16 * (block % 8 * 2 + part) + lane;
    scale = half_floats(super + 2 * lane) * byte_floats(super + 32 + sub, true);
  }
}

constexpr bool has_offset(Scales s) { return s == Scales::DM || s == Scales::SUPER; }

template <bool NIBBLES, Scales S>
inline int32_t start_of(const Block& block, int part) {
  if (S == Scales::SIXTH) return block.start32[part];
  if (S != Scales::D) return LIFT;
  if (NIBBLES) return block.start8;
  // Signed bytes are multiplied as they are.
  return W == 8 ? LIFT : block.start128;
}

// Lifted integers times a scale, rounded once. A weight's scale has at most 19 bits, so that LIFT
// times it is exact, and one fused operation takes it off again.
inline vf scaled(vi lifted, vf scale, vf lift) {
  if (LIFT) return fma((vf)lifted, scale, lift);
  return to_float(lifted) * scale;
}

template <bool NIBBLES, Scales S, int R>
void dot_integers(const uint8_t* tile, const Tiling& tiling, int64_t columns, const Panel& panel,
                  float* out) {
  constexpr int PARTS = S == Scales::SIXTH ? 2 : 1;
  constexpr int VECTORS = (NIBBLES ? 4 : 8) / PARTS;  // 64-byte vectors of a part
  constexpr bool SIGNED = !NIBBLES && S == Scales::D;
  const int64_t blocks = columns / BLOCK_COLUMNS;
  for (int h = 0; h < TILE_ROWS / W; ++h) {
    const uint8_t* weights = tile + h * W * 4;
    const int8_t* x = panel.quants;
    const Block* info = panel.blocks;
    vf total[R] = {};
    for (int64_t b = 0; b < blocks; ++b, x += R * BLOCK_COLUMNS, info += R) {
      for (int part = 0; part < PARTS; ++part) {
        vi sums[R];
        for (int r = 0; r < R; ++r) sums[r] = set(start_of<NIBBLES, S>(info[r], part));
        for (int v = 0; v < VECTORS; ++v, weights += 64) {
          const vi w = bring<vi>(weights);
          fetch_ahead(weights);
          const int column = (part * VECTORS + v) * (NIBBLES ? 8 : 4);
          if (NIBBLES) {
            const vi low = w & 0x0f0f0f0f, high = w >> 4 & 0x0f0f0f0f;
            for (int r = 0; r < R; ++r) {
              sums[r] = dot4(sums[r], low, word(x + r * BLOCK_COLUMNS + column));
              sums[r] = dot4(sums[r], high, word(x + r * BLOCK_COLUMNS + column + 4));
            }
          } else {
            for (int r = 0; r < R; ++r) {
              const vi four = word(x + r * BLOCK_COLUMNS + column);
              sums[r] = SIGNED ? dot4_signed(sums[r], w, four) : dot4(sums[r], w, four);
            }
          }
        }
        vf scale, offset;
        block_scales<S>(tile + tiling.quants, b, part, h, scale, offset);
        const vf lift = scale * -lifted_zero();
        for (int r = 0; r < R; ++r) {
          total[r] = fma(scaled(sums[r], scale, lift), set(info[r].scale), total[r]);
          if (has_offset(S)) total[r] = fma(offset, set(info[r].scaled_sum), total[r]);
        }
      }
    }
    for (int r = 0; r < R; ++r) store(out + r * TILE_ROWS + h * W, total[r]);
  }
}

// Sums of even and of odd columns, for R rows.
template <int R>
struct FloatSums {
  vf total[R][2] = {};

  void add(vf weight, const float* x, int parity) {
    for (int r = 0; r < R; ++r) total[r][parity] = fma(weight, set(x[r]), total[r][parity]);
  }
  void put(float* out, int h) const {
    for (int r = 0; r < R; ++r) store(out + r * TILE_ROWS + h * W, total[r][0] + total[r][1]);
  }
};

template <class T, int R>
void dot_floats(const uint8_t* tile, const Tiling&, int64_t columns, const Panel& panel,
                float* out) {
  for (int h = 0; h < TILE_ROWS / W; ++h) {
    const T* weights = reinterpret_cast<const T*>(tile) + h * W;
    const float* x = panel.floats;
    FloatSums<R> sums;
    int64_t c = 0;
    for (; c + 2 <= columns; c += 2, x += 2 * R, weights += 2 * TILE_ROWS) {
      fetch_ahead(weights);
      sums.add(load(weights), x, 0);
      sums.add(load(weights + TILE_ROWS), x + R, 1);
    }
    if (c < columns) sums.add(load(weights), x, 0);
    sums.put(out, h);
  }
}

// Call use(column, its parity, weights of lanes h W …) for each column in order. The parity is a
// constant where this is unrolled, so that sums chosen by it stay in registers.
template <bool NIBBLES, Scales S, class Use>
inline void each_column(const uint8_t* tile, const Tiling& tiling, int64_t columns, int h,
                        const Use& use) {
  constexpr int PARTS = S == Scales::SIXTH ? 2 : 1;
  constexpr int VECTORS = (NIBBLES ? 4 : 8) / PARTS;
  constexpr int EACH = NIBBLES ? 8 : 4;
  const uint8_t* weights = tile + h * W * 4;
  const vi zero = set(int32_t(tiling.zero));
  for (int64_t b = 0; b < columns / BLOCK_COLUMNS; ++b) {
    for (int part = 0; part < PARTS; ++part) {
      vf scale, offset;
      block_scales<S>(tile + tiling.quants, b, part, h, scale, offset);
      for (int v = 0; v < VECTORS; ++v, weights += 64) {
        const vi w = bring<vi>(weights);
        fetch_ahead(weights);
        const int64_t first = b * BLOCK_COLUMNS + (part * VECTORS + v) * EACH;
#pragma GCC unroll 8
        for (int j = 0; j < EACH; ++j) {
          const vi quant = NIBBLES ? w >> (j % 4 * 8 + j / 4 * 4) & 15 : w >> 8 * j & 255;
          // The product is exact or, without an offset, rounded once: the format's own bits.
          const vf product = to_float(quant - zero) * scale;
          use(first + j, j & 1, has_offset(S) ? product + offset : product);
        }
      }
    }
  }
}

template <bool NIBBLES, Scales S, int R>
void dot_widened(const uint8_t* tile, const Tiling& tiling, int64_t columns, const Panel& panel,
                 float* out) {
  for (int h = 0; h < TILE_ROWS / W; ++h) {
    FloatSums<R> sums;
    each_column<NIBBLES, S>(tile, tiling, columns, h, [&](int64_t c, int parity, vf weight) {
      sums.add(weight, panel.floats + c * R, parity);
    });
    sums.put(out, h);
  }
}

// The tile in float32, `[columns][16]`: for many panels, where widening each time costs more.
template <bool NIBBLES, Scales S>
void widen_tile(const uint8_t* tile, const Tiling& tiling, int64_t columns, float* wide) {
  for (int h = 0; h < TILE_ROWS / W; ++h)
    each_column<NIBBLES, S>(tile, tiling, columns, h, [&](int64_t c, int, vf weight) {
      store(wide + c * TILE_ROWS + h * W, weight);
    });
}

// The kernels of one format and mode, by the number of rows less one.
struct Dots {
  Dot by_rows[PANEL];
  void (*widen)(const uint8_t*, const Tiling&, int64_t, float*);  // null for floats and integers
};

template <bool NIBBLES, Scales S>
struct Integers {
  template <int R>
  static constexpr Dot dot = dot_integers<NIBBLES, S, R>;
  static constexpr auto widen = nullptr;
};
template <bool NIBBLES, Scales S>
struct Widened {
  template <int R>
  static constexpr Dot dot = dot_widened<NIBBLES, S, R>;
  static constexpr auto widen = widen_tile<NIBBLES, S>;
};
template <class T>
struct Floats {
  template <int R>
  static constexpr Dot dot = dot_floats<T, R>;
  static constexpr auto widen = nullptr;
};

template <class Kind>
Dots dots_of() {
#if defined(__AVX512F__)
  return {{Kind::template dot<1>, Kind::template dot<2>, Kind::template dot<3>,
           Kind::template dot<4>, Kind::template dot<5>, Kind::template dot<6>,
           Kind::template dot<7>, Kind::template dot<8>, Kind::template dot<9>,
           Kind::template dot<10>, Kind::template dot<11>, Kind::template dot<12>},
          Kind::widen};
#else
  return {{Kind::template dot<1>, Kind::template dot<2>, Kind::template dot<3>,
           Kind::template dot<4>},
          Kind::widen};
#endif
}

template <template <bool, Scales> class Kind>
Dots quant_dots(int32_t format) {
  switch (format) {
    case FW_Q4_0: return dots_of<Kind<true, Scales::D>>();
    case FW_Q4_1: return dots_of<Kind<true, Scales::DM>>();
    case FW_Q8_0: return dots_of<Kind<false, Scales::D>>();
    case FW_Q4_K: return dots_of<Kind<true, Scales::SUPER>>();
    case FW_Q5_K: return dots_of<Kind<false, Scales::SUPER>>();
    default: return dots_of<Kind<false, Scales::SIXTH>>();
  }
}

inline Dots dots_for(const Segment& s) {
  switch (s.format) {
    case FW_F32: return dots_of<Floats<float>>();
    case FW_F16: return dots_of<Floats<Half>>();
    case FW_BF16: return dots_of<Floats<Bfloat>>();
    default: return s.integer ? quant_dots<Integers>(s.format) : quant_dots<Widened>(s.format);
  }
}

}  // namespace
}  // namespace FW_ISA
}  // namespace flatwake

#endif
