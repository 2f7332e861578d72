#include "pool.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>

#include "cgroup.h"

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

// Spin, then let others run: what is waited for is a matter of microseconds unless its thread has
// no processor.
template <class Condition>
void wait_until(const Condition& condition) {
  constexpr int SPINS = 2000;
  for (int i = 0; !condition(); ++i) {
    if (i < SPINS)
      pause_briefly();
    else
      sched_yield();
  }
}

}  // namespace

void Gate::set(uint32_t value) {
  word_.store(value, std::memory_order_seq_cst);
  // A sleeper counts itself before it looks at the word again, so none is missed.
  if (sleepers_.load(std::memory_order_seq_cst) > 0) futex(&word_, FUTEX_WAKE, INT_MAX);
}

void Gate::wait(uint32_t seen) {
  for (int i = 0; i < spins_; ++i) {
    if (word_.load(std::memory_order_acquire) != seen) return;
    pause_briefly();
  }
  sleepers_.fetch_add(1, std::memory_order_seq_cst);
  while (word_.load(std::memory_order_seq_cst) == seen) futex(&word_, FUTEX_WAIT, seen);
  sleepers_.fetch_sub(1, std::memory_order_relaxed);
}

bool Worker::take(uint32_t phase, int64_t total_items, int64_t grain, int64_t& begin,
                  int64_t& end, int64_t parts) {
  const uint32_t wanted = first + phase;
  if (index == 0 && team->last_shared_ != wanted) {
    if (count == 1 || total_items <= grain) {
      begin = alone == phase ? total_items : 0;
      end = total_items;
      alone = phase;
      return begin < end;
    }
    team->publish(team->kernel_, team->params_, wanted);
  }
  total = total_items;
  if (taken) team->done_.fetch_add(taken, std::memory_order_acq_rel);
  taken = 0;
  uint64_t ticket = team->ticket_.load(std::memory_order_acquire);
  do {
    begin = int64_t(ticket & 0xffffffffu);
    if (uint32_t(ticket >> 32) != wanted || begin >= total_items) return false;
    const int64_t left = total_items - begin;
    const int64_t share = parts && left / parts > grain ? left / parts : grain;
    end = share < left ? begin + share : total_items;
  } while (!team->ticket_.compare_exchange_weak(ticket, uint64_t(wanted) << 32 | uint64_t(end),
                                                std::memory_order_acq_rel,
                                                std::memory_order_acquire));
  taken = end - begin;
  return true;
}

void Worker::wait(uint32_t phase) {
  if (index == 0) {
    team->finish(*this);
    return;
  }
  const uint32_t seen = first + phase;
  while (team->phase() == seen) team->gate_.wait(seen);
}

Team::Team(int count, int spins)
    : count_(count), gate_(spins), busy_(new std::atomic<bool>[size_t(count)]) {
  for (int index = 0; index < count; ++index) busy_[size_t(index)].store(false);
  for (int index = 1; index < count; ++index)
    threads_.emplace_back([this, index] { serve(index); });
}

Team::~Team() {
  ending_.store(true);
  next_phase_ += Worker::PHASES;
  publish(nullptr, nullptr, next_phase_);
  for (auto& thread : threads_) thread.join();
}

void Team::open(uint32_t phase) {
  ticket_.store(uint64_t(phase) << 32, std::memory_order_seq_cst);
  if (count_ > 1) gate_.set(phase);
}

void Team::publish(Kernel kernel, const void* params, uint32_t phase) {
  Op& op = op_of(phase);
  op.kernel.store(kernel, std::memory_order_relaxed);
  op.params.store(params, std::memory_order_relaxed);
  op.shared.store(scratch_.shared, std::memory_order_relaxed);
  op.own.store(scratch_.own, std::memory_order_relaxed);
  op.own_stride.store(scratch_.own_stride, std::memory_order_relaxed);
  last_shared_ = phase;
  open(phase);
}

void Team::finish(Worker& leader) {
  if (leader.taken) done_.fetch_add(leader.taken, std::memory_order_acq_rel);
  leader.taken = 0;
  const int64_t total = leader.total;
  wait_until([&] { return done_.load(std::memory_order_acquire) >= total; });
  done_.store(0, std::memory_order_relaxed);
  leader.total = 0;
}

void Team::begin(const Scratch& scratch) { scratch_ = scratch; }

void Team::run(Kernel kernel, const void* params) {
  next_phase_ += Worker::PHASES;
  kernel_ = kernel;
  params_ = params;
  Worker leader{this, next_phase_, 0, count_, scratch_.shared, scratch_.own};
  kernel(params, leader);
  finish(leader);
}

void Team::end() {
  next_phase_ += Worker::PHASES;
  publish(nullptr, nullptr, next_phase_);
}

void Team::settle() {
  for (int index = 1; index < count_; ++index)
    wait_until([&] { return !busy_[size_t(index)].load(std::memory_order_seq_cst); });
}

// Work on the op of `phase`; false when there is none: the run has ended.
bool Team::help(uint32_t phase, int index) {
  const Op& op = op_of(phase);
  const Kernel kernel = op.kernel.load(std::memory_order_relaxed);
  const void* params = op.params.load(std::memory_order_relaxed);
  Worker worker{this,
                phase / Worker::PHASES * Worker::PHASES,
                index,
                count_,
                op.shared.load(std::memory_order_relaxed),
                op.own.load(std::memory_order_relaxed) +
                    index * op.own_stride.load(std::memory_order_relaxed)};
  std::atomic_thread_fence(std::memory_order_acquire);
  if (this->phase() != phase) return true;  // what was read may be another op's
  if (!kernel) return false;
  kernel(params, worker);
  return true;
}

void Team::serve(int index) {
  std::atomic<bool>& busy = busy_[size_t(index)];
  uint32_t seen = 0;
  while (true) {
    gate_.wait(seen);
    busy.store(true, std::memory_order_seq_cst);
    // From here on the leader's memory stays, as long as it sees that this thread is busy.
    while (true) {
      seen = phase();
      if (!help(seen, index)) break;
      if (phase() == seen) {
        busy.store(false, std::memory_order_seq_cst);
        gate_.wait(seen);
        busy.store(true, std::memory_order_seq_cst);
      }
    }
    busy.store(false, std::memory_order_seq_cst);
    if (ending_.load()) return;
  }
}

int usable_processors() {
  int count = 1;
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) count = CPU_COUNT(&set);
  const double quota = cgroup_processors();
  // Never more than the quota: threads that wait for each other would use it up, and then all be
  // stopped until its next period. A fraction that is left over serves the API process.
  if (quota > 0 && quota < count) count = int(quota);
  return count > 0 ? count : 1;
}

}  // namespace flatwake
