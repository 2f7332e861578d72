// A HIP runtime without a device: memory is the host's, between pages that may not be touched, and
// launches are counted and do nothing, unless fake_hip_run_kernels names what runs them.
//
// FAKE_HIP_DEVICES (1), FAKE_HIP_ARCHITECTURE (gfx1100), FAKE_HIP_FAIL (name of a call that fails).
// FAKE_HIP_GRAPH_LEAK: bytes that a replay loses for each node.
// FAKE_HIP_LOG: a file that gets one line a call of interest.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include <sys/mman.h>

namespace {

constexpr int INVALID = 1, OUT_OF_MEMORY = 2, NO_DEVICE = 100, UNKNOWN = 999;

const char* setting(const char* name, const char* otherwise) {
  const char* value = std::getenv(name);
  return value ? value : otherwise;
}

int call(const char* name, const std::string& detail = "") {
  if (const char* path = std::getenv("FAKE_HIP_LOG"))
    if (FILE* file = std::fopen(path, "a")) {
      std::fprintf(file, "%s %s\n", name, detail.c_str());
      std::fclose(file);
    }
  return !std::strcmp(setting("FAKE_HIP_FAIL", ""), name) ? UNKNOWN : 0;
}

// Runs a kernel of a code object; `arguments` is where the one parameter lies. 0: it has run.
using Run = int (*)(const void* code, const char* kernel, unsigned x, unsigned y, unsigned z,
                    unsigned threads, const void* arguments);
Run run = nullptr;

struct Function {
  const void* code;
  std::string name;
};
constexpr size_t ARGUMENT_BYTES = 256;  // of driver.h's Launch
struct Launch {
  const Function* function;
  unsigned x, y, z, threads;
  std::vector<char> arguments;
};
int start(const Launch& launch) {
  if (!run) return 0;
  return run(launch.function->code, launch.function->name.c_str(), launch.x, launch.y, launch.z,
             launch.threads, launch.arguments.data())
             ? UNKNOWN
             : 0;
}

bool capturing = false;
std::vector<Launch>* captured = nullptr;

// Memory ends, but for what 256 bytes' alignment leaves, at a page that may not be touched.
constexpr size_t PAGE = 4096;
std::map<void*, std::pair<void*, size_t>> mapped;
void* allocate(size_t bytes) {
  const size_t rounded = (bytes + 255) / 256 * 256;
  const size_t whole = (rounded + PAGE - 1) / PAGE * PAGE, all = whole + 2 * PAGE;
  char* pages = static_cast<char*>(
      mmap(nullptr, all, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  if (pages == MAP_FAILED) return nullptr;
  mprotect(pages + PAGE, whole, PROT_READ | PROT_WRITE);
  void* address = pages + PAGE + whole - rounded;
  mapped[address] = {pages, all};
  return address;
}
void release(void* address) {
  const auto found = mapped.find(address);
  if (found == mapped.end()) return;
  munmap(found->second.first, found->second.second);
  mapped.erase(found);
}

// The processor of an AMD ELF file, from its flags.
std::string machine(const void* code) {
  uint32_t flags;
  std::memcpy(&flags, static_cast<const char*>(code) + 48, sizeof flags);
  return std::to_string(flags & 0xff);
}

}  // namespace

#define HIP extern "C" __attribute__((visibility("default"))) int

extern "C" __attribute__((visibility("default"))) const char* hipGetErrorString(int code) {
  return code == NO_DEVICE ? "no ROCm-capable device is detected"
         : code == UNKNOWN ? "a planted failure"
                           : "another error";
}
HIP hipInit(unsigned) { return call("hipInit"); }
HIP hipGetDeviceCount(int* count) {
  *count = std::atoi(setting("FAKE_HIP_DEVICES", "1"));
  return *count ? 0 : NO_DEVICE;
}
HIP hipSetDevice(int) { return 0; }
HIP hipDeviceGetName(char* name, int length, int) {
  std::snprintf(name, length, "A device that isn't there");
  return 0;
}
HIP hipDeviceGetAttribute(int* value, int attribute, int) {
  const bool wave64 = !std::strncmp(setting("FAKE_HIP_ARCHITECTURE", "gfx1100"), "gfx9", 4);
  // Few compute units, so that small layers are both wide and narrow ones.
  *value = attribute == 63 ? 4 : attribute == 87 ? (wave64 ? 64 : 32) : -1;
  return 0;
}
HIP hipGetDevicePropertiesR0600(void* properties, int) {
  std::snprintf(static_cast<char*>(properties), 256, "A device");
  std::snprintf(static_cast<char*>(properties) + 1160, 256, "%s:sramecc+:xnack-",
                setting("FAKE_HIP_ARCHITECTURE", "gfx1100"));
  return 0;
}
HIP hipMemGetInfo(size_t* free, size_t* total) {
  *free = size_t{6} << 30;
  *total = size_t{8} << 30;
  return 0;
}
HIP hipMalloc(void** address, size_t bytes) {
  if (bytes > size_t{8} << 30) return OUT_OF_MEMORY;
  *address = allocate(bytes ? bytes : 1);
  return *address ? call("hipMalloc") : OUT_OF_MEMORY;
}
HIP hipFree(void* address) {
  release(address);
  return call("hipFree");
}
HIP hipHostMalloc(void** address, size_t bytes, unsigned) { return hipMalloc(address, bytes); }
HIP hipHostFree(void* address) { return hipFree(address); }
HIP hipMemsetAsync(void* address, int value, size_t bytes, void*) {
  std::memset(address, value, bytes);
  return 0;
}
HIP hipMemcpyAsync(void* target, const void* source, size_t bytes, int, void*) {
  std::memmove(target, source, bytes);
  return 0;
}
HIP hipStreamCreateWithFlags(void** stream, unsigned) {
  *stream = stream;
  return 0;
}
HIP hipStreamDestroy(void*) { return 0; }
HIP hipStreamSynchronize(void*) { return call("hipStreamSynchronize"); }
HIP hipModuleLoadData(void** module, const void* code) {
  *module = const_cast<void*>(code);
  return call("hipModuleLoadData", machine(code));
}
HIP hipModuleGetFunction(void** function, void* module, const char* name) {
  // Whether a symbol of that name is in the object is what the driver looks for.
  const char* code = static_cast<const char*>(module);
  uint64_t sections;
  uint16_t count;
  std::memcpy(&sections, code + 40, 8);
  std::memcpy(&count, code + 60, 2);
  const size_t bytes = sections + count * 64u, length = std::strlen(name);
  for (size_t i = 0; i + length + 1 < bytes; i++)
    if (!code[i] && !std::memcmp(code + i + 1, name, length + 1)) {
      *function = new Function{module, name};  // as many as there are kernels: never freed
      return 0;
    }
  return 500;
}
HIP hipModuleUnload(void*) { return 0; }
HIP hipModuleLaunchKernel(void* function, unsigned x, unsigned y, unsigned z, unsigned threads,
                          unsigned, unsigned, unsigned, void*, void** arguments, void**) {
  if (!x || !y || !z || !threads || !arguments || !arguments[0]) return INVALID;
  const Function* of = static_cast<const Function*>(function);
  if (const int failed = call("hipModuleLaunchKernel", of->name)) return failed;
  const char* given = static_cast<const char*>(arguments[0]);
  const Launch launch{of, x, y, z, threads, std::vector<char>(given, given + ARGUMENT_BYTES)};
  if (!capturing) return start(launch);
  captured->push_back(launch);
  return 0;
}
extern "C" __attribute__((visibility("default"))) void fake_hip_run_kernels(Run with) { run = with; }
HIP hipEventCreateWithFlags(void** event, unsigned) {
  *event = event;
  return 0;
}
HIP hipEventRecord(void*, void*) { return call("hipEventRecord"); }
HIP hipEventQuery(void*) { return call("hipEventQuery"); }
HIP hipEventSynchronize(void*) { return call("hipEventSynchronize"); }
HIP hipEventElapsedTime(float* milliseconds, void*, void*) {
  *milliseconds = 1;
  return 0;
}
HIP hipEventDestroy(void*) { return 0; }
HIP hipStreamBeginCapture(void*, int) {
  capturing = true;
  captured = new std::vector<Launch>;
  return call("hipStreamBeginCapture");
}
HIP hipStreamEndCapture(void*, void** graph) {
  capturing = false;
  *graph = captured;
  return call("hipStreamEndCapture");
}
HIP hipGraphGetNodes(void* graph, void*, size_t* count) {
  *count = static_cast<std::vector<Launch>*>(graph)->size();
  return 0;
}
HIP hipGraphInstantiate(void** executable, void* graph, void*, char*, size_t) {
  *executable = new std::vector<Launch>(*static_cast<std::vector<Launch>*>(graph));
  return call("hipGraphInstantiate");
}
HIP hipGraphLaunch(void* executable, void*) {
  const size_t lost = std::atoi(setting("FAKE_HIP_GRAPH_LEAK", "0"));
  for (const Launch& launch : *static_cast<std::vector<Launch>*>(executable)) {
    if (lost) std::memset(std::malloc(lost), 1, lost);
    if (const int failed = start(launch)) return failed;
  }
  return call("hipGraphLaunch");
}
HIP hipGraphDestroy(void* graph) {
  delete static_cast<std::vector<Launch>*>(graph);
  return 0;
}
HIP hipGraphExecDestroy(void* executable) { return hipGraphDestroy(executable); }
