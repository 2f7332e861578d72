// Beside the C ABI: what the device's memory gives. Tools call it by its name.
#pragma once

#include "flatwake/abi.h"

extern "C" {
// The best seconds of `repeats` reads of `bytes` bytes of device memory, which are allocated here.
FW_EXPORT int32_t fw_measure_read(fw_context* context, int64_t bytes, int32_t repeats,
                                  double* seconds);
// Kernel launches of a plan and, where `nodes` is given, its graph's nodes: 0 without a graph.
FW_EXPORT int32_t fw_plan_launches(fw_plan* plan, int32_t* launches, int32_t* nodes);
}
