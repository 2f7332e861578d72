// A wave's matrix unit: 16 weight rows times TOKENS tokens over 32 columns.
//
// Where the weight rows are the unit's 16-row side, 1 to TOKENS tokens cost the same instructions.
// Columns are permuted alike on both sides, so that every load is 16 consecutive bytes of a row:
// load i of a lane is columns offset(i) … + 7 of weight row row(i), or of token token(i). Sum i of
// a lane belongs to sum_row(i) and sum_token(i).
//
// Weights of a softmax are such sums, and the tokens of the next product. `turn` makes them so: pair g
// holds the sums of rows 16 g … 16 g + 15; element j of its 16-byte piece w is row position(w, j).
// Sums i and i + SLOTS of a lane are of one token; lanes that are TOKEN_LANES apart share theirs.
//
// FW_MATRIX is defined where there is such a unit, for 16-bit weights and tokens of one type.
#pragma once

#include "portable.h"

namespace fw {

// Two floats as 16-bit elements side by side: rounded, or the bfloat16 numbers they are CUT to.
template <typename T, bool CUT>
DEVICE uint32_t pack_two(float low, float high) {
  return CUT ? as_uint(low) >> 16 | (as_uint(high) & 0xffff0000u) : pack<T>(low, high);
}
// Element i of each of eight pieces.
DEVICE Words across_eight(const Words (&pieces)[8], int i) {
  uint32_t words[4];
  FW_UNROLL
  for (int m = 0; m < 4; m++) {
    const uint32_t even = word(pieces[2 * m], i / 2), odd = word(pieces[2 * m + 1], i / 2);
    words[m] = i % 2 ? even >> 16 | (odd & 0xffff0000u) : (even & 0xffffu) | odd << 16;
  }
  return make_words(words[0], words[1], words[2], words[3]);
}

constexpr int MATRIX_ROWS = 16, MATRIX_COLUMNS = 32;

#if defined(FW_MMA) || (defined(FW_EMULATION) && FW_WAVE == 32)
#define FW_MATRIX 1

// 8 × 8 elements turned: a lane gives two of row lane / 4 and takes two of that column.
#if defined(FW_EMULATION)
inline uint32_t turn_eight(uint32_t two) {
  const int column = lane<32>() / 4, from = lane<32>() % 4 * 8 + column / 2;
  const uint32_t even = (uint32_t)shuffle<32>((int)two, from);
  const uint32_t odd = (uint32_t)shuffle<32>((int)two, from + 4);
  return column % 2 ? even >> 16 | (odd & 0xffff0000u) : (even & 0xffffu) | odd << 16;
}
#else
DEVICE uint32_t turn_eight(uint32_t two) {
  uint32_t turned;
  asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(turned) : "r"(two));
  return turned;
}
#endif

// NVIDIA's m16n8k16, twice.
template <int W, typename T>
struct Matrix {
  static constexpr int TOKENS = 8, ROW_LOADS = 2, TOKEN_LOADS = 1, SUMS = 4;
  static constexpr int SLOTS = 2, TOKEN_LANES = 4;
  DEVICE static int row(int i) { return lane<W>() / 4 + 8 * i; }
  DEVICE static int token(int) { return lane<W>() / 4; }
  DEVICE static int row_offset(int) { return lane<W>() % 4 * 8; }
  DEVICE static int token_offset(int) { return lane<W>() % 4 * 8; }
  DEVICE static int sum_row(int i) { return lane<W>() / 4 + i / 2 * 8; }
  DEVICE static int sum_token(int i) { return lane<W>() % 4 * 2 + i % 2; }
  // The sum eight rows on from sum i, in lanes whose sum i is of the first eight rows.
  DEVICE static float eight_rows_on(const float (&sums)[SUMS], int i) { return sums[(i + 2) % SUMS]; }
  DEVICE static int position(int w, int j) { return j / 2 * 8 + 2 * w + j % 2; }
  template <bool CUT = false>
  DEVICE static void turn(const float (&sums)[2][SUMS], Words (&b)[TOKEN_LOADS]) {
    uint32_t words[4];
    FW_UNROLL
    for (int m = 0; m < 4; m++) {
      const float* of = sums[m / 2] + m % 2 * 2;
      words[m] = turn_eight(pack_two<T, CUT>(of[0], of[1]));
    }
    b[0] = make_words(words[0], words[1], words[2], words[3]);
  }
  DEVICE static void multiply(const Words (&a)[2], const Words (&b)[1], float (&sums)[4]);
};

#elif defined(FW_MFMA) || (defined(FW_EMULATION) && FW_WAVE == 64)
#define FW_MATRIX 1

// AMD's MFMA 16x16x16, twice.
template <int W, typename T>
struct Matrix {
  static constexpr int TOKENS = 16, ROW_LOADS = 1, TOKEN_LOADS = 1, SUMS = 4;
  static constexpr int SLOTS = 1, TOKEN_LANES = 16;
  DEVICE static int row(int) { return lane<W>() % 16; }
  DEVICE static int token(int) { return lane<W>() % 16; }
  DEVICE static int row_offset(int) { return lane<W>() / 16 * 8; }
  DEVICE static int token_offset(int) { return lane<W>() / 16 * 8; }
  DEVICE static int sum_row(int i) { return lane<W>() / 16 * 4 + i; }
  DEVICE static int sum_token(int) { return lane<W>() % 16; }
  // The sum eight rows on from sum i, in lanes whose sum i is of the first eight rows.
  DEVICE static float eight_rows_on(const float (&sums)[SUMS], int i) {
    return shuffle<W>(sums[i], (lane<W>() + 32) % W);
  }
  DEVICE static int position(int w, int j) { return j / 4 * 16 + 4 * w + j % 4; }
  template <bool CUT = false>
  DEVICE static void turn(const float (&sums)[2][SUMS], Words (&b)[TOKEN_LOADS]) {
    b[0] = make_words(pack_two<T, CUT>(sums[0][0], sums[0][1]), pack_two<T, CUT>(sums[0][2], sums[0][3]),
                      pack_two<T, CUT>(sums[1][0], sums[1][1]), pack_two<T, CUT>(sums[1][2], sums[1][3]));
  }
  DEVICE static void multiply(const Words (&a)[1], const Words (&b)[1], float (&sums)[4]);
};

#elif defined(FW_WMMA)
#define FW_MATRIX 1

// AMD's WMMA 16x16x16, twice. On gfx11 both halves of the wave hold all columns.
template <int W, typename T>
struct Matrix {
  static constexpr int TOKENS = 16, ROW_LOADS = FW_WMMA == 11 ? 4 : 2, TOKEN_LOADS = ROW_LOADS;
  static constexpr int SUMS = 8, SLOTS = 1, TOKEN_LANES = 16;
  DEVICE static int row(int) { return lane<W>() % 16; }
  DEVICE static int token(int) { return lane<W>() % 16; }
  DEVICE static int row_offset(int i) {
    return FW_WMMA == 11 ? 8 * i : lane<W>() / 16 * 8 + 16 * i;
  }
  DEVICE static int token_offset(int i) { return row_offset(i); }
  DEVICE static int sum_row(int i) {
    return FW_WMMA == 11 ? 2 * i + lane<W>() / 16 : lane<W>() / 16 * 8 + i;
  }
  DEVICE static int sum_token(int) { return lane<W>() % 16; }
  // The sum eight rows on from sum i, in lanes whose sum i is of the first eight rows.
  DEVICE static float eight_rows_on(const float (&sums)[SUMS], int i) {
    return FW_WMMA == 11 ? sums[(i + 4) % SUMS] : shuffle<W>(sums[i], (lane<W>() + 16) % W);
  }
  DEVICE static int position(int w, int j) { return 8 * w + j; }
  template <bool CUT = false>
  DEVICE static void turn(const float (&sums)[2][SUMS], Words (&b)[TOKEN_LOADS]) {
    FW_UNROLL
    for (int i = 0; i < TOKEN_LOADS; i++) {
      uint32_t words[4];
      FW_UNROLL
      for (int m = 0; m < 4; m++) {
        if (FW_WMMA == 11) {  // even rows are in the lower half of the wave, odd ones in the upper
          const float own = sums[i / 2][i % 2 * 4 + m], other = shuffle<W>(own, lane<W>() ^ 16);
          words[m] = lane<W>() < 16 ? pack_two<T, CUT>(own, other) : pack_two<T, CUT>(other, own);
        } else {
          words[m] = pack_two<T, CUT>(sums[i % 2][2 * m], sums[i % 2][2 * m + 1]);
        }
      }
      b[i] = make_words(words[0], words[1], words[2], words[3]);
    }
  }
  DEVICE static void multiply(const Words (&a)[ROW_LOADS], const Words (&b)[ROW_LOADS],
                              float (&sums)[8]);
};

#endif

#if defined(FW_EMULATION)

// What the unit computes, from what every lane holds.
template <int W, typename T>
void Matrix<W, T>::multiply(const Words (&a)[ROW_LOADS], const Words (&b)[TOKEN_LOADS],
                            float (&sums)[SUMS]) {
  struct Operands {
    const Words *a, *b;
  };
  const Operands mine{a, b};
  const uint64_t* wave = emulation::exchange(reinterpret_cast<uint64_t>(&mine));
  const auto at = [&](const Words* words, int i) {
    const uint32_t pair = word(words[0], i / 2);
    return widen(T{(uint16_t)(i % 2 ? pair >> 16 : pair & 0xffff)});
  };
  // The lane that holds a row's (or token's) columns from `offset` on, by the layouts above.
  constexpr int GROUPS = 4;
  const auto holder = [](int row, int group) {
    return W == 32 ? row % 8 * 4 + group : group * 16 + row;
  };
  for (int i = 0; i < SUMS; i++) {
    float sum = sums[i];
    for (int half = 0; half < 2; half++)
      for (int group = 0; group < GROUPS; group++)
        for (int j = 4 * half; j < 4 * half + 4; j++) {
          const auto* left = reinterpret_cast<const Operands*>(wave[holder(sum_row(i), group)]);
          const auto* right = reinterpret_cast<const Operands*>(wave[holder(sum_token(i), group)]);
          sum = fma(at(left->a + (W == 32 ? sum_row(i) / 8 : 0), j), at(right->b, j), sum);
        }
    sums[i] = sum;
  }
  emulation::exchange(0);  // until every lane has read the others' operands
}

#elif defined(FW_MMA)

template <int W, typename T>
DEVICE void Matrix<W, T>::multiply(const Words (&a)[2], const Words (&b)[1], float (&sums)[4]) {
#define FW_MMA_STEP(type, a0, a1, a2, a3, b0, b1)                                             \
  asm("mma.sync.aligned.m16n8k16.row.col.f32." type "." type                                  \
      ".f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"                            \
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])                            \
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1))
  if constexpr (IsHalf<T>::value) {
    FW_MMA_STEP("f16", a[0].x, a[1].x, a[0].y, a[1].y, b[0].x, b[0].y);
    FW_MMA_STEP("f16", a[0].z, a[1].z, a[0].w, a[1].w, b[0].z, b[0].w);
  } else {
    FW_MMA_STEP("bf16", a[0].x, a[1].x, a[0].y, a[1].y, b[0].x, b[0].y);
    FW_MMA_STEP("bf16", a[0].z, a[1].z, a[0].w, a[1].w, b[0].z, b[0].w);
  }
}

// The unit's own 16 columns, for products that read the next operands while they multiply: of 16 rows
// or 8 tokens, by eight lanes' addresses of 16-byte pieces for each 8 × 8 of them.
struct HalfRows {
  uint32_t words[4];
};
struct HalfTokens {
  uint32_t words[2];
};
DEVICE int half_row() { return lane<32>() % 16; }
DEVICE int half_row_chunk() { return lane<32>() / 16; }
DEVICE int half_token() { return lane<32>() % 8 + lane<32>() / 16 * 8; }
DEVICE int half_token_chunk() { return lane<32>() / 8 % 2; }
#define FW_READ_MATRICES(a, b, c, d, from)                                                        \
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"                    \
               : "=r"(a), "=r"(b), "=r"(c), "=r"(d)                                               \
               : "r"((uint32_t)__cvta_generic_to_shared(from)))
DEVICE void read_half_rows(HalfRows& rows, const Words* from) {
  FW_READ_MATRICES(rows.words[0], rows.words[1], rows.words[2], rows.words[3], from);
}
DEVICE void read_half_tokens(HalfTokens& first, HalfTokens& second, const Words* from) {
  FW_READ_MATRICES(first.words[0], first.words[1], second.words[0], second.words[1], from);
}
template <typename T>
DEVICE void multiply_half(const HalfRows& rows, const HalfTokens& tokens, float (&sums)[4]) {
  const uint32_t(&a)[4] = rows.words, (&b)[2] = tokens.words;
  if constexpr (IsHalf<T>::value) FW_MMA_STEP("f16", a[0], a[1], a[2], a[3], b[0], b[1]);
  else FW_MMA_STEP("bf16", a[0], a[1], a[2], a[3], b[0], b[1]);
}

#elif defined(FW_MFMA)

typedef float Float4 __attribute__((ext_vector_type(4)));
typedef short Short4 __attribute__((ext_vector_type(4)));
typedef short Short8 __attribute__((ext_vector_type(8)));
typedef _Float16 Half4 __attribute__((ext_vector_type(4)));
typedef _Float16 Half8 __attribute__((ext_vector_type(8)));

template <int W, typename T>
DEVICE void Matrix<W, T>::multiply(const Words (&a)[1], const Words (&b)[1], float (&sums)[4]) {
  Float4 c = {sums[0], sums[1], sums[2], sums[3]};
  if constexpr (IsHalf<T>::value) {
    const Half8 x = __builtin_bit_cast(Half8, a[0]), y = __builtin_bit_cast(Half8, b[0]);
    c = __builtin_amdgcn_mfma_f32_16x16x16f16(x.lo, y.lo, c, 0, 0, 0);
    c = __builtin_amdgcn_mfma_f32_16x16x16f16(x.hi, y.hi, c, 0, 0, 0);
  } else {
    const Short8 x = __builtin_bit_cast(Short8, a[0]), y = __builtin_bit_cast(Short8, b[0]);
    c = __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(x.lo, y.lo, c, 0, 0, 0);
    c = __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(x.hi, y.hi, c, 0, 0, 0);
  }
  FW_UNROLL
  for (int i = 0; i < 4; i++) sums[i] = c[i];
}

#elif defined(FW_WMMA)

typedef float Float8 __attribute__((ext_vector_type(8)));
typedef short Short8 __attribute__((ext_vector_type(8)));
typedef short Short16 __attribute__((ext_vector_type(16)));
typedef _Float16 Half8 __attribute__((ext_vector_type(8)));
typedef _Float16 Half16 __attribute__((ext_vector_type(16)));

template <int W, typename T>
DEVICE void Matrix<W, T>::multiply(const Words (&a)[ROW_LOADS], const Words (&b)[ROW_LOADS],
                                   float (&sums)[8]) {
  Float8 c;
  FW_UNROLL
  for (int i = 0; i < 8; i++) c[i] = sums[i];
  FW_UNROLL
  for (int step = 0; step < 2; step++) {
#if FW_WMMA == 11
    struct Pair {
      Words low, high;
    };
    const Pair x{a[2 * step], a[2 * step + 1]}, y{b[2 * step], b[2 * step + 1]};
    if constexpr (IsHalf<T>::value)
      c = __builtin_amdgcn_wmma_f32_16x16x16_f16_w32(__builtin_bit_cast(Half16, x),
                                                     __builtin_bit_cast(Half16, y), c);
    else
      c = __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32(__builtin_bit_cast(Short16, x),
                                                      __builtin_bit_cast(Short16, y), c);
#else
    if constexpr (IsHalf<T>::value)
      c = __builtin_amdgcn_wmma_f32_16x16x16_f16_w32_gfx12(
          __builtin_bit_cast(Half8, a[step]), __builtin_bit_cast(Half8, b[step]), c);
    else
      c = __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32_gfx12(
          __builtin_bit_cast(Short8, a[step]), __builtin_bit_cast(Short8, b[step]), c);
#endif
  }
  FW_UNROLL
  for (int i = 0; i < 8; i++) sums[i] = c[i];
}

#endif

}  // namespace fw
