// portable.h for the CPU: plain C++ over machine.h.
#pragma once

#include <cmath>
#include <cstring>

#include "emulation/machine.h"
#include "runtime/half.h"

#ifndef FW_WAVE
#error "FW_WAVE is the wave size that a file of kernels is compiled for"
#endif
#define FW_UNROLL
#define FW_NO_UNROLL
#define DEVICE inline
#define FW_KERNEL(name, block, Params)                                                      \
  static void name##_body(const Params p);                                                  \
  static const fw::emulation::Registration name##_registration{                             \
      {#name, FW_WAVE, block, sizeof(Params),                                               \
       [](const void* raw) { name##_body(*static_cast<const Params*>(raw)); }}};            \
  static void name##_body(const Params p)
#define FW_KERNEL_RESIDENT(name, block, resident, Params) FW_KERNEL(name, block, Params)
#define FW_KERNEL_LARGE_LDS(name, block, bytes, Params) FW_KERNEL(name, block, Params)
#define FW_LDS(T, name, count)                                                              \
  static const char name##_key = 0;                                                         \
  fw::emulation::Shared<T> name(&name##_key, #name, count)
#define FW_LARGE_LDS(T, name, count) FW_LDS(T, name, count)
#define FW_LDS_AS(T, name, count, of)                                                       \
  static const char name##_key = 0;                                                         \
  fw::emulation::Shared<T> name(of, &name##_key, #name, count)

namespace fw {
namespace emulation {

// An LDS array whose elements are watched.
template <typename T>
class Shared {
 public:
  class Element {
   public:
    Element(Lds& array, int index) : array_(array), index_(index) {}
    operator T() const {
      watch(array_, index_, Access::READ);
      T value;
      std::memcpy(&value, place(), sizeof value);
      return value;
    }
    Element& operator=(T value) {
      watch(array_, index_, Access::WRITE);
      std::memcpy(place(), &value, sizeof value);
      return *this;
    }
    Element& operator=(const Element& other) { return *this = static_cast<T>(other); }
    Element& operator+=(T value) { return *this = static_cast<T>(*this) + value; }
    void add(T value) {
      watch(array_, index_, Access::ADD);
      T old;
      std::memcpy(&old, place(), sizeof old);
      old += value;
      std::memcpy(place(), &old, sizeof old);
    }

   private:
    char* place() const { return array_.data + (size_t)index_ * sizeof(T); }
    Lds& array_;
    int index_;
  };
  Shared(const void* key, const char* name, int count)
      : array_(shared_array(key, name, count, sizeof(T))) {}
  template <typename Other>
  Shared(const Shared<Other>& of, const void* key, const char* name, int count)
      : array_(alias_array(of.array_, key, name, count, sizeof(T))) {}
  Element operator[](int index) { return Element(array_, index); }

 private:
  template <typename Other>
  friend class Shared;
  Lds& array_;
};

inline void check_alignment(const void* address) {
  if ((uintptr_t)address % 16) fail("a 16-byte access at an address that is no multiple of 16");
}

}  // namespace emulation

struct Words {
  uint32_t w[4];
};

template <typename T>
T* global_pointer(uint64_t address) {
  return reinterpret_cast<T*>(static_cast<uintptr_t>(address));
}
inline uint32_t word(const Words& words, int i) { return words.w[i]; }
inline int again(int value) { return value; }
inline Words make_words(uint32_t a, uint32_t b, uint32_t c, uint32_t d) { return {{a, b, c, d}}; }
inline Words no_words() { return Words{}; }
inline Words load_words(const void* from) {
  emulation::check_alignment(from);
  Words words;
  std::memcpy(&words, from, sizeof words);
  return words;
}
inline Words stream_words(const void* from) { return load_words(from); }
inline void store_words(void* to, const Words& words) {
  emulation::check_alignment(to);
  std::memcpy(to, &words, sizeof words);
}

inline int thread() { return emulation::running.thread; }
inline int threads() { return emulation::running.threads; }
inline int block_x() { return emulation::running.block.x; }
inline int block_y() { return emulation::running.block.y; }
inline int block_z() { return emulation::running.block.z; }
inline void barrier() { emulation::block_barrier(); }

inline float as_float(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}
inline uint32_t as_uint(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}
inline uint32_t high_product(uint32_t a, uint32_t b) { return (uint32_t)(((uint64_t)a * b) >> 32); }

// Twice rounded in rare cases; libm's own is a hundred times slower.
inline float fma(float a, float b, float c) { return (float)((double)a * b + c); }
inline float fmax(float a, float b) { return std::fmax(a, b); }
inline float fabs(float a) { return std::fabs(a); }
inline float exp(float a) { return std::exp(a); }
inline float fast_exp(float a) { return std::exp(a); }  // no denormal results
inline float fast_exp2(float a) { return std::exp2(a); }
inline float log(float a) { return std::log(a); }
inline float sqrt(float a) { return std::sqrt(a); }

template <int W>
int lane() {
  return emulation::running.thread % W;
}
template <int W>
int shuffle(int value, int source) {
  return (int)emulation::exchange((uint32_t)value)[source & (W - 1)];
}
template <int W>
float shuffle(float value, int source) {
  return as_float((uint32_t)emulation::exchange(as_uint(value))[source & (W - 1)]);
}
inline int uniform(int value) { return value; }

// In the order of the exchanges that a GPU makes: 1, 2, 4 … lanes apart.
template <int W, int L, bool MAX>
float butterfly(float value) {
  const uint64_t* wave = emulation::exchange(as_uint(value));
  const int first = lane<W>() / L * L;
  float level[L];
  for (int i = 0; i < L; i++) level[i] = as_float((uint32_t)wave[first + i]);
  for (int n = L / 2; n > 0; n /= 2)
    for (int i = 0; i < n; i++)
      level[i] = MAX ? fmax(level[2 * i], level[2 * i + 1]) : level[2 * i] + level[2 * i + 1];
  return level[0];
}

template <int W, int L, int N>
void group_sums(float (&values)[N]) {
  for (float& value : values) value = butterfly<W, L, false>(value);
}

template <typename T>
void add_lds(emulation::Shared<T>& to, int i, T value) {
  to[i].add(value);
}

}  // namespace fw
