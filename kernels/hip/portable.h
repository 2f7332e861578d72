// What a kernel may use, the same on AMD (clang without ROCm's headers), under nvcc and emulated.
//
// Wave functions take the number of lanes as a template parameter; FW_WAVE is the device's, for
// entry points alone. Contraction is off everywhere, so that sums are what the source says:
// multiply-adds are written as fma(). LDS is declared by FW_LDS and used by index, so that the
// emulation can watch every access; FW_LDS_AS is an array's memory as elements of another type. A
// kernel's one FW_LARGE_LDS may exceed 48 KiB, if FW_KERNEL_LARGE_LDS says how many bytes it has.
#pragma once

#include "flatwake/ops.h"

#if defined(FW_EMULATION)
#include "emulation/device.h"
#elif defined(__CUDACC__)
#include "portable_cuda.h"
#elif defined(__HIP__)
#include "portable_amd.h"
#else
#error "kernels are compiled by clang for AMD, by nvcc, or with FW_EMULATION"
#endif

namespace fw {

struct f16 {
  uint16_t bits;
};
struct bf16 {
  uint16_t bits;
};

template <typename T>
struct IsHalf {
  static constexpr bool value = false;
};
template <>
struct IsHalf<f16> {
  static constexpr bool value = true;
};

DEVICE float widen(float value) { return value; }
DEVICE float widen(f16 value) { return half_to_float(value.bits); }
DEVICE float widen(bf16 value) { return as_float((uint32_t)value.bits << 16); }

template <typename T>
DEVICE T narrow(float value);
template <>
DEVICE float narrow<float>(float value) {
  return value;
}
template <>
DEVICE f16 narrow<f16>(float value) {
  return f16{float_to_half(value)};
}
template <>
DEVICE bf16 narrow<bf16>(float value) {  // half to even; NaN stays NaN
  return bf16{float_to_bf16(value)};
}

DEVICE int least(int a, int b) { return a < b ? a : b; }
DEVICE int most(int a, int b) { return a > b ? a : b; }

// Device memory at an address of a parameter struct.
template <typename T>
DEVICE const T* in(uint64_t address) {
  return global_pointer<const T>(address);
}
template <typename T>
DEVICE T* out(uint64_t address) {
  return global_pointer<T>(address);
}

// Element i of an array whose type is known at run time alone.
DEVICE float load_as(uint64_t address, int dtype, size_t i) {
  if (dtype == FW_F32) return in<float>(address)[i];
  if (dtype == FW_F16) return widen(in<f16>(address)[i]);
  return widen(in<bf16>(address)[i]);
}
DEVICE void store_as(uint64_t address, int dtype, size_t i, float value) {
  if (dtype == FW_F32) out<float>(address)[i] = value;
  else if (dtype == FW_F16) out<f16>(address)[i] = narrow<f16>(value);
  else out<bf16>(address)[i] = narrow<bf16>(value);
}
// What reading it back would give.
DEVICE float rounded(int dtype, float value) {
  if (dtype == FW_F32) return value;
  return dtype == FW_F16 ? widen(narrow<f16>(value)) : widen(narrow<bf16>(value));
}

// Four floats as 16 bytes.
DEVICE float element(const Words& piece, int i) { return as_float(word(piece, i)); }
DEVICE Words floats(float a, float b, float c, float d) {
  return make_words(as_uint(a), as_uint(b), as_uint(c), as_uint(d));
}

// Eight consecutive elements, as they lie: 16 bytes of a 16-bit type, 32 of float.
template <typename T>
struct Eight {
  Words words;
  DEVICE float get(int i) const {
    uint32_t pair = word(words, i / 2);
    return widen(T{(uint16_t)(i % 2 ? pair >> 16 : pair & 0xffff)});
  }
};
template <>
struct Eight<bf16> {
  Words words;
  DEVICE float get(int i) const {
    uint32_t pair = word(words, i / 2);
    return as_float(i % 2 ? pair & 0xffff0000u : pair << 16);
  }
};
template <>
struct Eight<float> {
  Words words[2];
  DEVICE float get(int i) const { return as_float(word(words[i / 4], i % 4)); }
};

template <typename T>
DEVICE Eight<T> load8(const T* from) {  // aligned to 16 bytes
  return Eight<T>{load_words(from)};
}
template <>
DEVICE Eight<float> load8<float>(const float* from) {
  return Eight<float>{{load_words(from), load_words(from + 4)}};
}
// Two 16-bit elements side by side.
template <typename T>
DEVICE uint32_t pack(float low, float high) {
  return (uint32_t)narrow<T>(low).bits | (uint32_t)narrow<T>(high).bits << 16;
}
template <typename T>
DEVICE void store8(T* to, const float (&v)[8]) {  // aligned to 16 bytes
  store_words(to, make_words(pack<T>(v[0], v[1]), pack<T>(v[2], v[3]), pack<T>(v[4], v[5]),
                             pack<T>(v[6], v[7])));
}
template <>
DEVICE void store8<float>(float* to, const float (&v)[8]) {
  store_words(to, floats(v[0], v[1], v[2], v[3]));
  store_words(to + 4, floats(v[4], v[5], v[6], v[7]));
}
// For what is read once a step: it need not stay in the caches.
template <typename T>
DEVICE Eight<T> stream8(const T* from) {
  return Eight<T>{stream_words(from)};
}
template <>
DEVICE Eight<float> stream8<float>(const float* from) {
  return Eight<float>{{stream_words(from), stream_words(from + 4)}};
}

template <typename T>
DEVICE Eight<T> zero8() {
  return Eight<T>{no_words()};
}
template <>
DEVICE Eight<float> zero8<float>() {
  return Eight<float>{{no_words(), no_words()}};
}

// Sums over aligned groups of L lanes of a wave of W; every lane of a group gets the sum.
template <int W, int L>
DEVICE float group_sum(float value) {
  return butterfly<W, L, false>(value);
}
template <int W>
DEVICE float wave_sum(float value) {
  return butterfly<W, W, false>(value);
}
template <int W>
DEVICE float wave_max(float value) {
  return butterfly<W, W, true>(value);
}

// The same over a block; `scratch` holds a float a wave. Each thread gets the result.
template <int W, typename S>
DEVICE float block_sum(float value, S& scratch) {
  value = wave_sum<W>(value);
  if (lane<W>() == 0) scratch[thread() / W] = value;
  barrier();
  float total = 0;
  for (int i = 0; i < threads() / W; i++) total += scratch[i];
  barrier();
  return total;
}
template <int W, typename S>
DEVICE float block_max(float value, S& scratch) {
  value = wave_max<W>(value);
  if (lane<W>() == 0) scratch[thread() / W] = value;
  barrier();
  float largest = scratch[0];
  for (int i = 1; i < threads() / W; i++) largest = fmax(largest, scratch[i]);
  barrier();
  return largest;
}

DEVICE float sigmoid(float x) {
  float small = exp(-fabs(x));
  return (x >= 0 ? 1.0f : small) / (1.0f + small);
}
DEVICE float silu(float x) { return x * sigmoid(x); }
// log(1 + exp(x)); the series where log(1 + small) would lose its digits.
DEVICE float softplus(float x) {
  float small = exp(-fabs(x));
  float tail = small < 0.01f ? small * (1.0f - small * (0.5f - small * (1.0f / 3))) : log(1.0f + small);
  return fmax(x, 0.0f) + tail;
}

DEVICE int live_rows(uint64_t live, int rows) { return most(0, least(*in<int>(live), rows)); }

}  // namespace fw

#define FW_INFINITY __builtin_inff()
