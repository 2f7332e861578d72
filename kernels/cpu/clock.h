// Seconds of CLOCK_MONOTONIC.
#ifndef FLATWAKE_CPU_CLOCK_H
#define FLATWAKE_CPU_CLOCK_H

#include <time.h>

namespace flatwake {

inline double now() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return double(t.tv_sec) + double(t.tv_nsec) * 1e-9;
}

}  // namespace flatwake

#endif
