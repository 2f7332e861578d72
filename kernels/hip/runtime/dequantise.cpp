#include "runtime/dequantise.h"

#include <cstring>

#include "flatwake/ops.h"
#include "runtime/half.h"

namespace fw::runtime {

Format format_of(int dtype) {
  switch (dtype) {
    case FW_F32: return {1, 4};
    case FW_F16:
    case FW_BF16: return {1, 2};
    case FW_Q4_0: return {32, 18};
    case FW_Q4_1: return {32, 20};
    case FW_Q8_0: return {32, 34};
    case FW_Q4_K: return {256, 144};
    case FW_Q5_K: return {256, 176};
    case FW_Q6_K: return {256, 210};
    default: return {0, 0};
  }
}

namespace {

float half_at(const uint8_t* from) {
  uint16_t bits;
  std::memcpy(&bits, from, sizeof bits);
  return half_to_float(bits);
}

void q4_0(const uint8_t* block, float* y) {
  const float d = half_at(block);
  for (int i = 0; i < 16; i++) {
    y[i] = d * (float)((block[2 + i] & 15) - 8);
    y[16 + i] = d * (float)((block[2 + i] >> 4) - 8);
  }
}

void q4_1(const uint8_t* block, float* y) {
  const float d = half_at(block), m = half_at(block + 2);
  for (int i = 0; i < 16; i++) {
    y[i] = d * (float)(block[4 + i] & 15) + m;
    y[16 + i] = d * (float)(block[4 + i] >> 4) + m;
  }
}

void q8_0(const uint8_t* block, float* y) {
  const float d = half_at(block);
  for (int i = 0; i < 32; i++) y[i] = d * (float)(int8_t)block[2 + i];
}

// The 6-bit scale and minimum of sub-block i, from 12 bytes.
void k_scale(const uint8_t* packed, int i, int& scale, int& minimum) {
  if (i < 4) {
    scale = packed[i] & 63;
    minimum = packed[i + 4] & 63;
  } else {
    scale = (packed[i + 4] & 15) | (packed[i - 4] >> 6 << 4);
    minimum = (packed[i + 4] >> 4) | (packed[i] >> 6 << 4);
  }
}

// Q4_K, and Q5_K with its fifth bits. Each 32 bytes hold a sub-block's low nibbles, the next's high.
void k_nibbles(const uint8_t* block, const uint8_t* fifth, const uint8_t* packed, float* y) {
  const float d = half_at(block), dmin = half_at(block + 2);
  for (int i = 0; i < 8; i++) {
    int scale, minimum;
    k_scale(block + 4, i, scale, minimum);
    const float factor = d * (float)scale, offset = dmin * (float)minimum;
    for (int j = 0; j < 32; j++) {
      int quant = packed[i / 2 * 32 + j] >> (i % 2 * 4) & 15;
      if (fifth) quant |= (fifth[j] >> i & 1) << 4;
      y[i * 32 + j] = factor * (float)quant - offset;
    }
  }
}

void q6_k(const uint8_t* block, float* y) {
  const float d = half_at(block + 208);
  for (int i = 0; i < 256; i++) {
    const int half = i / 128, quarter = i % 128 / 32, j = i % 32;
    const int low = block[half * 64 + quarter % 2 * 32 + j] >> (quarter / 2 * 4) & 15;
    const int high = block[128 + half * 32 + j] >> (quarter * 2) & 3;
    const auto scale = (int8_t)block[192 + i / 16];
    y[i] = d * (float)scale * (float)((low | high << 4) - 32);
  }
}

}  // namespace

void widen_row(int dtype, const uint8_t* row, int64_t columns, float* values) {
  const Format format = format_of(dtype);
  for (int64_t i = 0; i < columns; i += format.block, row += format.bytes, values += format.block)
    switch (dtype) {
      case FW_F32: std::memcpy(values, row, 4); break;
      case FW_F16: *values = half_at(row); break;
      case FW_BF16: {
        uint16_t bits;
        std::memcpy(&bits, row, sizeof bits);
        const uint32_t wide = (uint32_t)bits << 16;
        std::memcpy(values, &wide, sizeof wide);
        break;
      }
      case FW_Q4_0: q4_0(row, values); break;
      case FW_Q4_1: q4_1(row, values); break;
      case FW_Q8_0: q8_0(row, values); break;
      case FW_Q4_K: k_nibbles(row, nullptr, row + 16, values); break;
      case FW_Q5_K: k_nibbles(row, row + 16, row + 48, values); break;
      case FW_Q6_K: q6_k(row, values); break;
    }
}

}  // namespace fw::runtime
