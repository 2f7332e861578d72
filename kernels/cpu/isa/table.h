// The kernels, compiled once for each instruction set, each in a namespace of its own.
#ifndef FLATWAKE_CPU_ISA_TABLE_H
#define FLATWAKE_CPU_ISA_TABLE_H

#include "flatwake/ops.h"
#include "worker.h"

namespace flatwake {

struct Kernels {
  const char* name;
  Kernel run[FW_OP_COUNT];
  NeedsOf needs[FW_OP_COUNT];
  // Multiply-adds done in `loops` rounds on registers alone, of bytes or of floats.
  int64_t (*multiply)(bool integers, int64_t loops);
};

namespace plain {
const Kernels& kernels();
}
namespace avx2 {
const Kernels& kernels();
}
namespace avx512 {
const Kernels& kernels();
}

}  // namespace flatwake

#endif
