// Products of registers with registers, as many as the processor does: the limit of every GEMM.
#include "dot.h"
#include "table.h"

namespace flatwake {
namespace FW_ISA {

namespace {

constexpr int CHAINS = W == 16 ? 16 : 8;  // enough to hide an instruction's latency

// Keep a value in a register without letting the compiler know what it is.
template <class V>
inline void hide(V& value) {
#if defined(__x86_64__)
  asm volatile("" : "+x"(value));
#else
  asm volatile("" : "+w"(value));
#endif
}

}  // namespace

int64_t multiply(bool integers, int64_t loops) {
  if (integers) {
    vi sums[CHAINS] = {}, w = set(int32_t(0x01020304)), x = w;
    for (int64_t i = 0; i < loops; ++i)
      for (int c = 0; c < CHAINS; ++c) {
        sums[c] = dot4(sums[c], w, x);
        hide(sums[c]);
      }
    return loops * CHAINS * W * 4;
  }
  vf sums[CHAINS] = {}, w = set(0.5f), x = set(0.25f);
  for (int64_t i = 0; i < loops; ++i)
    for (int c = 0; c < CHAINS; ++c) {
      sums[c] = fma(w, x, sums[c]);
      hide(sums[c]);
    }
  return loops * CHAINS * W;
}

}  // namespace FW_ISA
}  // namespace flatwake
