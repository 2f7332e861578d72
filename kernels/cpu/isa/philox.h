// Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011).
#ifndef FLATWAKE_CPU_ISA_PHILOX_H
#define FLATWAKE_CPU_ISA_PHILOX_H

#include "simd.h"

namespace flatwake {
namespace FW_ISA {
namespace {

constexpr uint32_t PHILOX_FIRST = 0xD2511F53u, PHILOX_SECOND = 0xCD9E8D57u;

inline void multiply_wide(uint32_t a, uint32_t factor, uint32_t& high, uint32_t& low) {
  const uint64_t product = uint64_t(a) * factor;
  high = uint32_t(product >> 32);
  low = uint32_t(product);
}

inline void multiply_wide(vu a, uint32_t factor, vu& high, vu& low) {
  low = a * factor;
#if defined(__AVX512F__)
  const __m512i f = _mm512_set1_epi64(factor), x = (__m512i)a;
  const __m512i even = _mm512_srli_epi64(_mm512_mul_epu32(x, f), 32);
  const __m512i odd = _mm512_mul_epu32(_mm512_srli_epi64(x, 32), f);
  high = (vu)_mm512_mask_blend_epi32(0xaaaa, even, odd);
#elif defined(__AVX2__)
  const __m256i f = _mm256_set1_epi64x(factor), x = (__m256i)a;
  const __m256i even = _mm256_srli_epi64(_mm256_mul_epu32(x, f), 32);
  const __m256i odd = _mm256_mul_epu32(_mm256_srli_epi64(x, 32), f);
  high = (vu)_mm256_blend_epi32(even, odd, 0xaa);
#else
  for (int i = 0; i < W; ++i) high[i] = uint32_t(uint64_t(a[i]) * factor >> 32);
#endif
}

// Four words of key `seed` (its low word first) and counter (x, y, 0, 0): of one x, or of a vector.
template <class Word>
inline void philox(uint64_t seed, Word x, uint32_t y, Word (&words)[4]) {
  uint32_t key0 = uint32_t(seed), key1 = uint32_t(seed >> 32);
  Word a = x, b = Word{} + y, c{}, d{};
  for (int round = 0; round < 10; ++round) {
    Word first_high, first_low, second_high, second_low;
    multiply_wide(a, PHILOX_FIRST, first_high, first_low);
    multiply_wide(c, PHILOX_SECOND, second_high, second_low);
    a = second_high ^ b ^ key0;
    b = second_low;
    c = first_high ^ d ^ key1;
    d = first_low;
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  words[0] = a;
  words[1] = b;
  words[2] = c;
  words[3] = d;
}

}  // namespace
}  // namespace FW_ISA
}  // namespace flatwake

#endif
