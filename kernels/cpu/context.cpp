#include "context.h"

#include <time.h>

#include <cstdio>
#include <cstring>
#include <string>

#include "cpu.h"
#include "error.h"

namespace flatwake {

Settings Settings::parse(const char* text) {
  Settings settings;
  std::string rest = text ? text : "";
  while (!rest.empty()) {
    const auto comma = rest.find(',');
    const std::string item = rest.substr(0, comma);
    rest = comma == std::string::npos ? "" : rest.substr(comma + 1);
    const auto equals = item.find('=');
    const std::string name = item.substr(0, equals);
    const std::string value = equals == std::string::npos ? "" : item.substr(equals + 1);
    if (name == "isa") {
      settings.isa = value;
    } else if (name == "spins" && !value.empty() &&
               value.find_first_not_of("0123456789") == std::string::npos && value.size() < 10) {
      settings.spins = std::stoi(value);
    } else {
      throw Failure(FW_INVALID, "setting '" + item + "' is unknown: isa=auto|" + isa_names() +
                                    " and spins=N are known");
    }
  }
  return settings;
}

namespace {

int team_size(const fw_context_options& options) {
  constexpr int MOST = 512;
  if (options.threads < 0 || options.threads > MOST)
    throw Failure(FW_INVALID, "threads is " + std::to_string(options.threads) + ", wanted 0 to " +
                                  std::to_string(MOST));
  return options.threads ? options.threads : usable_processors();
}

}  // namespace

Context::Context(const fw_context_options& options)
    : settings_(Settings::parse(reinterpret_cast<const char*>(options.settings))),
      kernels_(kernels_for(settings_.isa)),
      team_(team_size(options), settings_.spins),
      heartbeat_(reinterpret_cast<volatile uint64_t*>(options.heartbeat)) {
  if (options.device != 0)
    throw Failure(FW_INVALID, "there is one CPU device, 0, not " + std::to_string(options.device));
  if (options.world > 1)
    throw Failure(FW_UNSUPPORTED, "the CPU library runs one rank, not " +
                                      std::to_string(options.world));
}

Context::~Context() = default;

void Context::describe(fw_device_info& info) const {
  memset(&info, 0, sizeof info);
  snprintf(info.name, sizeof info.name, "%s", processor_name().c_str());
  snprintf(info.architecture, sizeof info.architecture, "%s", kernels_.name);
  snprintf(info.features, sizeof info.features, "%s", processor_features().c_str());
  info.compute_units = team_.count();
  info.wave = 1;
}

void Context::stamp() {
  if (!heartbeat_) return;
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  *heartbeat_ = uint64_t(now.tv_sec) * 1000000000u + uint64_t(now.tv_nsec);
}

void Context::grow(Area& area, int64_t bytes) {
  if (bytes <= area.bytes) return;
  team_.settle();
  if (area.data) memory_.release(reinterpret_cast<uint64_t>(area.data));
  area = {};
  area.data = reinterpret_cast<char*>(memory_.allocate(bytes));
  area.bytes = bytes;
}

void Context::reserve(const Needs& needs) {
  grow(shared_, needs.shared);
  // Threads' parts lie in pages of their own.
  const int64_t stride = (needs.own + 4095) / 4096 * 4096;
  if (stride > own_stride_) {
    grow(own_, stride * team_.count());
    own_stride_ = stride;
  }
}

namespace {

struct Jobs {
  int64_t count;
  const std::function<void(int64_t)>* job;
};

void run_jobs(const void* params, Worker& w) {
  const auto& jobs = *static_cast<const Jobs*>(params);
  for (int64_t begin, end; w.take(0, jobs.count, 1, begin, end);)
    for (int64_t i = begin; i < end; ++i) (*jobs.job)(i);
}

}  // namespace

void Context::parallel(int64_t count, const std::function<void(int64_t)>& job) {
  const Jobs jobs{count, &job};
  team_.begin(scratch());
  team_.run(run_jobs, &jobs);
  team_.end();
  team_.settle();
}

}  // namespace flatwake
