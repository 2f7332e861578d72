// What the control group and the kernel let this process have. cgroup v2, then v1.
#ifndef FLATWAKE_CPU_CGROUP_H
#define FLATWAKE_CPU_CGROUP_H

#include <cstdint>

namespace flatwake {

struct HostMemory {
  int64_t total;
  int64_t free;
};

// Processors by quota; 0 where there is none.
double cgroup_processors();

// Bytes, the smaller of the machine's and the group's.
HostMemory host_memory();

}  // namespace flatwake

#endif
