// Kernels that are wrong on purpose, one fault each; and one that is right.
#include "portable.h"

struct PlantedParams {
  uint64_t x, y;
  int32_t count, reserved;
};

// Sums of neighbours through LDS, with a barrier.
FW_KERNEL(planted_nothing, 64, PlantedParams) {
  FW_LDS(float, shared, 64);
  const int t = fw::thread();
  shared[t] = fw::in<float>(p.x)[t];
  fw::barrier();
  fw::out<float>(p.y)[t] = shared[t] + shared[(t + 1) % 64];
}

FW_KERNEL(planted_missing_barrier, 64, PlantedParams) {
  FW_LDS(float, shared, 64);
  const int t = fw::thread();
  shared[t] = fw::in<float>(p.x)[t];
  fw::out<float>(p.y)[t] = shared[t] + shared[(t + 1) % 64];
}

FW_KERNEL(planted_write_race, 64, PlantedParams) {
  FW_LDS(float, shared, 64);
  const int t = fw::thread();
  shared[t / 2] = fw::in<float>(p.x)[t];
  fw::barrier();
  fw::out<float>(p.y)[t] = shared[t / 2];
}

// The second turn writes what slower threads still read in the first.
FW_KERNEL(planted_reuse_race, 64, PlantedParams) {
  FW_LDS(float, shared, 64);
  const int t = fw::thread();
  float sum = 0;
  for (int turn = 0; turn < 2; turn++) {
    shared[t] = fw::in<float>(p.x)[t] + turn;
    fw::barrier();
    sum += shared[63 - t];
  }
  fw::out<float>(p.y)[t] = sum;
}

FW_KERNEL(planted_lds_overrun, 64, PlantedParams) {
  FW_LDS(float, shared, 64);
  const int t = fw::thread();
  shared[t + 1] = fw::in<float>(p.x)[t];
  fw::barrier();
  fw::out<float>(p.y)[t] = shared[t];
}

FW_KERNEL(planted_lds_unwritten, 64, PlantedParams) {
  FW_LDS(float, shared, 64);
  const int t = fw::thread();
  if (t != 7) shared[t] = fw::in<float>(p.x)[t];
  fw::barrier();
  fw::out<float>(p.y)[t] = shared[t];
}

FW_KERNEL(planted_lds_too_much, 64, PlantedParams) {
  FW_LDS(float, large, 16 * 1024);
  FW_LDS(float, more, 64);
  large[fw::thread()] = 1;
  more[fw::thread()] = 1;
  fw::out<float>(p.y)[fw::thread()] = 1;
}

// Slower threads still read as words what is written as floats.
FW_KERNEL(planted_alias_race, 64, PlantedParams) {
  FW_LDS(fw::Words, words, 64);
  FW_LDS_AS(float, shared, 256, words);
  const int t = fw::thread();
  words[t] = fw::make_words(t, t, t, t);
  fw::barrier();
  const uint32_t other = fw::word(words[63 - t], 0);
  shared[t] = (float)other;
  fw::out<float>(p.y)[t] = (float)other;
}

FW_KERNEL(planted_alias_too_large, 64, PlantedParams) {
  FW_LDS(fw::Words, words, 64);
  FW_LDS_AS(float, shared, 257, words);
  shared[fw::thread()] = 1;
  fw::out<float>(p.y)[fw::thread()] = 1;
}

FW_KERNEL(planted_early_exit, 64, PlantedParams) {
  if (fw::thread() == 5) return;
  fw::barrier();
  fw::out<float>(p.y)[fw::thread()] = 1;
}

FW_KERNEL(planted_divergent_wave, 64, PlantedParams) {
  float value = 1;
  if (fw::thread() % 2) value = fw::wave_sum<FW_WAVE>(value);
  fw::out<float>(p.y)[fw::thread()] = value;
}

FW_KERNEL(planted_unaligned, 64, PlantedParams) {
  const fw::Words words = fw::load_words(fw::in<float>(p.x) + 1);
  fw::out<float>(p.y)[fw::thread()] = fw::as_float(fw::word(words, 0));
}

// For the address sanitizer: one element past a buffer.
FW_KERNEL(planted_overrun, 64, PlantedParams) {
  const int t = fw::thread();
  fw::out<float>(p.y)[t + (t == 63 ? 1 : 0)] = fw::in<float>(p.x)[t];
}

FW_KERNEL(planted_read_overrun, 64, PlantedParams) {
  const int t = fw::thread();
  fw::out<float>(p.y)[t] = fw::in<float>(p.x)[t + 1];
}
