// portable.h for AMD: clang alone, no ROCm header and no device library.
#pragma once

#include <stddef.h>
#include <stdint.h>

#define FW_WAVE __AMDGCN_WAVEFRONT_SIZE
#define FW_UNROLL _Pragma("unroll")
#define FW_NO_UNROLL _Pragma("nounroll")
#define DEVICE __attribute__((device, always_inline)) inline

// clang ignores its own launch_bounds for AMD: these two attributes are what counts.
#define FW_KERNEL(name, block, Params)                                                     \
  extern "C" __attribute__((global)) __attribute__((amdgpu_flat_work_group_size(block, block))) \
  void name(const Params p)
// clang finds as few registers by itself; occupancy.csv holds it to that.
#define FW_KERNEL_RESIDENT(name, block, resident, Params) FW_KERNEL(name, block, Params)
#define FW_LDS(T, name, count) __attribute__((shared)) T name[count]
#define FW_KERNEL_LARGE_LDS(name, block, bytes, Params) FW_KERNEL(name, block, Params)
#define FW_LARGE_LDS(T, name, count) FW_LDS(T, name, count)
#define FW_LDS_AS(T, name, count, of) T* const name = (T*)of

#if defined(__HIP_DEVICE_COMPILE__)
#if defined(__gfx90a__) || defined(__gfx942__) || defined(__gfx950__)
#define FW_MFMA 1
#elif defined(__GFX11__) && __AMDGCN_WAVEFRONT_SIZE == 32
#define FW_WMMA 11
#elif defined(__GFX12__) && __AMDGCN_WAVEFRONT_SIZE == 32
#define FW_WMMA 12
#endif
#endif

namespace fw {

typedef uint32_t Words __attribute__((ext_vector_type(4)));

// Through the global address space: a generic pointer would be read by flat loads.
template <typename T>
DEVICE T* global_pointer(uint64_t address) {
  return (T*)(__attribute__((address_space(1))) T*)address;
}
DEVICE uint32_t word(const Words& words, int i) { return words[i]; }
DEVICE Words make_words(uint32_t a, uint32_t b, uint32_t c, uint32_t d) { return Words{a, b, c, d}; }
DEVICE Words no_words() { return Words{0, 0, 0, 0}; }
DEVICE Words load_words(const void* from) { return *(const Words*)from; }
DEVICE Words stream_words(const void* from) {
  return __builtin_nontemporal_load((const Words*)from);
}

DEVICE void store_words(void* to, const Words& words) { *(Words*)to = words; }

// The same value, but the compiler doesn't know: what follows from it is computed anew.
DEVICE int again(int value) {
  asm volatile("" : "+s"(value));
  return value;
}

DEVICE int thread() { return __builtin_amdgcn_workitem_id_x(); }
DEVICE int threads() { return __builtin_amdgcn_workgroup_size_x(); }
DEVICE int block_x() { return __builtin_amdgcn_workgroup_id_x(); }
DEVICE int block_y() { return __builtin_amdgcn_workgroup_id_y(); }
DEVICE int block_z() { return __builtin_amdgcn_workgroup_id_z(); }

DEVICE void barrier() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}

DEVICE float as_float(uint32_t bits) { return __builtin_bit_cast(float, bits); }
DEVICE uint32_t as_uint(float value) { return __builtin_bit_cast(uint32_t, value); }
DEVICE float half_to_float(uint16_t bits) { return (float)__builtin_bit_cast(_Float16, bits); }
DEVICE uint16_t float_to_half(float value) {
  return __builtin_bit_cast(uint16_t, (_Float16)value);
}
DEVICE uint16_t float_to_bf16(float value) {
  const uint32_t bits = as_uint(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return (uint16_t)((bits >> 16) | 0x40);
  return (uint16_t)((bits + 0x7fffu + ((bits >> 16) & 1)) >> 16);
}
DEVICE uint32_t high_product(uint32_t a, uint32_t b) {
  return (uint32_t)(((uint64_t)a * b) >> 32);
}

DEVICE float fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
DEVICE float fmax(float a, float b) { return __builtin_fmaxf(a, b); }
DEVICE float fabs(float a) { return __builtin_fabsf(a); }
DEVICE float exp(float a) { return __builtin_expf(a); }
DEVICE float fast_exp(float a) { return __builtin_amdgcn_exp2f(a * 1.44269504088896341f); }  // no denormal results
DEVICE float fast_exp2(float a) { return __builtin_amdgcn_exp2f(a); }
DEVICE float log(float a) { return __builtin_logf(a); }
DEVICE float sqrt(float a) { return __builtin_sqrtf(a); }

template <int W>
DEVICE int lane() {
  static_assert(W == __AMDGCN_WAVEFRONT_SIZE || W == 64, "kernels run at the device's wave size");
  return __builtin_amdgcn_workitem_id_x() & (W - 1);
}
template <int W>
DEVICE int shuffle(int value, int source) {
  return __builtin_amdgcn_ds_bpermute(source << 2, value);
}
template <int W>
DEVICE float shuffle(float value, int source) {
  return as_float((uint32_t)shuffle<W>((int)as_uint(value), source));
}
// A value that every lane of the wave holds alike, told to the compiler.
DEVICE int uniform(int value) { return __builtin_amdgcn_readfirstlane(value); }

template <int CONTROL>
DEVICE float dpp(float value) {
  return as_float((uint32_t)__builtin_amdgcn_update_dpp(0, (int)as_uint(value), CONTROL, 0xf, 0xf, true));
}
// The other half's value at distance D, once all lanes below D agree: a mirror serves as well as
// an exchange then, and is part of the adding instruction.
template <int W, int D>
DEVICE float across(float value) {
  if constexpr (D == 1) return dpp<0xB1>(value);
  else if constexpr (D == 2) return dpp<0x4E>(value);
  else if constexpr (D == 4) return dpp<0x141>(value);
  else if constexpr (D == 8) return dpp<0x140>(value);
  else if constexpr (D == 16)
    return as_float((uint32_t)__builtin_amdgcn_ds_swizzle((int)as_uint(value), (16 << 10) | 0x1f));
  else return shuffle<W>(value, lane<W>() ^ D);
}
template <int W, int L, bool MAX>
DEVICE float butterfly(float value) {
  if constexpr (L > 1) {
    value = butterfly<W, L / 2, MAX>(value);
    float other = across<W, L / 2>(value);
    value = MAX ? fmax(value, other) : value + other;
  }
  return value;
}

// Sums of several values, level by level: each waits for its own exchanges alone.
template <int W, int L, int N>
DEVICE void group_sums(float (&values)[N]) {
  if constexpr (L > 1) {
    group_sums<W, L / 2>(values);
    FW_UNROLL
    for (int i = 0; i < N; i++) values[i] += across<W, L / 2>(values[i]);
  }
}

// An atomic addition in LDS; what stood there is not returned.
template <typename T>
DEVICE void add_lds(T* to, int i, T value) {
  __hip_atomic_fetch_add(&to[i], value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_WORKGROUP);
}


}  // namespace fw
