#include "runtime/half.h"

#include <cmath>
#include <cstring>

namespace fw {

float half_to_float(uint16_t bits) {
  const int exponent = bits >> 10 & 31, fraction = bits & 1023;
  float value;
  if (exponent == 31) value = fraction ? NAN : INFINITY;
  else if (exponent == 0) value = std::ldexp((float)fraction, -24);
  else value = std::ldexp((float)(fraction | 1024), exponent - 25);
  return bits & 0x8000 ? -value : value;
}

uint16_t float_to_half(float value) {  // half to even
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  const uint16_t sign = bits >> 16 & 0x8000;
  const uint32_t size = bits & 0x7fffffff;
  if (size > 0x7f800000) return sign | 0x7e00;
  if (size >= 0x477ff000) return sign | 0x7c00;  // rounds beyond 65504
  if (size < 0x38800000)  // a multiple of 2^-24
    return sign | (uint16_t)std::nearbyint(std::fabs(value) * 16777216.0f);
  const uint32_t rounded = size + 0xfff + (size >> 13 & 1);
  return sign | (uint16_t)((rounded >> 13) - (112 << 10));
}

uint16_t float_to_bf16(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  if ((bits & 0x7fffffff) > 0x7f800000) return (uint16_t)(bits >> 16 | 0x40);  // NaN stays NaN
  return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

}  // namespace fw
