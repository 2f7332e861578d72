#include "memory.h"

#include <sys/mman.h>

#include <string>

#include "error.h"
#include "flatwake/abi.h"

namespace flatwake {

namespace {

constexpr int64_t PAGE = 4096;
constexpr int64_t HUGE_PAGE = 2 << 20;

int64_t whole_pages(int64_t bytes) { return (bytes + PAGE - 1) / PAGE * PAGE; }

}  // namespace

Memory::~Memory() {
  for (const auto& [address, bytes] : sizes_) munmap(reinterpret_cast<void*>(address), size_t(bytes));
}

uint64_t Memory::allocate(int64_t bytes) {
  if (bytes <= 0) throw Failure(FW_INVALID, "cannot allocate " + std::to_string(bytes) + " bytes");
  const int64_t size = whole_pages(bytes);
  // Reserved, not committed: a KV pool takes memory as its blocks are first written.
  void* start = mmap(nullptr, size_t(size), PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (start == MAP_FAILED)
    throw Failure(FW_MEMORY, std::to_string(bytes) + " bytes of memory are not to be had");
  // Touched memory must be what was used, so no page is larger than it has to be.
  if (size >= HUGE_PAGE) madvise(start, size_t(size), MADV_NOHUGEPAGE);
  const auto address = reinterpret_cast<uint64_t>(start);
  const std::lock_guard<std::mutex> lock(mutex_);
  sizes_[address] = size;
  allocated_ += size;
  if (allocated_ > peak_) peak_ = allocated_;
  return address;
}

void Memory::release(uint64_t address) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = sizes_.find(address);
  if (found == sizes_.end())
    throw Failure(FW_INVALID, "address " + std::to_string(address) + " was not allocated here");
  munmap(reinterpret_cast<void*>(address), size_t(found->second));
  allocated_ -= found->second;
  sizes_.erase(found);
}

}  // namespace flatwake
