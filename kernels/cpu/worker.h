// What one thread of the team sees of the op that it works on.
#ifndef FLATWAKE_CPU_WORKER_H
#define FLATWAKE_CPU_WORKER_H

#include <atomic>
#include <cstdint>

namespace flatwake {

class Team;

// An op is done in phases, a phase in items that any thread may take. Who computes a value never
// changes the value. A phase that is one grain is the leader's alone: the others never hear of it.
struct Worker {
  static constexpr uint32_t PHASES = 4;

  Team* team;
  uint32_t first;  // number of the op's phase 0
  int index;       // 0: the thread that leads
  int count;
  char* shared;  // scratch of the team
  char* own;     // scratch of this thread
  int64_t taken = 0;
  int64_t total = 0;
  int64_t alone = -1;  // the phase, of the op's, that the leader kept to itself last

  // The next [begin, end) of the phase's `total` items, `grain` at a time; false when none is
  // left. Asking again says that what was taken before is done. A grain is worth the microsecond
  // that it takes to be heard by another thread. With `parts`, at least one of so many parts of
  // what is left: long stretches first, that memory is read ahead in, and short ones for the end.
  bool take(uint32_t phase, int64_t total_items, int64_t grain, int64_t& begin, int64_t& end,
            int64_t parts = 0);

  // Return once phase `phase`, in which every thread took what it could, is done.
  void wait(uint32_t phase);
};

// Scratch bytes that an op needs.
struct Needs {
  int64_t shared = 0;
  int64_t own = 0;
};

using Kernel = void (*)(const void* params, Worker& worker);
using NeedsOf = Needs (*)(const void* params);

}  // namespace flatwake

#endif
