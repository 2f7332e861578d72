#include "runtime/context.h"

#include <time.h>

#include <algorithm>
#include <cstdlib>

namespace fw::runtime {

Region::Region(Context& context, int64_t bytes)
    : context_(context), bytes_(bytes), data_(context.allocate(bytes, FW_MEMORY_DEVICE)) {}
Region::~Region() { context_.release(data_, FW_MEMORY_DEVICE); }

Settings parse_settings(const char* text) {
  Settings settings;
  const std::string all = text ? text : "";
  for (size_t at = 0; at < all.size();) {
    const size_t end = std::min(all.find(',', at), all.size()), equals = all.find('=', at);
    if (equals >= end)
      throw Error(FW_INVALID, "setting '" + all.substr(at, end - at) + "' is not name=value");
    settings[all.substr(at, equals - at)] = all.substr(equals + 1, end - equals - 1);
    at = end + 1;
  }
  return settings;
}

int number(const Settings& settings, const char* name, int otherwise) {
  const auto found = settings.find(name);
  if (found == settings.end()) return otherwise;
  char* end;
  const long value = std::strtol(found->second.c_str(), &end, 10);
  if (found->second.empty() || *end)
    throw Error(FW_INVALID, std::string("setting ") + name + "=" + found->second + " is no number");
  return (int)value;
}

void check_settings(const Settings& settings, const std::vector<std::string>& own) {
  std::vector<std::string> known = own;
  known.insert(known.end(), {"matrix", "fuse"});
  for (const auto& [name, value] : settings) {
    if (std::find(known.begin(), known.end(), name) != known.end()) continue;
    std::string all;
    for (const std::string& each : known) all += (all.empty() ? "" : ", ") + each;
    throw Error(FW_INVALID, "this library has no setting " + name + ": " + all + " are");
  }
}

Context::Context(const fw_context_options& options)
    : Context(options, parse_settings(reinterpret_cast<const char*>(options.settings))) {}

Context::Context(const fw_context_options& options, const Settings& settings)
    : driver_(open_driver(options.device, settings)),
      facts_(with_settings(driver_->facts(), settings)),
      blocking_(options.wait == FW_WAIT_BLOCK),
      heartbeat_(reinterpret_cast<uint64_t*>(options.heartbeat)) {
  if (options.world > 1)
    throw Error(FW_UNSUPPORTED, "several ranks are not built yet: serve with one device");
}

Context::~Context() {
  try {
    driver_->enter();
    driver_->synchronise();
  } catch (const Error&) {
    // A device that failed has nothing more to finish; its memory goes with the process.
  }
  workspace_.reset();
  for (auto& [address, bytes] : sizes_) driver_->release(address, FW_MEMORY_DEVICE);
}

void* Context::allocate(int64_t bytes, int kind) {
  if (bytes < 0 || (kind != FW_MEMORY_DEVICE && kind != FW_MEMORY_PINNED))
    throw Error(FW_INVALID, text("cannot allocate %lld bytes of memory kind %d", (long long)bytes, kind));
  void* address = driver_->allocate(std::max<int64_t>(bytes, 1), kind);
  if (!address) {
    const MemoryFacts facts = driver_->memory();
    throw Error(FW_MEMORY, text("the device has no %.1f MB for this: %.1f MB of %.1f MB are free",
                                bytes / 1e6, facts.free / 1e6, facts.total / 1e6));
  }
  if (kind == FW_MEMORY_DEVICE) {
    sizes_[address] = bytes;
    allocated_ += bytes;
    peak_ = std::max(peak_, allocated_);
  }
  return address;
}

void Context::release(void* address, int kind) {
  if (kind == FW_MEMORY_DEVICE) {
    auto found = sizes_.find(address);
    if (found == sizes_.end())
      throw Error(FW_INVALID, text("%p was not allocated here", address));
    allocated_ -= found->second;
    sizes_.erase(found);
  }
  driver_->release(address, kind);
}

fw_memory_info Context::memory() const {
  const MemoryFacts facts = driver_->memory();
  return {facts.total, facts.free, allocated_, peak_};
}

std::shared_ptr<Region> Context::workspace(int64_t bytes) {
  if (!workspace_ || workspace_->bytes() < bytes)
    workspace_ = std::make_shared<Region>(*this, bytes);
  return workspace_;
}

void Context::stamp() {
  if (!heartbeat_) return;
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  __atomic_store_n(heartbeat_, (uint64_t)now.tv_sec * 1000000000u + now.tv_nsec, __ATOMIC_RELAXED);
}

}  // namespace fw::runtime
