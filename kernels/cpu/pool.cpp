#include "pool.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <cmath>
#include <fstream>
#include <string>

#include "cgroup.h"
#include "worker.h"

namespace flatwake {

namespace {

void pause_briefly() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

long futex(std::atomic<uint32_t>* word, int operation, uint32_t value) {
  return syscall(SYS_futex, word, operation | FUTEX_PRIVATE_FLAG, value, nullptr, nullptr, 0);
}

}  // namespace

void Gate::advance() {
  word_.fetch_add(1, std::memory_order_seq_cst);
  // A sleeper counts itself before it looks at the word again, so none is missed.
  if (sleepers_.load(std::memory_order_seq_cst) > 0) futex(&word_, FUTEX_WAKE, INT_MAX);
}

void Gate::wait(uint32_t seen) {
  for (int i = 0; i < spins_; ++i) {
    if (value() != seen) return;
    pause_briefly();
  }
  sleepers_.fetch_add(1, std::memory_order_seq_cst);
  while (word_.load(std::memory_order_seq_cst) == seen) futex(&word_, FUTEX_WAIT, seen);
  sleepers_.fetch_sub(1, std::memory_order_relaxed);
}

void Barrier::wait() {
  const uint32_t seen = gate_.value();
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == count_) {
    arrived_.store(0, std::memory_order_relaxed);
    gate_.advance();
  } else {
    gate_.wait(seen);
  }
}

void Worker::wait() {
  if (count > 1) barrier->wait();
}

Pool::Pool(int count, int spins) : count_(count), barrier_(count, spins), start_(spins) {
  for (int index = 1; index < count; ++index) threads_.emplace_back([this, index] { serve(index); });
}

Pool::~Pool() {
  ending_.store(true);
  start_.advance();
  for (auto& thread : threads_) thread.join();
}

void Pool::run(const std::function<void(int)>& job) {
  job_ = &job;
  if (count_ > 1) start_.advance();
  job(0);
  if (count_ > 1) barrier_.wait();
}

void Pool::serve(int index) {
  uint32_t seen = 0;
  while (true) {
    start_.wait(seen);
    ++seen;
    if (ending_.load()) return;
    (*job_)(index);
    barrier_.wait();
  }
}

int usable_processors() {
  int count = 1;
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) count = CPU_COUNT(&set);
  const double quota = cgroup_processors();
  if (quota > 0 && quota < count) count = int(std::ceil(quota));
  return count > 0 ? count : 1;
}

}  // namespace flatwake
