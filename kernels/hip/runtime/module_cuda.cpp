// CUDA's driver interface, from libcuda at run time: the stand-in for measuring.
#include <unordered_map>

#include "parameters.h"
#include "runtime/module_api.h"

namespace fw::runtime {

namespace {

constexpr int SUCCESS = 0, OUT_OF_MEMORY = 2, NOT_FOUND = 500, NOT_READY = 600;
constexpr int COMPUTE_UNITS = 16, MAJOR = 75, MINOR = 76;  // of CUdevice_attribute
constexpr unsigned STREAM_NON_BLOCKING = 1, EVENT_BLOCKING = 1;
constexpr int CAPTURE_THREAD_LOCAL = 1;
constexpr int MAX_DYNAMIC_LDS = 8;  // of CUfunction_attribute

using Address = unsigned long long;

class Cuda : public Api {
 public:
  Cuda()
      : library_({"libcuda.so.1", "libcuda.so"},
                 "the NVIDIA driver is missing: no libcuda can be opened") {
    library_.take(error_text_, "cuGetErrorString");
    library_.take(init_, "cuInit");
    library_.take(device_count_, "cuDeviceGetCount");
    library_.take(device_name_, "cuDeviceGetName");
    library_.take(attribute_, "cuDeviceGetAttribute");
    library_.take(retain_, "cuDevicePrimaryCtxRetain");
    library_.take(set_current_, "cuCtxSetCurrent");
    library_.take(memory_, "cuMemGetInfo_v2");
    library_.take(malloc_, "cuMemAlloc_v2");
    library_.take(free_, "cuMemFree_v2");
    library_.take(host_malloc_, "cuMemHostAlloc");
    library_.take(host_free_, "cuMemFreeHost");
    library_.take(memset_, "cuMemsetD8Async");
    library_.take(memcpy_, "cuMemcpyAsync");
    library_.take(stream_create_, "cuStreamCreate");
    library_.take(stream_destroy_, "cuStreamDestroy_v2");
    library_.take(stream_synchronise_, "cuStreamSynchronize");
    library_.take(module_load_, "cuModuleLoadData");
    library_.take(module_function_, "cuModuleGetFunction");
    library_.take(module_global_, "cuModuleGetGlobal_v2");
    library_.take(function_set_, "cuFuncSetAttribute");
    library_.take(module_unload_, "cuModuleUnload");
    library_.take(launch_, "cuLaunchKernel");
    library_.take(event_create_, "cuEventCreate");
    library_.take(event_record_, "cuEventRecord");
    library_.take(event_query_, "cuEventQuery");
    library_.take(event_synchronise_, "cuEventSynchronize");
    library_.take(event_elapsed_, "cuEventElapsedTime");
    library_.take(event_destroy_, "cuEventDestroy_v2");
    library_.take(capture_begin_, "cuStreamBeginCapture_v2");
    library_.take(capture_end_, "cuStreamEndCapture");
    library_.take(graph_nodes_, "cuGraphGetNodes");
    library_.take(graph_instantiate_, "cuGraphInstantiateWithFlags");
    library_.take(graph_launch_, "cuGraphLaunch");
    library_.take(graph_destroy_, "cuGraphDestroy");
    library_.take(graph_exec_destroy_, "cuGraphExecDestroy");
  }

  int count() override {
    check(init_(0), "cuInit");
    int count = 0;
    check(device_count_(&count), "cuDeviceGetCount");
    if (!count) throw Error(FW_DEVICE, "CUDA finds no device");
    return count;
  }

  ApiDevice describe(int device) override {
    char name[256] = {};
    int major = 0, minor = 0;
    ApiDevice facts{"", "", 0, 32, true, FW_GEMM_BLOCK_ASYNC};
    check(device_name_(name, sizeof name, device), "cuDeviceGetName");
    check(attribute_(&major, MAJOR, device), "cuDeviceGetAttribute");
    check(attribute_(&minor, MINOR, device), "cuDeviceGetAttribute");
    check(attribute_(&facts.compute_units, COMPUTE_UNITS, device), "cuDeviceGetAttribute");
    facts.name = name;
    facts.architecture = "sm_" + std::to_string(major) + std::to_string(minor);
    return facts;
  }

  void open(int device) override {
    if (contexts_.size() <= (size_t)device) contexts_.resize(device + 1);
    if (!contexts_[device]) check(retain_(&contexts_[device], device), "cuDevicePrimaryCtxRetain");
    enter(device);
  }
  void enter(int device) override { check(set_current_(contexts_[device]), "cuCtxSetCurrent"); }

  void memory(size_t& free, size_t& total) override {
    check(memory_(&free, &total), "cuMemGetInfo");
  }
  void* allocate(size_t bytes) override {
    Address address = 0;
    const int code = malloc_(&address, bytes);
    if (code == OUT_OF_MEMORY) return nullptr;
    check(code, "cuMemAlloc");
    return reinterpret_cast<void*>(address);
  }
  void release(void* address) override { check(free_(number(address)), "cuMemFree"); }
  void* allocate_host(size_t bytes) override {
    void* address = nullptr;
    const int code = host_malloc_(&address, bytes, 0);
    if (code == OUT_OF_MEMORY) return nullptr;
    check(code, "cuMemHostAlloc");
    return address;
  }
  void release_host(void* address) override { check(host_free_(address), "cuMemFreeHost"); }
  void zero(void* address, size_t bytes, Handle stream) override {
    check(memset_(number(address), 0, bytes, stream), "cuMemsetD8Async");
  }
  void copy(void* target, const void* source, size_t bytes, int, Handle stream) override {
    check(memcpy_(number(target), number(source), bytes, stream), "cuMemcpyAsync");
  }

  Handle stream() override {
    Handle stream = nullptr;
    check(stream_create_(&stream, STREAM_NON_BLOCKING), "cuStreamCreate");
    return stream;
  }
  void destroy_stream(Handle stream) override { stream_destroy_(stream); }
  void synchronise(Handle stream) override {
    check(stream_synchronise_(stream), "cuStreamSynchronize");
  }

  Handle module(const void* code) override {
    Handle module = nullptr;
    check(module_load_(&module, code), "cuModuleLoadData");
    return module;
  }
  Handle function(Handle module, const char* name) override {
    Handle function = nullptr;
    const int code = module_function_(&function, module, name);
    if (code == NOT_FOUND) return nullptr;
    check(code, "cuModuleGetFunction");
    // A kernel with more LDS than may be declared says so by a variable of as many bytes as it takes KiB.
    Address ignored = 0;
    size_t kibibytes = 0;
    if (module_global_(&ignored, &kibibytes, module, (std::string(name) + "_lds").c_str()) == SUCCESS) {
      lds_[function] = (unsigned)kibibytes << 10;
      check(function_set_(function, MAX_DYNAMIC_LDS, (int)lds_[function]), "cuFuncSetAttribute");
    }
    return function;
  }
  void unload(Handle module) override { module_unload_(module); }
  void launch(Handle function, int x, int y, int z, int threads, Handle stream,
              void** arguments) override {
    const auto lds = lds_.find(function);
    check(launch_(function, x, y, z, threads, 1, 1, lds == lds_.end() ? 0 : lds->second, stream,
                  arguments, nullptr),
          "cuLaunchKernel");
  }

  Handle event(bool blocking) override {
    Handle event = nullptr;
    check(event_create_(&event, blocking ? EVENT_BLOCKING : 0), "cuEventCreate");
    return event;
  }
  void record(Handle event, Handle stream) override {
    check(event_record_(event, stream), "cuEventRecord");
  }
  bool passed(Handle event) override {
    const int code = event_query_(event);
    if (code == NOT_READY) return false;
    check(code, "cuEventQuery");
    return true;
  }
  void wait(Handle event) override { check(event_synchronise_(event), "cuEventSynchronize"); }
  double seconds(Handle from, Handle to) override {
    float milliseconds = 0;
    check(event_elapsed_(&milliseconds, from, to), "cuEventElapsedTime");
    return milliseconds / 1e3;
  }
  void destroy_event(Handle event) override { event_destroy_(event); }

  void begin_capture(Handle stream) override {
    check(capture_begin_(stream, CAPTURE_THREAD_LOCAL), "cuStreamBeginCapture");
  }
  Handle end_capture(Handle stream) override {
    Handle graph = nullptr;
    check(capture_end_(stream, &graph), "cuStreamEndCapture");
    return graph;
  }
  int nodes(Handle graph) override {
    size_t count = 0;
    check(graph_nodes_(graph, nullptr, &count), "cuGraphGetNodes");
    return (int)count;
  }
  Handle instantiate(Handle graph) override {
    Handle executable = nullptr;
    check(graph_instantiate_(&executable, graph, 0), "cuGraphInstantiateWithFlags");
    return executable;
  }
  void launch_graph(Handle executable, Handle stream) override {
    check(graph_launch_(executable, stream), "cuGraphLaunch");
  }
  void destroy_graph(Handle graph) override { graph_destroy_(graph); }
  void destroy_executable(Handle executable) override { graph_exec_destroy_(executable); }

 private:
  static Address number(const void* address) { return reinterpret_cast<Address>(address); }

  void check(int code, const char* call) {
    if (code == SUCCESS) return;
    const char* why = nullptr;
    error_text_(code, &why);
    throw Error(code == OUT_OF_MEMORY ? FW_MEMORY : FW_DEVICE,
                text("%s failed: %s (%d)", call, why ? why : "no text", code));
  }

  Dynamic library_;
  std::vector<Handle> contexts_;
  std::unordered_map<Handle, unsigned> lds_;  // bytes that a function's launch gives
  int (*error_text_)(int, const char**);
  int (*init_)(unsigned);
  int (*device_count_)(int*);
  int (*device_name_)(char*, int, int);
  int (*attribute_)(int*, int, int);
  int (*retain_)(Handle*, int);
  int (*set_current_)(Handle);
  int (*memory_)(size_t*, size_t*);
  int (*malloc_)(Address*, size_t);
  int (*free_)(Address);
  int (*host_malloc_)(void**, size_t, unsigned);
  int (*host_free_)(void*);
  int (*memset_)(Address, unsigned char, size_t, Handle);
  int (*memcpy_)(Address, Address, size_t, Handle);
  int (*stream_create_)(Handle*, unsigned);
  int (*stream_destroy_)(Handle);
  int (*stream_synchronise_)(Handle);
  int (*module_load_)(Handle*, const void*);
  int (*module_function_)(Handle*, Handle, const char*);
  int (*module_global_)(Address*, size_t*, Handle, const char*);
  int (*function_set_)(Handle, int, int);
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
  int (*graph_instantiate_)(Handle*, Handle, unsigned long long);
  int (*graph_launch_)(Handle, Handle);
  int (*graph_destroy_)(Handle);
  int (*graph_exec_destroy_)(Handle);
};

}  // namespace

Api& vendor_api() {
  static Cuda cuda;
  return cuda;
}

}  // namespace fw::runtime
