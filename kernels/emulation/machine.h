// One block of a kernel on the CPU: a fiber a thread, waves, block barriers, and LDS that is watched.
//
// What a GPU leaves undefined ends the launch with an error that names kernel, block and thread: an
// LDS access outside of its array, a read of LDS that nobody wrote, two threads at one element
// without a barrier between them, a barrier or wave operation that not all threads reach, more LDS
// than a block may have, a 16-byte access at another alignment. Not seen: races in global memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace fw::emulation {

constexpr int LDS_LIMIT = 64 << 10;

struct Kernel {
  const char* name;
  int wave;
  int threads;
  size_t parameter_bytes;
  void (*body)(const void* parameters);
};

// Every kernel that was compiled in, by name and wave; nullptr where there is none.
const Kernel* find_kernel(const std::string& name, int wave);
struct Registration {
  explicit Registration(const Kernel& kernel);
};

struct Dim {
  int x, y, z;
};

// Throws std::runtime_error with what went wrong. One launch runs at a time.
void launch(const Kernel& kernel, Dim grid, const void* parameters, uint64_t seed);

// --- For the running thread ---
struct Running {
  int thread, threads, wave;
  Dim block;
};
extern Running running;

[[noreturn]] void fail(const std::string& what);
void block_barrier();
// Every lane puts up a value and gets the wave's, in lane order, valid until its next exchange.
const uint64_t* exchange(uint64_t value);

enum class Access { READ, WRITE, ADD };
struct Cell {
  uint32_t written = 0, read = 0;  // barrier epochs
  int16_t writer = -1, reader = -1;
};
struct Lds {
  const void* key;
  const char* name;
  int count, element_bytes;
  char* data;
  Cell* cells;
  Lds* other = nullptr;  // the same memory as elements of another type
};
// The block's array for a declaration: the same for all of its threads.
Lds& shared_array(const void* key, const char* name, int count, int element_bytes);
// The same memory as elements of another type: what is read as such has to be written as such.
Lds& alias_array(Lds& of, const void* key, const char* name, int count, int element_bytes);
void watch(Lds& array, int index, Access access);

}  // namespace fw::emulation
