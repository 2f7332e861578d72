// Memory that is zero, aligned, and costs nothing until it is touched.
#ifndef FLATWAKE_CPU_MEMORY_H
#define FLATWAKE_CPU_MEMORY_H

#include <cstdint>
#include <mutex>
#include <unordered_map>

namespace flatwake {

class Memory {
 public:
  ~Memory();
  // Throws Failure when there is not enough.
  uint64_t allocate(int64_t bytes);
  // Throws Failure for an address that was not given out.
  void release(uint64_t address);
  int64_t allocated() const { return allocated_; }
  int64_t peak() const { return peak_; }

 private:
  std::mutex mutex_;  // buffers may be dropped by any thread's garbage collector
  std::unordered_map<uint64_t, int64_t> sizes_;
  int64_t allocated_ = 0;
  int64_t peak_ = 0;
};

}  // namespace flatwake

#endif
