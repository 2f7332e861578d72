// Vectors of W lanes for the instruction set that this file is compiled for.
//
// Everything here has internal linkage: the linker must never pick one instruction set's copy for
// another's use. Multiplications and additions are fused only where it is written (the compiler
// is told not to), so that every template instance rounds alike.
#ifndef FLATWAKE_CPU_ISA_SIMD_H
#define FLATWAKE_CPU_ISA_SIMD_H

#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "flatwake/ops.h"
#include "number.h"

namespace flatwake {
namespace FW_ISA {
namespace {

#if defined(__AVX512F__)
constexpr int W = 16;
#elif defined(__AVX2__)
constexpr int W = 8;
#else
constexpr int W = 4;
#endif

typedef float vf __attribute__((vector_size(4 * W)));
typedef int32_t vi __attribute__((vector_size(4 * W)));
typedef uint32_t vu __attribute__((vector_size(4 * W)));
typedef uint16_t vh __attribute__((vector_size(2 * W)));

constexpr int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
constexpr int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }
constexpr int64_t round_up(int64_t a, int64_t b) { return (a + b - 1) / b * b; }

template <class V, class T>
inline V bring(const T* from) {
  V value;
  memcpy(&value, from, sizeof value);
  return value;
}

inline vf set(float value) { return value - vf{}; }
inline vi set(int32_t value) { return value - vi{}; }

inline vf fma(vf a, vf b, vf c) {
#if defined(__AVX512F__)
  return _mm512_fmadd_ps(a, b, c);
#elif defined(__AVX2__)
  return _mm256_fmadd_ps(a, b, c);
#else
  return a * b + c;
#endif
}

inline vf larger(vf a, vf b) {
#if defined(__AVX512F__)
  return _mm512_max_ps(a, b);
#elif defined(__AVX2__)
  return _mm256_max_ps(a, b);
#else
  return a > b ? a : b;
#endif
}

inline vf magnitude(vf a) { return (vf)((vu)a & 0x7fffffffu); }
inline vf to_float(vi a) { return __builtin_convertvector(a, vf); }

// Whether any lane of a comparison holds.
inline bool any(vi a) {
#if defined(__AVX512F__)
  return _mm512_test_epi32_mask((__m512i)a, (__m512i)a) != 0;
#elif defined(__AVX2__)
  return !_mm256_testz_si256((__m256i)a, (__m256i)a);
#else
  for (int i = 0; i < W; ++i)
    if (a[i]) return true;
  return false;
#endif
}

// Rounded half to even; |a| below 2^22.
inline vi to_int(vf a) {
#if defined(__AVX512F__)
  return (vi)_mm512_cvtps_epi32(a);
#elif defined(__AVX2__)
  return (vi)_mm256_cvtps_epi32(a);
#else
  const vf magic = set(12582912.0f);  // 1.5 * 2^23: the sum's last bit is worth one
  return (vi)(a + magic) - (vi)magic;
#endif
}

// Lane i is element from[i] of a's lanes, then b's.
inline vf pick(vf a, vf b, vi from) {
#if defined(__clang__)
  vf value;
  for (int i = 0; i < W; ++i) value[i] = from[i] < W ? a[from[i]] : b[from[i] - W];
  return value;
#else
  return __builtin_shuffle(a, b, from);
#endif
}

// In the order of a fixed tree: lanes W / 2 apart, then W / 4, …
inline float sum(vf a) {
#if defined(__AVX512F__)
  const __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
#elif defined(__AVX2__)
  const __m256 eight = a;
#endif
#if defined(__AVX2__)
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
#else
  float lanes[W];
  memcpy(lanes, &a, sizeof lanes);
  for (int step = W / 2; step; step /= 2)
    for (int i = 0; i < step; ++i) lanes[i] += lanes[i + step];
  return lanes[0];
#endif
}

// Which lanes of two rows, `STEP` apart, go where. Constants: made at run time they would cost more
// than the rows' own work.
template <int STEP>
struct Lanes {
  alignas(4 * W) int32_t own[W], other[W], low[W], high[W];
  constexpr Lanes() : own(), other(), low(), high() {
    for (int i = 0; i < W; ++i) {
      const bool second = i & STEP;
      own[i] = second ? W + i : i;
      other[i] = second ? W + i - STEP : i + STEP;
      low[i] = second ? W + i - STEP : i;
      high[i] = second ? W + i : i + STEP;
    }
  }
};
template <int STEP>
constexpr Lanes<STEP> LANES{};

template <int STEP>
inline void fold(vf (&rows)[W]) {
  if constexpr (STEP > 0) {
    const vi own = bring<vi>(LANES<STEP>.own), other = bring<vi>(LANES<STEP>.other);
#pragma GCC unroll 8
    for (int j = 0; j < STEP; ++j)
      rows[j] = pick(rows[j], rows[j + STEP], own) + pick(rows[j], rows[j + STEP], other);
    fold<STEP / 2>(rows);
  }
}

// Lane i of the result is the sum of rows[i]'s lanes, by the same tree for every i. Overwrites rows.
inline vf sum_each(vf (&rows)[W]) {
  fold<W / 2>(rows);
  return rows[0];
}

template <int STEP>
inline void exchange(vf (&rows)[W]) {
  if constexpr (STEP > 0) {
    const vi low = bring<vi>(LANES<STEP>.low), high = bring<vi>(LANES<STEP>.high);
#pragma GCC unroll 16
    for (int j = 0; j < W; ++j) {
      if (j & STEP) continue;
      const vf a = rows[j], b = rows[j + STEP];
      rows[j] = pick(a, b, low);
      rows[j + STEP] = pick(a, b, high);
    }
    exchange<STEP / 2>(rows);
  }
}

// rows[i][j] becomes rows[j][i].
inline void transpose(vf (&rows)[W]) { exchange<W / 2>(rows); }

inline float largest(vf a) {
#if defined(__AVX512F__)
  return _mm512_reduce_max_ps(a);
#else
  float value = a[0];
  for (int i = 1; i < W; ++i) value = a[i] > value ? a[i] : value;
  return value;
#endif
}

inline int32_t sum(vi a) {
#if defined(__AVX512F__)
  return _mm512_reduce_add_epi32((__m512i)a);
#else
  int32_t value = 0;
  for (int i = 0; i < W; ++i) value += a[i];
  return value;
#endif
}

// Loads and stores, widening and rounding.

inline vf load(const float* from) { return bring<vf>(from); }

inline vf load(const Bfloat* from) {
  return (vf)(__builtin_convertvector(bring<vh>(from), vu) << 16);
}

inline vf load(const Half* from) {
#if defined(__AVX512F__)
  return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i*)from));
#elif defined(__AVX2__)
  return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i*)from));
#else
  vf value{};
  for (int i = 0; i < W; ++i) value[i] = widen(from[i]);
  return value;
#endif
}

inline void store(float* to, vf value) { memcpy(to, &value, sizeof value); }

inline void store(Bfloat* to, vf value) {
  const vu bits = (vu)value;
  const vu rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
  const vi nan = (bits & 0x7fffffffu) > 0x7f800000u;
  const vh narrow = __builtin_convertvector(nan ? vu{} + 0x7fc0 : rounded, vh);
  memcpy(to, &narrow, sizeof narrow);
}

inline void store(Half* to, vf value) {
#if defined(__AVX512F__)
  _mm256_storeu_si256((__m256i*)to, _mm512_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT));
#elif defined(__AVX2__)
  _mm_storeu_si128((__m128i*)to, _mm256_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT));
#else
  for (int i = 0; i < W; ++i) narrow(value[i], to[i]);
#endif
}

// The first n < W elements; the other lanes are zero.
template <class T>
inline vf load_part(const T* from, int64_t n) {
  T full[W];
  memset(full, 0, sizeof full);
  memcpy(full, from, size_t(n) * sizeof(T));
  return load(full);
}

template <class T>
inline void store_part(T* to, vf value, int64_t n) {
  T full[W];
  store(full, value);
  memcpy(to, full, size_t(n) * sizeof(T));
}

template <class T>
inline vf load_upto(const T* from, int64_t n) {
  return n >= W ? load(from) : load_part(from, n);
}

template <class T>
inline void store_upto(T* to, vf value, int64_t n) {
  if (n >= W)
    store(to, value);
  else
    store_part(to, value, n);
}

// exp to about one unit in the last place: 2^n times a polynomial (Cephes' expf). Far below -87.3 it
// is 0, above 88.7 infinity.
inline vf exponential(vf x) {
#if defined(__AVX512F__)
  // Where either is no number, _mm512_max_ps and _mm512_min_ps give the second.
  const vf clamped = _mm512_min_ps(set(89.0f), _mm512_max_ps(set(-104.0f), x));
  const vf n = _mm512_roundscale_ps(clamped * 1.44269504f, _MM_FROUND_TO_NEAREST_INT);
#else
  const vf low = set(-87.33654f), high = set(88.72283f);
  const vi under = x < low, over = x > high;
  const vf clamped = under ? low : over ? high : x;
  const vf n = to_float(to_int(clamped * 1.44269504f));
#endif
  vf r = fma(n, set(-0.693359375f), clamped);
  r = fma(n, set(2.12194440e-4f), r);
  vf p = set(1.9875691500e-4f);
  p = fma(p, r, set(1.3981999507e-3f));
  p = fma(p, r, set(8.3334519073e-3f));
  p = fma(p, r, set(4.1665795894e-2f));
  p = fma(p, r, set(1.6666665459e-1f));
  p = fma(p, r, set(5.0000001201e-1f));
  p = fma(p, r * r, r) + 1.0f;
#if defined(__AVX512F__)
  return _mm512_scalef_ps(p, n);
#else
  // 2^128 is no float: the largest exponent is applied in two steps.
  const vi whole = to_int(n), half = whole >> 1;
  const vf value = p * (vf)((half + 127) << 23) * (vf)((whole - half + 127) << 23);
  const vf bounded = under ? vf{} : over ? set(__builtin_inff()) : value;
  return x == x ? bounded : x;
#endif
}

inline vf sigmoid(vf x) {
  const vf small = exponential(-magnitude(x));
  return (x >= 0 ? set(1.0f) : small) / (small + 1.0f);
}

inline vf silu(vf x) { return x * sigmoid(x); }

// Call job(T{}) with the element type of an FW_ dtype.
template <class Job>
inline void with_float(int32_t dtype, const Job& job) {
  if (dtype == FW_F32)
    job(float{});
  else if (dtype == FW_F16)
    job(Half{});
  else
    job(Bfloat{});
}

template <class T>
inline T* at(uint64_t address) {
  return reinterpret_cast<T*>(address);
}

// The rows that are real.
inline int64_t live_rows(uint64_t live, int64_t rows) {
  return most(0, least(*at<const int32_t>(live), rows));
}

}  // namespace
}  // namespace FW_ISA
}  // namespace flatwake

#endif
