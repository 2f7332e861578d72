// A context: its settings, threads, memory and scratch.
#ifndef FLATWAKE_CPU_CONTEXT_H
#define FLATWAKE_CPU_CONTEXT_H

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "flatwake/abi.h"
#include "isa/table.h"
#include "memory.h"
#include "pool.h"
#include "worker.h"

namespace flatwake {

// What `settings` may say, as "name=value,…".
struct Settings {
  std::string isa = "auto";
  int spins = 4000;  // about 100 microseconds on the way to sleep

  static Settings parse(const char* text);
};

class Context {
 public:
  explicit Context(const fw_context_options& options);
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  void describe(fw_device_info& info) const;
  Memory& memory() { return memory_; }
  Team& team() { return team_; }
  const Kernels& kernels() const { return kernels_; }
  // Say that the context is alive: CLOCK_MONOTONIC into the heartbeat, if there is one.
  void stamp();

  // Scratch that every later run may use; it only grows.
  void reserve(const Needs& needs);
  Scratch scratch() const { return {shared_.data, own_.data, own_stride_}; }

  // Call job(i) for all i below `count`, on all threads.
  void parallel(int64_t count, const std::function<void(int64_t)>& job);

 private:
  struct Area {
    char* data = nullptr;
    int64_t bytes = 0;
  };
  void grow(Area& area, int64_t bytes);

  const Settings settings_;
  const Kernels& kernels_;
  Memory memory_;
  Team team_;
  Area shared_, own_;
  int64_t own_stride_ = 0;
  volatile uint64_t* const heartbeat_;
};

}  // namespace flatwake

#endif
