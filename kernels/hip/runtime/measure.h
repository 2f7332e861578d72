// Beside the C ABI: what graphs cost. Tools call it by its name.
#pragma once

#include "flatwake/abi.h"

extern "C" {
// Kernel launches of a plan and, where `nodes` is given, its graph's nodes: 0 without a graph.
FW_EXPORT int32_t fw_plan_launches(fw_plan* plan, int32_t* launches, int32_t* nodes);
}
