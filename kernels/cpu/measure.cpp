#include "measure.h"

#include <atomic>
#include <cstring>
#include <functional>

#include "clock.h"
#include "context.h"

namespace flatwake {

namespace {

template <class Job>
double best_seconds(int repeats, const Job& job) {
  double best = 1e30;
  for (int i = 0; i < repeats; ++i) {
    const double start = now();
    job();
    const double spent = now() - start;
    best = spent < best ? spent : best;
  }
  return best;
}

// Reads as the kernels do: in order, asking for what lies two pages ahead.
uint64_t read_part(const char* from, int64_t bytes) {
  typedef uint64_t Line __attribute__((vector_size(64)));
  Line all[2] = {};
  for (int64_t at = 0; at + 128 <= bytes; at += 128) {
    for (int i = 0; i < 2; ++i) {
      Line line;
      memcpy(&line, from + at + i * 64, sizeof line);
      __builtin_prefetch(from + at + i * 64 + 8192, 0, 2);
      all[i] |= line;
    }
  }
  uint64_t found = 0;
  for (int i = 0; i < 8; ++i) found |= all[0][i] | all[1][i];
  return found;
}

}  // namespace

double measure_read(Context& context, int64_t bytes, int repeats) {
  constexpr int64_t PART = 256 << 10;
  const uint64_t address = context.memory().allocate_weights(bytes);
  auto* data = reinterpret_cast<char*>(address);
  const int64_t parts = (bytes + PART - 1) / PART;
  const auto part = [&](int64_t i) { return bytes - i * PART < PART ? bytes - i * PART : PART; };
  context.parallel(parts, [&](int64_t i) { memset(data + i * PART, 1, size_t(part(i))); });
  std::atomic<uint64_t> found{0};  // so that the reads cannot be left out
  const std::function<void(int64_t)> read = [&](int64_t i) {
    found.fetch_or(read_part(data + i * PART, part(i)), std::memory_order_relaxed);
  };
  const double best = best_seconds(repeats, [&] { context.parallel(parts, read); });
  context.memory().release_weights(address);
  return best;
}

double measure_compute(Context& context, bool integers, int repeats) {
  constexpr int64_t PARTS = 64, LOOPS = 20000;
  std::atomic<int64_t> products{0};
  const std::function<void(int64_t)> work = [&](int64_t) {
    products.fetch_add(context.kernels().multiply(integers, LOOPS), std::memory_order_relaxed);
  };
  const double best = best_seconds(repeats, [&] {
    products = 0;
    context.parallel(PARTS, work);
  });
  return double(products.load()) / best;
}

}  // namespace flatwake
