// What the machine gives at most: the limits that kernels are held against.
#ifndef FLATWAKE_CPU_MEASURE_H
#define FLATWAKE_CPU_MEASURE_H

#include <cstdint>

#include "flatwake/abi.h"

namespace flatwake {

class Context;

// The best seconds of `repeats` reads of `bytes` bytes by the whole team.
double measure_read(Context& context, int64_t bytes, int repeats);

// Multiply-adds a second of the whole team on registers alone, the best of `repeats`.
double measure_compute(Context& context, bool integers, int repeats);

}  // namespace flatwake

// Beside the C ABI; tools call it by its name. `activations` as for a layer: what a product is of.
extern "C" FW_EXPORT int32_t fw_measure_compute(fw_context* context, int32_t activations,
                                                int32_t repeats, double* products);

#endif
