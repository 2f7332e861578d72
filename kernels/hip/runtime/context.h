// A context: a device's driver, and the memory that was taken through it.
#pragma once

#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "runtime/driver.h"

namespace fw::runtime {

class Context;

// Device memory that is given back with its last owner.
class Region {
 public:
  Region(Context& context, int64_t bytes);
  ~Region();
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;
  uint64_t address() const { return reinterpret_cast<uint64_t>(data_); }
  void* data() const { return data_; }
  int64_t bytes() const { return bytes_; }

 private:
  Context& context_;
  int64_t bytes_;
  void* data_;
};

class Context {
 public:
  explicit Context(const fw_context_options& options);
  ~Context();

  Driver& driver() { return *driver_; }
  const DeviceFacts& facts() const { return facts_; }
  bool blocking() const { return blocking_; }

  void* allocate(int64_t bytes, int kind);
  void release(void* address, int kind);
  fw_memory_info memory() const;

  // Memory for what a plan keeps between its own launches. Plans run one after another, so they
  // share it; its contents are lost with every launch of another plan.
  std::shared_ptr<Region> workspace(int64_t bytes);

  // Tell the watchdog that the engine thread is alive.
  void stamp();

 private:
  Context(const fw_context_options& options, const Settings& settings);

  std::unique_ptr<Driver> driver_;
  DeviceFacts facts_;
  bool blocking_;
  uint64_t* heartbeat_;
  std::unordered_map<void*, int64_t> sizes_;
  int64_t allocated_ = 0, peak_ = 0;
  std::shared_ptr<Region> workspace_;
};

Settings parse_settings(const char* text);

}  // namespace fw::runtime
