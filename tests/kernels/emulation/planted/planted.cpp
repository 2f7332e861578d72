// Runs one planted kernel: `planted NAME WAVE SEED`. Prints the sum of its output, or the error.
#include <cstdio>
#include <cstdlib>
#include <stdexcept>

#include "emulation/machine.h"

struct PlantedParams {
  uint64_t x, y;
  int32_t count, reserved;
};

int main(int count, char** arguments) {
  if (count != 4) return 2;
  const auto* kernel = fw::emulation::find_kernel(arguments[1], std::atoi(arguments[2]));
  if (!kernel) return 3;
  constexpr int N = 64;
  auto* x = static_cast<float*>(std::aligned_alloc(64, N * sizeof(float)));
  auto* y = static_cast<float*>(std::aligned_alloc(64, N * sizeof(float)));
  for (int i = 0; i < N; i++) x[i] = y[i] = (float)i;
  const PlantedParams p{reinterpret_cast<uint64_t>(x), reinterpret_cast<uint64_t>(y), N, 0};
  try {
    fw::emulation::launch(*kernel, {2, 1, 1}, &p, std::strtoull(arguments[3], nullptr, 10));
  } catch (const std::runtime_error& error) {
    std::printf("%s\n", error.what());
    return 1;
  }
  float sum = 0;
  for (int i = 0; i < N; i++) sum += y[i];
  std::printf("%g\n", sum);
  std::free(x);
  std::free(y);
  return 0;
}
