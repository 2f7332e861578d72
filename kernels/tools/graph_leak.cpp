// Whether a runtime's graphs leak, and whether they pay: `graph_leak LIBRARY [NODES [REPLAYS]]`.
//
// No Python and no engine: what is lost here is lost by the runtime. Records NODES small kernels
// through the C ABI, runs them REPLAYS times launch by launch, then as often as one captured graph,
// and prints, one "name value" a line, the time of a run and the memory lost for each node and run:
// of this process (resident and swapped bytes) and of the device. What is taken once is no leak, so the
// least of PARTS parts counts.
#include <dlfcn.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "flatwake/abi.h"

namespace {

constexpr int WIDTH = 64, WARM_UP = 100, PARTS = 4;

struct Library {
  explicit Library(const char* path) : handle(dlopen(path, RTLD_NOW | RTLD_LOCAL)) {
    if (!handle) fail(dlerror());
  }
  template <typename Function>
  void take(Function& function, const char* name) {
    function = reinterpret_cast<Function>(dlsym(handle, name));
    if (!function) fail(std::string("the library has no ") + name);
  }
  [[noreturn]] static void fail(const std::string& why) {
    std::fprintf(stderr, "%s\n", why.c_str());
    std::exit(1);
  }
  void* handle;
};

// Bytes of a line of /proc/self/status.
long long status_bytes(const char* name) {
  long long found = 0;
  if (FILE* file = std::fopen("/proc/self/status", "r")) {
    char line[256];
    while (std::fgets(line, sizeof line, file))
      if (!std::strncmp(line, name, std::strlen(name)))
        found = std::atoll(line + std::strlen(name) + 1) * 1024;
    std::fclose(file);
  }
  return found;
}
long long host_bytes() { return status_bytes("RssAnon:") + status_bytes("VmSwap:"); }

class Program {
 public:
  Program(const char* path, int nodes) : library_(path) {
    library_.take(error_, "fw_error");
    library_.take(create_, "fw_context_create");
    library_.take(memory_, "fw_memory");
    library_.take(allocate_, "fw_allocate");
    library_.take(copy_, "fw_copy");
    library_.take(event_create_, "fw_event_create");
    library_.take(event_record_, "fw_event_record");
    library_.take(event_wait_, "fw_event_wait");
    library_.take(plan_create_, "fw_plan_create");
    library_.take(plan_capture_, "fw_plan_capture");
    library_.take(plan_run_, "fw_plan_run");
    fw_context_options options{};
    options.world = 1;
    options.wait = FW_WAIT_BLOCK;
    check(create_(&options, &context_));
    check(event_create_(context_, &event_));
    record(nodes);
  }

  void capture() { check(plan_capture_(plan_)); }

  double seconds(int runs) {
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < runs; i++) {
      check(plan_run_(plan_));
      check(event_record_(event_));
      check(event_wait_(event_));
    }
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }

  long long device_bytes_used() {
    fw_memory_info info{};
    check(memory_(context_, &info));
    return info.total - info.free;
  }

 private:
  void check(int32_t code) {
    if (code) Library::fail(error_());
  }

  uint64_t given(const void* values, int64_t bytes) {
    uint64_t address = 0;
    check(allocate_(context_, bytes, FW_MEMORY_DEVICE, &address));
    check(copy_(context_, address, reinterpret_cast<uint64_t>(values), bytes, FW_COPY_TO_DEVICE));
    check(event_record_(event_));
    check(event_wait_(event_));
    return address;
  }

  void record(int nodes) {
    const std::vector<float> ones(WIDTH, 1.0f);
    const int32_t live = 1;
    fw_rms_norm_params p{};
    p.x = given(ones.data(), WIDTH * 4);
    p.y = given(ones.data(), WIDTH * 4);
    p.weight = given(ones.data(), WIDTH * 4);
    p.live = given(&live, 4);
    p.rows = 1;
    p.width = WIDTH;
    p.dtype = FW_F32;
    p.eps = 1e-6f;
    const fw_call call{reinterpret_cast<uint64_t>(&p), sizeof p, FW_OP_RMS_NORM, 0};
    const std::vector<fw_call> calls(nodes, call);
    check(plan_create_(context_, calls.data(), nodes, &plan_));
  }

  Library library_;
  fw_context* context_ = nullptr;
  fw_event* event_ = nullptr;
  fw_plan* plan_ = nullptr;
  decltype(&fw_error) error_;
  decltype(&fw_context_create) create_;
  decltype(&fw_memory) memory_;
  decltype(&fw_allocate) allocate_;
  decltype(&fw_copy) copy_;
  decltype(&fw_event_create) event_create_;
  decltype(&fw_event_record) event_record_;
  decltype(&fw_event_wait) event_wait_;
  decltype(&fw_plan_create) plan_create_;
  decltype(&fw_plan_capture) plan_capture_;
  decltype(&fw_plan_run) plan_run_;
};

void measure(Program& program, const char* mode, int nodes, int runs) {
  program.seconds(WARM_UP);
  const int part = (runs + PARTS - 1) / PARTS;
  const double each = (double)nodes * part;
  double seconds = 0;
  long long host_lost = 0, device_lost = 0;
  for (int i = 0; i < PARTS; i++) {
    const long long host = host_bytes(), device = program.device_bytes_used();
    seconds += program.seconds(part);
    const long long host_more = host_bytes() - host, device_more = program.device_bytes_used() - device;
    host_lost = i ? std::min(host_lost, host_more) : host_more;
    device_lost = i ? std::min(device_lost, device_more) : device_more;
  }
  std::printf("%s_us_per_run %.2f\n", mode, seconds / (PARTS * part) * 1e6);
  std::printf("%s_us_per_node %.4f\n", mode, seconds / (PARTS * each) * 1e6);
  std::printf("%s_host_bytes_per_node %.6f\n", mode, host_lost / each);
  std::printf("%s_device_bytes_per_node %.6f\n", mode,
              device_lost / each);
}

}  // namespace

int main(int count, char** arguments) {
  const int nodes = count > 2 ? std::atoi(arguments[2]) : 300;
  const int runs = count > 3 ? std::atoi(arguments[3]) : 2000;
  if (count < 2 || nodes < 1 || runs < 1) {
    std::fprintf(stderr, "usage: graph_leak LIBRARY [NODES [REPLAYS]]\n");
    return 2;
  }
  Program program(arguments[1], nodes);
  std::printf("nodes %d\nruns %d\n", nodes, runs);
  measure(program, "launches", nodes, runs);
  program.capture();
  measure(program, "graph", nodes, runs);
  return 0;
}
