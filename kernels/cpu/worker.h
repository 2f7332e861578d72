// What one thread of the team sees of the op that all of them run.
#ifndef FLATWAKE_CPU_WORKER_H
#define FLATWAKE_CPU_WORKER_H

#include <atomic>
#include <cstdint>

namespace flatwake {

class Barrier;

// Work is handed out by tickets, so that a thread that a neighbour slows down takes less of it.
// Who computes a value never changes the value.
struct Worker {
  static constexpr int PHASES = 2;

  int index;
  int count;
  Barrier* barrier;
  char* shared;                   // scratch of the team
  char* own;                      // scratch of this thread
  std::atomic<int64_t>* tickets;  // PHASES counters of this op, from 0

  // Wait until every thread of the team is here.
  void wait();

  // The next [begin, end) of total items, grain at a time; false when none is left.
  bool take(int phase, int64_t total, int64_t grain, int64_t& begin, int64_t& end) {
    if (count == 1) grain = total;
    begin = tickets[phase].fetch_add(grain, std::memory_order_relaxed);
    end = begin + grain < total ? begin + grain : total;
    return begin < total;
  }
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
