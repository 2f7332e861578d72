// The driver over a vendor's interface: modules, one stream, graphs by stream capture.
#include <mutex>
#include <unordered_map>

#include "runtime/driver.h"
#include "runtime/module_api.h"

namespace fw::runtime {

class Kernel {
 public:
  explicit Kernel(Handle function) : function(function) {}
  Handle function;
};

namespace {

class ModuleEvent : public Event {
 public:
  ModuleEvent(Api& api, Handle stream, bool blocking)
      : api_(api), stream_(stream), blocking_(blocking), event_(api.event(blocking)) {}
  ~ModuleEvent() override { api_.destroy_event(event_); }
  void record() override { api_.record(event_, stream_); }
  void wait() override {
    if (!blocking_)
      while (!api_.passed(event_)) {
#if defined(__x86_64__)
        __builtin_ia32_pause();
#endif
      }
    else api_.wait(event_);
  }
  double since(const Event& earlier) const override {
    return api_.seconds(dynamic_cast<const ModuleEvent&>(earlier).event_, event_);
  }

 private:
  Api& api_;
  Handle stream_;
  bool blocking_;
  Handle event_;
};

class ModuleGraph : public Graph {
 public:
  ModuleGraph(Api& api, Handle stream, Handle graph) : api_(api), stream_(stream), graph_(graph) {
    nodes_ = api.nodes(graph);
    executable_ = api.instantiate(graph);
  }
  ~ModuleGraph() override {
    api_.destroy_executable(executable_);
    api_.destroy_graph(graph_);
  }
  void launch() override { api_.launch_graph(executable_, stream_); }
  int nodes() const override { return nodes_; }

 private:
  Api& api_;
  Handle stream_, graph_, executable_;
  int nodes_;
};

class ModuleDriver : public Driver {
 public:
  ModuleDriver(Api& api, int device)
      : api_(api), device_(device), facts_(api.describe(device)) {
    const auto objects = code_objects(facts_.architecture);
    if (objects.empty())
      throw Error(FW_UNSUPPORTED, "device " + std::to_string(device) + " is a " +
                                      facts_.architecture +
                                      ", for which no kernels were built: this library has " +
                                      built_architectures());
    api_.open(device);
    stream_ = api_.stream();
    for (const CodeObject& object : objects) modules_.push_back(api_.module(object.data));
  }
  ~ModuleDriver() override {
    kernels_.clear();
    for (Handle module : modules_) api_.unload(module);
    api_.destroy_stream(stream_);
  }
  void enter() override { api_.enter(device_); }
  DeviceFacts facts() const override {
    return {facts_.name, facts_.architecture, "graphs", facts_.compute_units, facts_.wave,
            facts_.matrix_units, facts_.gemm_threads};
  }
  MemoryFacts memory() const override {
    size_t free, total;
    api_.memory(free, total);
    return {(int64_t)total, (int64_t)free};
  }
  void* allocate(int64_t bytes, int kind) override {
    void* address =
        kind == FW_MEMORY_PINNED ? api_.allocate_host(bytes) : api_.allocate(bytes);
    if (!address) return nullptr;
    if (kind == FW_MEMORY_PINNED) __builtin_memset(address, 0, bytes);
    else api_.zero(address, bytes, stream_);
    return address;
  }
  void release(void* address, int kind) override {
    if (kind == FW_MEMORY_PINNED) api_.release_host(address);
    else api_.release(address);
  }
  void copy(void* target, const void* source, int64_t bytes, int direction) override {
    api_.copy(target, source, bytes, direction, stream_);
  }
  const Kernel* kernel(const std::string& name) override {
    const auto known = kernels_.find(name);
    if (known != kernels_.end()) return known->second.get();
    for (Handle module : modules_)
      if (Handle function = api_.function(module, name.c_str()))
        return kernels_.emplace(name, std::make_unique<Kernel>(function)).first->second.get();
    throw Error(FW_UNSUPPORTED, "no kernel " + name + " was built for " + facts_.architecture);
  }
  void launch(const Launch& launch) override {
    void* argument = const_cast<char*>(launch.parameters);
    api_.launch(launch.kernel->function, launch.grid.x, launch.grid.y, launch.grid.z,
                launch.threads, stream_, &argument);
  }
  std::unique_ptr<Event> event(bool blocking) override {
    return std::make_unique<ModuleEvent>(api_, stream_, blocking);
  }
  std::unique_ptr<Graph> capture(const std::function<void()>& launches) override {
    api_.begin_capture(stream_);
    try {
      launches();
    } catch (...) {
      if (Handle graph = api_.end_capture(stream_)) api_.destroy_graph(graph);
      throw;
    }
    return std::make_unique<ModuleGraph>(api_, stream_, api_.end_capture(stream_));
  }
  void synchronise() override { api_.synchronise(stream_); }

 private:
  Api& api_;
  int device_;
  ApiDevice facts_;
  Handle stream_ = nullptr;
  std::vector<Handle> modules_;
  std::unordered_map<std::string, std::unique_ptr<Kernel>> kernels_;
};

}  // namespace

int count_devices() { return vendor_api().count(); }

std::unique_ptr<Driver> open_driver(int device, const Settings& settings) {
  check_settings(settings, {});
  Api& api = vendor_api();
  const int count = api.count();
  if (device < 0 || device >= count)
    throw Error(FW_INVALID, text("device %d is not there: %d are", device, count));
  return std::make_unique<ModuleDriver>(api, device);
}

}  // namespace fw::runtime
