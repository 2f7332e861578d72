// Single instructions that an emulator may have wrong. Arrays of a wave's lanes; `HIGH` is a register
// whose number a 16-bit operand of gfx11 would take for the upper half of another one.
#include <stdint.h>

#define TRIAL(name, In, Out)                                                               \
  extern "C" __attribute__((global)) __attribute__((amdgpu_flat_work_group_size(64, 64))) \
  void name(const In* x, [[maybe_unused]] const In* y, Out* z)
#define LANE __builtin_amdgcn_workitem_id_x()

TRIAL(narrow, float, uint32_t) {
  uint32_t found;
  asm volatile("v_mov_b32 v200, 0\n v_cvt_f16_f32 v200, %1\n v_mov_b32 %0, v200" : "=v"(found) : "v"(x[LANE]) : "v200");
  z[LANE] = found;
}
TRIAL(widen, uint32_t, float) {
  float found;
  asm volatile("v_mov_b32 v200, %1\n v_cvt_f32_f16 %0, v200" : "=&v"(found) : "v"(x[LANE]) : "v200");
  z[LANE] = found;
}
TRIAL(add, uint32_t, uint32_t) {
  uint32_t found;
  asm volatile("v_mov_b32 v200, %1\n v_mov_b32 v201, %2\n v_mov_b32 v202, 0\n"
               "v_add_f16 v202, v200, v201\n v_mov_b32 %0, v202"
               : "=&v"(found) : "v"(x[LANE]), "v"(y[LANE]) : "v200", "v201", "v202");
  z[LANE] = found;
}
TRIAL(less, uint32_t, uint32_t) {
  uint32_t found;
#if __AMDGCN_WAVEFRONT_SIZE == 64
#define MASK "vcc"
#else
#define MASK "vcc_lo"
#endif
  asm volatile("v_mov_b32 v200, %1\n v_mov_b32 v201, %2\n"
               "v_cmp_lt_f16 " MASK ", v200, v201\n v_cndmask_b32 %0, 0, 1, " MASK
               : "=&v"(found) : "v"(x[LANE]), "v"(y[LANE]) : "v200", "v201", "vcc");
  z[LANE] = found;
}

#if defined(__gfx90a__) || defined(__gfx942__)
typedef float Float4 __attribute__((ext_vector_type(4)));
typedef _Float16 Half4 __attribute__((ext_vector_type(4)));

TRIAL(multiply, Half4, Float4) {
  const Float4 sums = {1, 2, 3, 4};
  z[LANE] = __builtin_amdgcn_mfma_f32_16x16x16f16(x[LANE], y[LANE], sums, 0, 0, 0);
}
TRIAL(keep, Float4, Float4) {
  static __attribute__((shared)) Float4 kept[64];
  const uint32_t at = (uint32_t)(uintptr_t)(__attribute__((address_space(3))) Float4*)&kept[63 - LANE];
  asm volatile("ds_write_b128 %0, %1\n s_waitcnt lgkmcnt(0)" ::"v"(at), "a"(x[LANE]) : "memory");
  Float4 found;
  asm volatile("ds_read_b128 %0, %1\n s_waitcnt lgkmcnt(0)" : "=a"(found) : "v"(at) : "memory");
  z[LANE] = found;
}
#endif
