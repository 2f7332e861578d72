// A HIP runtime without a device: memory is the host's, launches are counted and do nothing.
//
// FAKE_HIP_DEVICES (1), FAKE_HIP_ARCHITECTURE (gfx1100), FAKE_HIP_FAIL (name of a call that fails).
// FAKE_HIP_LOG: a file that gets one line a call of interest.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

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

bool capturing = false;
size_t captured = 0;

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
  *value = attribute == 63 ? 96 : attribute == 87 ? (wave64 ? 64 : 32) : -1;
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
  *address = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  return call("hipMalloc");
}
HIP hipFree(void* address) {
  std::free(address);
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
      *function = const_cast<char*>(code + i + 1);
      return 0;
    }
  return 500;
}
HIP hipModuleUnload(void*) { return 0; }
HIP hipModuleLaunchKernel(void* function, unsigned x, unsigned y, unsigned z, unsigned threads,
                          unsigned, unsigned, unsigned, void*, void** arguments, void**) {
  if (!x || !y || !z || !threads || !arguments || !arguments[0]) return INVALID;
  if (capturing) captured++;
  return call("hipModuleLaunchKernel", static_cast<const char*>(function));
}
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
  captured = 0;
  return call("hipStreamBeginCapture");
}
HIP hipStreamEndCapture(void*, void** graph) {
  capturing = false;
  *graph = graph;
  return call("hipStreamEndCapture");
}
HIP hipGraphGetNodes(void*, void*, size_t* count) {
  *count = captured;
  return 0;
}
HIP hipGraphInstantiate(void** executable, void*, void*, char*, size_t) {
  *executable = executable;
  return call("hipGraphInstantiate");
}
HIP hipGraphLaunch(void*, void*) { return call("hipGraphLaunch"); }
HIP hipGraphDestroy(void*) { return 0; }
HIP hipGraphExecDestroy(void*) { return 0; }
