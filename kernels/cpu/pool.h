// A team of threads that works on ops one after another.
//
// Only the calling thread, the leader, moves on from phase to phase, and it waits for items, never
// for threads: a helper that its neighbours keep off the processor holds nothing up unless it holds
// an item. Items are taken by a compare-and-swap on (phase, next item), so a helper that wakes
// late finds another phase and takes nothing. Helpers are told of a phase only when the leader
// finds more in it than it would take at once.
#ifndef FLATWAKE_CPU_POOL_H
#define FLATWAKE_CPU_POOL_H

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "worker.h"

namespace flatwake {

// A number that threads wait on: for a while by spinning, then asleep.
class Gate {
 public:
  explicit Gate(int spins) : spins_(spins) {}
  // Set the number and wake all who sleep on it.
  void set(uint32_t value);
  // Return once the number differs from `seen`.
  void wait(uint32_t seen);

 private:
  std::atomic<uint32_t> word_{0};
  std::atomic<int32_t> sleepers_{0};
  const int spins_;
};

// Scratch of a run.
struct Scratch {
  char* shared;
  char* own;
  int64_t own_stride;
};

class Team {
 public:
  Team(int count, int spins);
  ~Team();
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  int count() const { return count_; }

  // Ops between begin and end are run by all threads that find the time.
  void begin(const Scratch& scratch);
  void run(Kernel kernel, const void* params);
  void end();

  // Wait until no helper looks at anything that was run: before memory or params may go.
  void settle();

 private:
  friend struct Worker;

  // An op as helpers find it. Valid while the ticket says so.
  struct Op {
    std::atomic<Kernel> kernel{nullptr};
    std::atomic<const void*> params{nullptr};
    std::atomic<char*> shared{nullptr};
    std::atomic<char*> own{nullptr};
    std::atomic<int64_t> own_stride{0};
  };
  static constexpr uint32_t OPS = 64;

  Op& op_of(uint32_t phase) { return ops_[phase / Worker::PHASES % OPS]; }
  // Sequentially consistent, as is busy_: a helper that says it is busy sees the end of a run, or
  // is seen by settle.
  uint32_t phase() const { return uint32_t(ticket_.load(std::memory_order_seq_cst) >> 32); }
  void publish(Kernel kernel, const void* params, uint32_t phase);
  void open(uint32_t phase);
  void finish(Worker& leader);
  void serve(int index);
  bool help(uint32_t phase, int index);

  const int count_;
  Gate gate_;
  alignas(64) std::atomic<uint64_t> ticket_{0};  // phase, then the next item
  alignas(64) std::atomic<int64_t> done_{0};     // items of the phase
  alignas(64) std::atomic<bool> ending_{false};
  Scratch scratch_{};
  Kernel kernel_ = nullptr;  // what the leader runs
  const void* params_ = nullptr;
  uint32_t next_phase_ = 0;
  uint32_t last_shared_ = 0;  // the phase that helpers were told of last
  std::array<Op, OPS> ops_;
  std::unique_ptr<std::atomic<bool>[]> busy_;
  std::vector<std::thread> threads_;
};

// Processors that this process may use: affinity, then the cgroup's quota; at least one.
int usable_processors();

}  // namespace flatwake

#endif
