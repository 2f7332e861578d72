#include "memory.h"

#include <sys/mman.h>

#include <string>

#include "error.h"
#include "flatwake/abi.h"

namespace flatwake {

namespace {

constexpr int64_t PAGE = 4096;
constexpr int64_t LARGE_PAGE = 2 << 20;
constexpr int64_t CHUNK = 32 << 20;
constexpr int64_t LINE = 64;

int64_t round_up(int64_t bytes, int64_t unit) { return (bytes + unit - 1) / unit * unit; }

void* map_memory(int64_t size) {
  // Reserved, not committed: a KV pool takes memory as its blocks are first written.
  void* start = mmap(nullptr, size_t(size), PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (start == MAP_FAILED)
    throw Failure(FW_MEMORY, std::to_string(size) + " bytes of memory are not to be had");
  return start;
}

void unmap(uint64_t address, int64_t size) {
  munmap(reinterpret_cast<void*>(address), size_t(size));
}

void must_be_positive(int64_t bytes) {
  if (bytes <= 0) throw Failure(FW_INVALID, "cannot allocate " + std::to_string(bytes) + " bytes");
}

[[noreturn]] void not_ours(uint64_t address) {
  throw Failure(FW_INVALID, "address " + std::to_string(address) + " was not allocated here");
}

}  // namespace

Memory::~Memory() {
  for (const auto& [address, bytes] : sizes_) unmap(address, bytes);
  for (const auto& [start, chunk] : chunks_) munmap(chunk.mapping, size_t(chunk.mapped));
}

void Memory::count(int64_t bytes) {
  allocated_ += bytes;
  if (allocated_ > peak_) peak_ = allocated_;
}

uint64_t Memory::allocate(int64_t bytes) {
  must_be_positive(bytes);
  const int64_t size = round_up(bytes, PAGE);
  void* start = map_memory(size);
  if (size >= LARGE_PAGE) madvise(start, size_t(size), MADV_NOHUGEPAGE);
  const auto address = reinterpret_cast<uint64_t>(start);
  const std::lock_guard<std::mutex> lock(mutex_);
  sizes_[address] = size;
  count(size);
  return address;
}

void Memory::release(uint64_t address) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = sizes_.find(address);
  if (found == sizes_.end()) not_ours(address);
  unmap(address, found->second);
  count(-found->second);
  sizes_.erase(found);
}

Memory::Chunk& Memory::chunk_with(int64_t bytes, uint64_t& start) {
  for (auto& [address, chunk] : chunks_) {
    if (chunk.size - chunk.used < bytes) continue;
    start = address;
    return chunk;
  }
  const int64_t size = bytes > CHUNK ? round_up(bytes, LARGE_PAGE) : CHUNK;
  const int64_t mapped = size + LARGE_PAGE;
  void* mapping = map_memory(mapped);
  start = uint64_t(round_up(int64_t(reinterpret_cast<uint64_t>(mapping)), LARGE_PAGE));
  madvise(reinterpret_cast<void*>(start), size_t(size), MADV_HUGEPAGE);
  return chunks_[start] = {mapping, mapped, size, 0, 0};
}

uint64_t Memory::allocate_weights(int64_t bytes) {
  must_be_positive(bytes);
  const int64_t size = round_up(bytes, LINE);
  const std::lock_guard<std::mutex> lock(mutex_);
  uint64_t start;
  Chunk& chunk = chunk_with(size, start);
  const uint64_t address = start + uint64_t(chunk.used);
  chunk.used += size;
  ++chunk.parts;
  weights_[address] = size;
  count(size);
  return address;
}

void Memory::release_weights(uint64_t address) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = weights_.find(address);
  if (found == weights_.end()) not_ours(address);
  count(-found->second);
  weights_.erase(found);
  // The chunk that starts at or before the address. It goes with its last part.
  const auto chunk = --chunks_.upper_bound(address);
  if (--chunk->second.parts == 0) {
    munmap(chunk->second.mapping, size_t(chunk->second.mapped));
    chunks_.erase(chunk);
  }
}

}  // namespace flatwake
