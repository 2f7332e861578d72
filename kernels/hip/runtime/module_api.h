// A GPU vendor's driver interface, found at run time. HIP's and CUDA's are alike enough for one
// driver (module_driver.cpp) over both: what is measured through CUDA is what AMD runs.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "runtime/error.h"

namespace fw::runtime {

// Code objects that the build put into this library: one a source file and architecture.
struct CodeObject {
  const char* architecture;
  const char* source;
  const void* data;
  uint64_t bytes;
};
std::vector<CodeObject> code_objects(const std::string& architecture);
std::string built_architectures();  // "gfx906, gfx908, …"

using Handle = void*;

struct ApiDevice {
  std::string name, architecture;
  int compute_units, wave;
  bool matrix_units;
  int gemm_threads;
};

// Every call throws Error(FW_DEVICE) with the call's name and the vendor's text.
class Api {
 public:
  virtual ~Api() = default;
  // The number of devices; an Error says what is missing where there is none.
  virtual int count() = 0;
  virtual ApiDevice describe(int device) = 0;
  virtual void open(int device) = 0;  // for the calling thread
  virtual void enter(int device) = 0;

  virtual void memory(size_t& free, size_t& total) = 0;
  virtual void* allocate(size_t bytes) = 0;  // nullptr: not enough
  virtual void release(void* address) = 0;
  virtual void* allocate_host(size_t bytes) = 0;
  virtual void release_host(void* address) = 0;
  virtual void zero(void* address, size_t bytes, Handle stream) = 0;
  virtual void copy(void* target, const void* source, size_t bytes, int direction,
                    Handle stream) = 0;

  virtual Handle stream() = 0;
  virtual void destroy_stream(Handle stream) = 0;
  virtual void synchronise(Handle stream) = 0;

  virtual Handle module(const void* code) = 0;
  virtual Handle function(Handle module, const char* name) = 0;  // nullptr: it isn't there
  virtual void unload(Handle module) = 0;
  virtual void launch(Handle function, int x, int y, int z, int threads, Handle stream,
                      void** arguments) = 0;

  virtual Handle event(bool blocking) = 0;
  virtual void record(Handle event, Handle stream) = 0;
  virtual bool passed(Handle event) = 0;
  virtual void wait(Handle event) = 0;
  virtual double seconds(Handle from, Handle to) = 0;
  virtual void destroy_event(Handle event) = 0;

  virtual void begin_capture(Handle stream) = 0;
  virtual Handle end_capture(Handle stream) = 0;
  virtual int nodes(Handle graph) = 0;
  virtual Handle instantiate(Handle graph) = 0;
  virtual void launch_graph(Handle executable, Handle stream) = 0;
  virtual void destroy_graph(Handle graph) = 0;
  virtual void destroy_executable(Handle executable) = 0;
};

// The vendor's library, opened once; an Error says what is missing.
Api& vendor_api();

// A shared library of which functions are taken by name.
class Dynamic {
 public:
  // The first of `names` that opens; `missing` begins the message where none does.
  Dynamic(std::vector<const char*> names, const char* missing);
  template <typename Function>
  void take(Function& function, const char* name) {
    function = reinterpret_cast<Function>(find(name, true));
  }
  template <typename Function>
  void take_if_there(Function& function, const char* name) {
    function = reinterpret_cast<Function>(find(name, false));
  }

 private:
  void* find(const char* name, bool required);
  void* library_ = nullptr;
  std::string name_;
};

}  // namespace fw::runtime
