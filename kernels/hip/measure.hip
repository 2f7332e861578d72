// read_words: nothing but reading, as fast as the memory goes. The limit that other kernels meet.
#include "parameters.h"
#include "portable.h"

namespace fw {

// Each block reads whole runs of threads × 16 bytes × UNROLL; what it read decides whether it
// writes, so that the loads cannot be left out.
template <int UNROLL>
DEVICE void read_words(const FwReadParams& p) {
  const char* from = in<char>(p.data);
  const int64_t step = (int64_t)threads() * 16, run = step * UNROLL;
  uint32_t all = 0;
  for (int64_t at = block_x() * run; at + run <= p.bytes; at += p.blocks * run) {
    Words words[UNROLL];
    FW_UNROLL
    for (int i = 0; i < UNROLL; i++)
      words[i] = stream_words(from + at + i * step + (int64_t)thread() * 16);
    FW_UNROLL
    for (int i = 0; i < UNROLL; i++)
      all |= word(words[i], 0) | word(words[i], 1) | word(words[i], 2) | word(words[i], 3);
  }
  if (all == 0xdeadbeefu) out<uint32_t>(p.found)[0] = all;
}

}  // namespace fw

FW_KERNEL(read_words, 512, FwReadParams) { fw::read_words<4>(p); }
