// portable.h for nvcc: the stand-in for measuring where no AMD GPU is at hand.
#pragma once

#include <stddef.h>
#include <stdint.h>

#define FW_WAVE 32
#define FW_UNROLL _Pragma("unroll")
#define FW_NO_UNROLL _Pragma("unroll 1")
#define DEVICE __device__ __forceinline__
#define FW_KERNEL(name, block, Params) \
  extern "C" __global__ void __launch_bounds__(block) name(const __grid_constant__ Params p)
// Of which a compute unit is to hold `resident` blocks at once.
#define FW_KERNEL_RESIDENT(name, block, resident, Params) \
  extern "C" __global__ void __launch_bounds__(block, resident) name(const __grid_constant__ Params p)
#define FW_LDS(T, name, count) __shared__ T name[count]
// More than 48 KiB are given at the launch alone: its driver asks for the KiB that name_lds has bytes.
#define FW_KERNEL_LARGE_LDS(name, block, bytes, Params)    \
  extern "C" __device__ char name##_lds[(bytes) >> 10] = {}; \
  FW_KERNEL(name, block, Params)
#define FW_LARGE_LDS(T, name, count) extern __shared__ T name[]
#define FW_LDS_AS(T, name, count, of) T* const name = (T*)of
#define FW_MMA 1
#define FW_ASYNC 1

namespace fw {

typedef uint4 Words;

template <typename T>
DEVICE T* global_pointer(uint64_t address) {
  return (T*)address;
}
DEVICE uint32_t word(const Words& words, int i) {
  return i == 0 ? words.x : i == 1 ? words.y : i == 2 ? words.z : words.w;
}
DEVICE Words make_words(uint32_t a, uint32_t b, uint32_t c, uint32_t d) { return Words{a, b, c, d}; }
DEVICE Words no_words() { return Words{0, 0, 0, 0}; }
DEVICE Words load_words(const void* from) { return *(const Words*)from; }
DEVICE Words stream_words(const void* from) {
  Words words;
  asm volatile("ld.global.nc.L1::no_allocate.L2::128B.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(words.x), "=r"(words.y), "=r"(words.z), "=r"(words.w)
               : "l"(from));
  return words;
}

// Told by name: else the compiler may store the four apart, as it did in gdn_step.
DEVICE void store_words(void* to, const Words& words) {
  asm volatile("st.global.v4.u32 [%0], {%1,%2,%3,%4};" ::"l"(to), "r"(words.x), "r"(words.y),
               "r"(words.z), "r"(words.w)
               : "memory");
}

// 16 bytes to LDS, there once the group that they belong to was waited for.
DEVICE void copy_async(Words* to, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(
                   (uint32_t)__cvta_generic_to_shared(to)),
               "l"(from));
}
DEVICE void end_async_group() { asm volatile("cp.async.commit_group;"); }
// Until all groups but the last N are there.
template <int N>
DEVICE void wait_async_groups() {
  asm volatile("cp.async.wait_group %0;" ::"n"(N));
}

// The same value, but the compiler doesn't know: what follows from it is computed anew.
DEVICE int again(int value) {
  asm volatile("" : "+r"(value));
  return value;
}

DEVICE int thread() { return threadIdx.x; }
DEVICE int threads() { return blockDim.x; }
DEVICE int block_x() { return blockIdx.x; }
DEVICE int block_y() { return blockIdx.y; }
DEVICE int block_z() { return blockIdx.z; }
DEVICE void barrier() { __syncthreads(); }

DEVICE float as_float(uint32_t bits) { return __uint_as_float(bits); }
DEVICE uint32_t as_uint(float value) { return __float_as_uint(value); }
DEVICE float half_to_float(uint16_t bits) {
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
  return value;
}
DEVICE uint16_t float_to_half(float value) {
  uint16_t bits;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
  return bits;
}
DEVICE uint16_t float_to_bf16(float value) {
  uint16_t bits;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(value));
  return bits;
}
DEVICE uint32_t high_product(uint32_t a, uint32_t b) { return __umulhi(a, b); }

DEVICE float fma(float a, float b, float c) { return __fmaf_rn(a, b, c); }
DEVICE float fmax(float a, float b) { return fmaxf(a, b); }
DEVICE float fabs(float a) { return fabsf(a); }
DEVICE float exp(float a) { return expf(a); }
DEVICE float fast_exp(float a) { return __expf(a); }  // no denormal results
DEVICE float fast_exp2(float a) {
  float power;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(a));
  return power;
}
DEVICE float log(float a) { return logf(a); }
DEVICE float sqrt(float a) { return sqrtf(a); }

template <int W>
DEVICE int lane() {
  return threadIdx.x & (W - 1);
}
template <int W>
DEVICE int shuffle(int value, int source) {
  return __shfl_sync(~0u, value, source);
}
template <int W>
DEVICE float shuffle(float value, int source) {
  return __shfl_sync(~0u, value, source);
}
DEVICE int uniform(int value) { return value; }

template <int W, int L, bool MAX>
DEVICE float butterfly(float value) {
  FW_UNROLL
  for (int d = 1; d < L; d *= 2) {
    float other = __shfl_xor_sync(~0u, value, d);
    value = MAX ? fmaxf(value, other) : value + other;
  }
  return value;
}

// Sums of several values, level by level: each waits for its own exchanges alone.
template <int W, int L, int N>
DEVICE void group_sums(float (&values)[N]) {
  FW_UNROLL
  for (int d = 1; d < L; d *= 2) {
    float other[N];
    FW_UNROLL
    for (int i = 0; i < N; i++) other[i] = __shfl_xor_sync(~0u, values[i], d);
    FW_UNROLL
    for (int i = 0; i < N; i++) values[i] += other[i];
  }
}

// An atomic addition in LDS; what stood there is not returned.
DEVICE void add_lds(int* to, int i, int value) { atomicAdd(&to[i], value); }
// By halves: 64 bits at once would be a loop of compare-and-swap in LDS.
DEVICE void add_lds(uint64_t* to, int i, uint64_t value) {
  unsigned* halves = (unsigned*)&to[i];
  const unsigned low = (unsigned)value, old = atomicAdd(halves, low);
  const unsigned high = (unsigned)(value >> 32) + (old + low < low ? 1u : 0u);
  if (high) atomicAdd(halves + 1, high);
}


}  // namespace fw
