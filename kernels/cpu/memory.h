// Memory that is zero, aligned, and costs nothing until it is touched.
#ifndef FLATWAKE_CPU_MEMORY_H
#define FLATWAKE_CPU_MEMORY_H

#include <cstdint>
#include <map>
#include <mutex>
#include <unordered_map>

namespace flatwake {

class Memory {
 public:
  Memory() = default;
  ~Memory();
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  // In small pages: what is touched is what was used. Throws Failure when there is not enough.
  uint64_t allocate(int64_t bytes);
  // Throws Failure for an address that was not given out.
  void release(uint64_t address);

  // For weights, which are touched whole and read over and over: parts of chunks of large pages,
  // because a step reads more small pages than the processor can remember the places of.
  uint64_t allocate_weights(int64_t bytes);
  void release_weights(uint64_t address);

  int64_t allocated() const { return allocated_; }
  int64_t peak() const { return peak_; }

 private:
  struct Chunk {
    void* mapping;
    int64_t mapped;
    int64_t size, used, parts;
  };

  void count(int64_t bytes);
  Chunk& chunk_with(int64_t bytes, uint64_t& start);

  std::mutex mutex_;  // buffers may be dropped by any thread's garbage collector
  std::unordered_map<uint64_t, int64_t> sizes_;
  std::map<uint64_t, Chunk> chunks_;
  std::unordered_map<uint64_t, int64_t> weights_;
  int64_t allocated_ = 0;
  int64_t peak_ = 0;
};

}  // namespace flatwake

#endif
