// A team of threads that runs one function together, then waits: spinning briefly, then asleep.
#ifndef FLATWAKE_CPU_POOL_H
#define FLATWAKE_CPU_POOL_H

#include <atomic>
#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

namespace flatwake {

// A 32-bit word that threads wait on: for a while by spinning, then in the kernel.
class Gate {
 public:
  explicit Gate(int spins) : spins_(spins) {}
  uint32_t value() const { return word_.load(std::memory_order_acquire); }
  // Change the word and wake all who sleep on it.
  void advance();
  // Return once the word differs from `seen`.
  void wait(uint32_t seen);

 private:
  std::atomic<uint32_t> word_{0};
  std::atomic<int32_t> sleepers_{0};
  const int spins_;
};

class Barrier {
 public:
  Barrier(int count, int spins) : count_(count), gate_(spins) {}
  void wait();

 private:
  const int count_;
  std::atomic<int> arrived_{0};
  Gate gate_;
};

// The calling thread is the team's first.
class Pool {
 public:
  Pool(int count, int spins);
  ~Pool();
  int count() const { return count_; }
  Barrier& barrier() { return barrier_; }
  // Every thread calls job(index) once; returns when all have.
  void run(const std::function<void(int)>& job);

 private:
  void serve(int index);

  const int count_;
  Barrier barrier_;
  Gate start_;
  const std::function<void(int)>* job_ = nullptr;
  std::atomic<bool> ending_{false};
  std::vector<std::thread> threads_;
};

// Processors that this process may use: affinity, then the cgroup's quota; at least one.
int usable_processors();

}  // namespace flatwake

#endif
