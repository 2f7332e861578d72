// Which processor this is, and which kernels it can run.
#ifndef FLATWAKE_CPU_CPU_H
#define FLATWAKE_CPU_CPU_H

#include <string>

#include "isa/table.h"

namespace flatwake {

std::string processor_name();
// Instruction sets that the kernels know of, those that are here, as words.
std::string processor_features();
// Names for `isa=`, joined by "|".
std::string isa_names();
// The best kernels for "auto"; else those named. Throws Failure when the processor lacks them.
const Kernels& kernels_for(const std::string& isa);

}  // namespace flatwake

#endif
