// Kernels that the gate must refuse: one spills, one reads through a generic pointer.
#include "portable.h"

struct PlantedParams {
  uint64_t x, y;
  int32_t count, reserved;
};

// More live values than sixteen waves a SIMD leave registers for.
extern "C" __attribute__((global)) __attribute__((amdgpu_flat_work_group_size(256, 256)))
__attribute__((amdgpu_num_vgpr(24))) void planted_spill(const PlantedParams p) {
  float values[96];
  FW_UNROLL
  for (int i = 0; i < 96; i++) values[i] = fw::in<float>(p.x)[fw::thread() + 256 * i];
  fw::barrier();
  float sum = 0;
  FW_UNROLL
  for (int i = 0; i < 96; i++) sum = fw::fma(values[i], values[95 - i] + 1, sum);
  fw::out<float>(p.y)[fw::thread()] = sum;
}

FW_KERNEL(planted_generic, 64, PlantedParams) {
  const float* x = reinterpret_cast<const float*>(p.x);  // no address space
  fw::out<float>(p.y)[fw::thread()] = x[fw::thread()];
}
