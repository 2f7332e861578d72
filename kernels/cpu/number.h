// 16-bit floats, one at a time. Rounded half to even; vectors are in isa/simd.h.
#ifndef FLATWAKE_CPU_NUMBER_H
#define FLATWAKE_CPU_NUMBER_H

#include <cstdint>
#include <cstring>

namespace flatwake {

struct Half {
  uint16_t bits;
};
struct Bfloat {
  uint16_t bits;
};

// Internal linkage: these are compiled once for each instruction set.
static inline float from_bits(uint32_t bits) {
  float value;
  memcpy(&value, &bits, 4);
  return value;
}

static inline uint32_t to_bits(float value) {
  uint32_t bits;
  memcpy(&bits, &value, 4);
  return bits;
}

static inline float widen(float value) { return value; }
static inline float widen(Bfloat value) { return from_bits(uint32_t(value.bits) << 16); }

static inline float widen(Half value) {
  const uint32_t sign = uint32_t(value.bits & 0x8000) << 16;
  const uint32_t rest = value.bits & 0x7fff;
  if (rest >= 0x7c00) return from_bits(sign | 0x7f800000 | (rest & 0x3ff) << 13);
  // The exponent is rebased by a multiplication, which also makes subnormals normal.
  return from_bits(sign | to_bits(from_bits(rest << 13) * 0x1p112f));
}

static inline void narrow(float value, float& to) { to = value; }

static inline void narrow(float value, Bfloat& to) {
  const uint32_t bits = to_bits(value);
  const bool nan = (bits & 0x7fffffff) > 0x7f800000;
  to.bits = nan ? 0x7fc0 : uint16_t((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static inline void narrow(float value, Half& to) {
  const uint32_t bits = to_bits(value);
  const uint16_t sign = uint16_t(bits >> 16 & 0x8000);
  const uint32_t size = bits & 0x7fffffff;
  if (size > 0x7f800000) {
    to.bits = sign | 0x7e00;
  } else if (size >= 0x477ff000) {
    to.bits = sign | 0x7c00;
  } else if (size < 0x38800000) {
    // Adding one half puts the subnormal's bits at the foot of the sum, rounded.
    to.bits = sign | uint16_t(to_bits(from_bits(size) + 0.5f) - to_bits(0.5f));
  } else {
    to.bits = sign | uint16_t((size - 0x38000000 + 0xfff + (size >> 13 & 1)) >> 13);
  }
}

}  // namespace flatwake

#endif
