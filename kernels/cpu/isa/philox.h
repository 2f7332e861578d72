// Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011).
#ifndef FLATWAKE_CPU_ISA_PHILOX_H
#define FLATWAKE_CPU_ISA_PHILOX_H

#include <cstdint>

namespace flatwake {
namespace FW_ISA {
namespace {

// Four words of key `seed` (its low word first) and counter (x, y, 0, 0).
inline void philox(uint64_t seed, uint32_t x, uint32_t y, uint32_t (&words)[4]) {
  uint32_t key0 = uint32_t(seed), key1 = uint32_t(seed >> 32);
  uint32_t a = x, b = y, c = 0, d = 0;
  for (int round = 0; round < 10; ++round) {
    const uint64_t first = uint64_t(a) * 0xD2511F53u, second = uint64_t(c) * 0xCD9E8D57u;
    a = uint32_t(second >> 32) ^ b ^ key0;
    b = uint32_t(second);
    c = uint32_t(first >> 32) ^ d ^ key1;
    d = uint32_t(first);
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
