// What the runtime needs of a device: memory, copies, launches, events, graphs, on one stream.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "runtime/error.h"

namespace fw::runtime {

// A backend's own switches, "name=value,…" from the caller.
using Settings = std::map<std::string, std::string>;
int number(const Settings& settings, const char* name, int otherwise);

struct DeviceFacts {
  std::string name, architecture, features;
  int compute_units, wave;
  bool matrix_units;  // that the kernels use
  int gemm_threads;   // of a block of a prompt's product
  bool fuse = true;   // several calls by one launch, where a kernel can
};

// For comparison: matrix=0 keeps linear layers off the matrix units, fuse=0 calls apart.
inline DeviceFacts with_settings(DeviceFacts facts, const Settings& settings) {
  facts.matrix_units = facts.matrix_units && number(settings, "matrix", 1) != 0;
  facts.fuse = number(settings, "fuse", 1) != 0;
  return facts;
}
// Throws Error where a setting is neither that nor one of the driver's `own`.
void check_settings(const Settings& settings, const std::vector<std::string>& own);

struct MemoryFacts {
  int64_t total, free;
};

struct Grid {
  int x, y, z;
};

class Kernel;  // a driver's own

constexpr int PARAMETER_BYTES = 256;

struct Launch {
  const Kernel* kernel;
  Grid grid;
  int threads;
  int bytes;  // of parameters
  alignas(8) char parameters[PARAMETER_BYTES];
};

class Event {
 public:
  virtual ~Event() = default;
  virtual void record() = 0;
  virtual void wait() = 0;
  // Seconds from another event's place on the stream to this one's; both were waited for.
  virtual double since(const Event& earlier) const = 0;
};

class Graph {
 public:
  virtual ~Graph() = default;
  virtual void launch() = 0;
  virtual int nodes() const = 0;
};

class Driver {
 public:
  virtual ~Driver() = default;
  // Bind the calling thread to the device.
  virtual void enter() {}
  virtual DeviceFacts facts() const = 0;
  virtual MemoryFacts memory() const = 0;
  // Zeroed; `kind` is FW_MEMORY_*. nullptr where there is not enough.
  virtual void* allocate(int64_t bytes, int kind) = 0;
  virtual void release(void* address, int kind) = 0;
  // `direction` is FW_COPY_*; ordered on the stream.
  virtual void copy(void* target, const void* source, int64_t bytes, int direction) = 0;
  virtual const Kernel* kernel(const std::string& name) = 0;
  virtual void launch(const Launch& launch) = 0;
  virtual std::unique_ptr<Event> event(bool blocking) = 0;
  // What `launches` puts on the stream, as one graph; nullptr where there are no graphs.
  virtual std::unique_ptr<Graph> capture(const std::function<void()>& launches) = 0;
  virtual void synchronise() = 0;
};

// Each library has one of these. Both throw Error with what is missing.
int count_devices();
std::unique_ptr<Driver> open_driver(int device, const Settings& settings);

}  // namespace fw::runtime
