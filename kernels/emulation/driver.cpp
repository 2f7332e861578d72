// The device of the emulation: the host's memory, and blocks run one after another.
#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <cstring>

#include "emulation/machine.h"
#include "parameters.h"
#include "runtime/driver.h"

namespace fw::runtime {

class Kernel : public emulation::Kernel {};

namespace {

constexpr int64_t ALIGNMENT = 64;
constexpr int COMPUTE_UNITS = 4;  // few, so that small layers are split like large ones elsewhere

class HostEvent : public Event {
 public:
  void record() override { at_ = std::chrono::steady_clock::now(); }
  void wait() override {}
  double since(const Event& earlier) const override {
    const auto& other = dynamic_cast<const HostEvent&>(earlier);
    return std::chrono::duration<double>(at_ - other.at_).count();
  }

 private:
  std::chrono::steady_clock::time_point at_;
};

class EmulationDriver : public Driver {
 public:
  EmulationDriver(int wave, int seed) : wave_(wave), seed_(seed) {}

  DeviceFacts facts() const override {
    return {"emulation of a GPU, waves of " + std::to_string(wave_), "emulation",
            "seed=" + std::to_string(seed_), COMPUTE_UNITS, wave_, true,
            FW_GEMM_BLOCK};
  }
  MemoryFacts memory() const override {
    const int64_t page = sysconf(_SC_PAGESIZE);
    return {sysconf(_SC_PHYS_PAGES) * page, sysconf(_SC_AVPHYS_PAGES) * page};
  }
  // The allocator's own, so that the address sanitizer sees every region's end. Zero pages stay
  // untouched where calloc takes them from the kernel.
  void* allocate(int64_t bytes, int) override {
    auto* raw = static_cast<char*>(std::calloc(1, bytes + ALIGNMENT));
    if (!raw) return nullptr;
    const auto offset = ALIGNMENT - (int64_t)(reinterpret_cast<uintptr_t>(raw) % ALIGNMENT);
    char* address = raw + offset;
    address[-1] = (char)offset;
    return address;
  }
  void release(void* address, int) override {
    char* at = static_cast<char*>(address);
    std::free(at - at[-1]);
  }
  void copy(void* target, const void* source, int64_t bytes, int) override {
    std::memmove(target, source, bytes);
  }
  const Kernel* kernel(const std::string& name) override {
    const auto* found = emulation::find_kernel(name, wave_);
    if (!found)
      throw Error(FW_UNSUPPORTED, "no kernel " + name + " for waves of " + std::to_string(wave_));
    return static_cast<const Kernel*>(found);
  }
  void launch(const Launch& launch) override {
    const emulation::Kernel& kernel = *launch.kernel;
    if (kernel.threads != launch.threads || kernel.parameter_bytes != (size_t)launch.bytes)
      throw Error(FW_INVALID, std::string(kernel.name) + " is launched as another kernel");
    try {
      emulation::launch(kernel, {launch.grid.x, launch.grid.y, launch.grid.z}, launch.parameters,
                        (uint64_t)seed_ * 1000003u + launches_++);
    } catch (const std::runtime_error& error) {
      throw Error(FW_DEVICE, error.what());
    }
  }
  std::unique_ptr<Event> event(bool) override { return std::make_unique<HostEvent>(); }
  std::unique_ptr<Graph> capture(const std::function<void()>&) override { return nullptr; }
  void synchronise() override {}

 private:
  int wave_, seed_;
  uint64_t launches_ = 0;
};

}  // namespace

int count_devices() { return 1; }

std::unique_ptr<Driver> open_driver(int, const Settings& settings) {
  check_settings(settings, {"wave", "seed"});
  const int wave = number(settings, "wave", 32);
  if (wave != 32 && wave != 64)
    throw Error(FW_INVALID, "the emulation has waves of 32 or 64, not " + std::to_string(wave));
  return std::make_unique<EmulationDriver>(wave, number(settings, "seed", 0));
}

}  // namespace fw::runtime
