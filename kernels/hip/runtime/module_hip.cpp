// HIP's interface, from libamdhip64 at run time. No ROCm header is needed to build this: the
// functions, and the few numbers below, are the same from ROCm 5 to 7.
#include <fcntl.h>
#include <grp.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "parameters.h"
#include "runtime/module_api.h"

namespace fw::runtime {

namespace {

constexpr int SUCCESS = 0, OUT_OF_MEMORY = 2, NOT_FOUND = 500, NOT_READY = 600;
constexpr int COMPUTE_UNITS = 63, WAVE_SIZE = 87;  // of hipDeviceAttribute_t
constexpr unsigned STREAM_NON_BLOCKING = 1, EVENT_BLOCKING = 1;
constexpr int CAPTURE_THREAD_LOCAL = 1;
constexpr int COPY_KINDS[] = {1, 2, 3};  // by FW_COPY_*
constexpr const char* KFD = "/dev/kfd";

std::vector<const char*> runtime_names() {
  if (const char* named = std::getenv("FLATWAKE_HIP_RUNTIME")) return {named};
  return {"libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5", "libamdhip64.so"};
}

// Why /dev/kfd cannot be used; empty where it can.
std::string kfd_trouble(const char* path) {
  struct stat facts;
  if (stat(path, &facts))
    return std::string("there is no AMD GPU here: ") + path +
           " does not exist. Load the amdgpu driver, or give the container the device "
           "(Kubernetes: a limit of amd.com/gpu; docker: --device=/dev/kfd --device=/dev/dri)";
  const int file = open(path, O_RDWR | O_CLOEXEC);
  if (file >= 0) {
    close(file);
    return "";
  }
  if (errno != EACCES && errno != EPERM)
    return std::string(path) + " cannot be opened: " + std::strerror(errno);
  const struct group* owner = getgrgid(facts.st_gid);
  return text("%s may not be opened by this process: it belongs to group %u (%s), of which user %u "
              "is no member. Add the group (Kubernetes: accelerator.renderGroups; docker: "
              "--group-add %u)",
              path, facts.st_gid, owner ? owner->gr_name : "no name here", getuid(), facts.st_gid);
}

class Hip : public Api {
 public:
  Hip()
      : library_(runtime_names(),
                 "the HIP runtime is missing: no libamdhip64 can be opened. Use Flatwake's ROCm "
                 "image, install ROCm's runtime (package hip-runtime-amd), or name the file by "
                 "FLATWAKE_HIP_RUNTIME") {
    library_.take(error_text_, "hipGetErrorString");
    library_.take(init_, "hipInit");
    library_.take(device_count_, "hipGetDeviceCount");
    library_.take(set_device_, "hipSetDevice");
    library_.take(device_name_, "hipDeviceGetName");
    library_.take(attribute_, "hipDeviceGetAttribute");
    // The structure grew in ROCm 6, and the function of that one has a name of its own.
    library_.take_if_there(properties_, "hipGetDevicePropertiesR0600");
    if (!properties_) library_.take(properties_, "hipGetDeviceProperties");
    library_.take(memory_, "hipMemGetInfo");
    library_.take(malloc_, "hipMalloc");
    library_.take(free_, "hipFree");
    library_.take(host_malloc_, "hipHostMalloc");
    library_.take(host_free_, "hipHostFree");
    library_.take(memset_, "hipMemsetAsync");
    library_.take(memcpy_, "hipMemcpyAsync");
    library_.take(stream_create_, "hipStreamCreateWithFlags");
    library_.take(stream_destroy_, "hipStreamDestroy");
    library_.take(stream_synchronise_, "hipStreamSynchronize");
    library_.take(module_load_, "hipModuleLoadData");
    library_.take(module_function_, "hipModuleGetFunction");
    library_.take(module_unload_, "hipModuleUnload");
    library_.take(launch_, "hipModuleLaunchKernel");
    library_.take(event_create_, "hipEventCreateWithFlags");
    library_.take(event_record_, "hipEventRecord");
    library_.take(event_query_, "hipEventQuery");
    library_.take(event_synchronise_, "hipEventSynchronize");
    library_.take(event_elapsed_, "hipEventElapsedTime");
    library_.take(event_destroy_, "hipEventDestroy");
    library_.take(capture_begin_, "hipStreamBeginCapture");
    library_.take(capture_end_, "hipStreamEndCapture");
    library_.take(graph_nodes_, "hipGraphGetNodes");
    library_.take(graph_instantiate_, "hipGraphInstantiate");
    library_.take(graph_launch_, "hipGraphLaunch");
    library_.take(graph_destroy_, "hipGraphDestroy");
    library_.take(graph_exec_destroy_, "hipGraphExecDestroy");
  }

  int count() override {
    const char* other = std::getenv("FLATWAKE_KFD");  // for tests
    const std::string trouble = kfd_trouble(other ? other : KFD);
    if (!trouble.empty()) throw Error(FW_DEVICE, trouble);
    check(init_(0), "hipInit");
    int count = 0;
    const int code = device_count_(&count);
    if (code || !count)
      throw Error(FW_DEVICE,
                  text("HIP finds no device (%s), though %s can be opened: is /dev/dri/renderD* "
                       "there and of a group of this process, and does ROCR_VISIBLE_DEVICES or "
                       "HIP_VISIBLE_DEVICES hide it?",
                       code ? error_text_(code) : "count 0", KFD));
    return count;
  }

  ApiDevice describe(int device) override {
    char name[256] = {};
    check(device_name_(name, sizeof name, device), "hipDeviceGetName");
    const std::string arch = architecture(device);
    // As in portable_amd.h: MFMA with bfloat16, or WMMA.
    const bool matrix = arch == "gfx90a" || arch == "gfx942" || arch == "gfx950" ||
                        !arch.compare(0, 5, "gfx11") || !arch.compare(0, 5, "gfx12");
    ApiDevice facts{name, arch, 0, 0, matrix, FW_GEMM_BLOCK};
    check(attribute_(&facts.compute_units, COMPUTE_UNITS, device), "hipDeviceGetAttribute");
    check(attribute_(&facts.wave, WAVE_SIZE, device), "hipDeviceGetAttribute");
    return facts;
  }

  void open(int device) override { enter(device); }
  void enter(int device) override { check(set_device_(device), "hipSetDevice"); }

  void memory(size_t& free, size_t& total) override {
    check(memory_(&free, &total), "hipMemGetInfo");
  }
  void* allocate(size_t bytes) override {
    void* address = nullptr;
    const int code = malloc_(&address, bytes);
    if (code == OUT_OF_MEMORY) return nullptr;
    check(code, "hipMalloc");
    return address;
  }
  void release(void* address) override { check(free_(address), "hipFree"); }
  void* allocate_host(size_t bytes) override {
    void* address = nullptr;
    const int code = host_malloc_(&address, bytes, 0);
    if (code == OUT_OF_MEMORY) return nullptr;
    check(code, "hipHostMalloc");
    return address;
  }
  void release_host(void* address) override { check(host_free_(address), "hipHostFree"); }
  void zero(void* address, size_t bytes, Handle stream) override {
    check(memset_(address, 0, bytes, stream), "hipMemsetAsync");
  }
  void copy(void* target, const void* source, size_t bytes, int direction,
            Handle stream) override {
    check(memcpy_(target, source, bytes, COPY_KINDS[direction], stream), "hipMemcpyAsync");
  }

  Handle stream() override {
    Handle stream = nullptr;
    check(stream_create_(&stream, STREAM_NON_BLOCKING), "hipStreamCreateWithFlags");
    return stream;
  }
  void destroy_stream(Handle stream) override { stream_destroy_(stream); }
  void synchronise(Handle stream) override {
    check(stream_synchronise_(stream), "hipStreamSynchronize");
  }

  Handle module(const void* code) override {
    Handle module = nullptr;
    check(module_load_(&module, code), "hipModuleLoadData");
    return module;
  }
  Handle function(Handle module, const char* name) override {
    Handle function = nullptr;
    const int code = module_function_(&function, module, name);
    if (code == NOT_FOUND) return nullptr;
    check(code, "hipModuleGetFunction");
    return function;
  }
  void unload(Handle module) override { module_unload_(module); }
  void launch(Handle function, int x, int y, int z, int threads, Handle stream,
              void** arguments) override {
    check(launch_(function, x, y, z, threads, 1, 1, 0, stream, arguments, nullptr),
          "hipModuleLaunchKernel");
  }

  Handle event(bool blocking) override {
    Handle event = nullptr;
    check(event_create_(&event, blocking ? EVENT_BLOCKING : 0), "hipEventCreateWithFlags");
    return event;
  }
  void record(Handle event, Handle stream) override {
    check(event_record_(event, stream), "hipEventRecord");
  }
  bool passed(Handle event) override {
    const int code = event_query_(event);
    if (code == NOT_READY) return false;
    check(code, "hipEventQuery");
    return true;
  }
  void wait(Handle event) override { check(event_synchronise_(event), "hipEventSynchronize"); }
  double seconds(Handle from, Handle to) override {
    float milliseconds = 0;
    check(event_elapsed_(&milliseconds, from, to), "hipEventElapsedTime");
    return milliseconds / 1e3;
  }
  void destroy_event(Handle event) override { event_destroy_(event); }

  void begin_capture(Handle stream) override {
    check(capture_begin_(stream, CAPTURE_THREAD_LOCAL), "hipStreamBeginCapture");
  }
  Handle end_capture(Handle stream) override {
    Handle graph = nullptr;
    check(capture_end_(stream, &graph), "hipStreamEndCapture");
    return graph;
  }
  int nodes(Handle graph) override {
    size_t count = 0;
    check(graph_nodes_(graph, nullptr, &count), "hipGraphGetNodes");
    return (int)count;
  }
  Handle instantiate(Handle graph) override {
    Handle executable = nullptr;
    check(graph_instantiate_(&executable, graph, nullptr, nullptr, 0), "hipGraphInstantiate");
    return executable;
  }
  void launch_graph(Handle executable, Handle stream) override {
    check(graph_launch_(executable, stream), "hipGraphLaunch");
  }
  void destroy_graph(Handle graph) override { graph_destroy_(graph); }
  void destroy_executable(Handle executable) override { graph_exec_destroy_(executable); }

 private:
  void check(int code, const char* call) {
    if (code != SUCCESS)
      throw Error(code == OUT_OF_MEMORY ? FW_MEMORY : FW_DEVICE,
                  text("%s failed: %s (%d)", call, error_text_(code), code));
  }

  // "gfx90a" of "gfx90a:sramecc+:xnack-". The structure differs between ROCm's versions, but only
  // one of its texts begins with gfx.
  std::string architecture(int device) {
    std::vector<char> properties(16384);
    check(properties_(properties.data(), device), "hipGetDeviceProperties");
    for (size_t i = 256; i + 32 < properties.size(); i++) {
      const char* at = properties.data() + i;
      if (!std::strncmp(at, "gfx", 3)) return std::string(at, std::strcspn(at, ":"));
    }
    throw Error(FW_DEVICE, "HIP does not say which architecture the device is");
  }

  Dynamic library_;
  const char* (*error_text_)(int);
  int (*init_)(unsigned);
  int (*device_count_)(int*);
  int (*set_device_)(int);
  int (*device_name_)(char*, int, int);
  int (*attribute_)(int*, int, int);
  int (*properties_)(void*, int);
  int (*memory_)(size_t*, size_t*);
  int (*malloc_)(void**, size_t);
  int (*free_)(void*);
  int (*host_malloc_)(void**, size_t, unsigned);
  int (*host_free_)(void*);
  int (*memset_)(void*, int, size_t, Handle);
  int (*memcpy_)(void*, const void*, size_t, int, Handle);
  int (*stream_create_)(Handle*, unsigned);
  int (*stream_destroy_)(Handle);
  int (*stream_synchronise_)(Handle);
  int (*module_load_)(Handle*, const void*);
  int (*module_function_)(Handle*, Handle, const char*);
  int (*module_unload_)(Handle);
  int (*launch_)(Handle, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                 Handle, void**, void**);
  int (*event_create_)(Handle*, unsigned);
  int (*event_record_)(Handle, Handle);
  int (*event_query_)(Handle);
  int (*event_synchronise_)(Handle);
  int (*event_elapsed_)(float*, Handle, Handle);
  int (*event_destroy_)(Handle);
  int (*capture_begin_)(Handle, int);
  int (*capture_end_)(Handle, Handle*);
  int (*graph_nodes_)(Handle, Handle*, size_t*);
  int (*graph_instantiate_)(Handle*, Handle, Handle*, char*, size_t);
  int (*graph_launch_)(Handle, Handle);
  int (*graph_destroy_)(Handle);
  int (*graph_exec_destroy_)(Handle);
};

}  // namespace

Api& vendor_api() {
  static Hip hip;  // where the constructor throws, the next call tries again
  return hip;
}

}  // namespace fw::runtime
