// What is wrong with a call, found when it is recorded and never while it runs.
#ifndef FLATWAKE_CPU_CHECK_H
#define FLATWAKE_CPU_CHECK_H

#include "flatwake/abi.h"
#include "isa/table.h"

namespace flatwake {

// Throws Failure that names the op, its place in the plan and the field.
void check_call(const Kernels& kernels, const fw_call& call, int32_t place);

}  // namespace flatwake

#endif
