// The C ABI's edge: handles in, codes out. Nothing throws past it.
#include "flatwake/abi.h"

#include <cstring>
#include <new>
#include <string>

#include "cgroup.h"
#include "context.h"
#include "error.h"
#include "layer.h"
#include "measure.h"
#include "plan.h"

using flatwake::Context;
using flatwake::Failure;
using flatwake::Layer;
using flatwake::Plan;

struct fw_event {};

namespace {

thread_local std::string last_error;

template <class Job>
int32_t guarded(const Job& job) {
  try {
    job();
    return FW_OK;
  } catch (const Failure& failure) {
    last_error = failure.what();
    return failure.code();
  } catch (const std::bad_alloc&) {
    last_error = "out of memory";
    return FW_MEMORY;
  } catch (const std::exception& error) {
    last_error = error.what();
    return FW_DEVICE;
  }
}

template <class T>
T& checked(T* pointer, const char* what) {
  if (!pointer) throw Failure(FW_INVALID, std::string(what) + " is null");
  return *pointer;
}

Context& of(fw_context* context) {
  return checked(reinterpret_cast<Context*>(context), "context");
}

Plan& of(fw_plan* plan) { return checked(reinterpret_cast<Plan*>(plan), "plan"); }

void must_be_measured(int32_t repeats) {
  if (repeats < 1) throw Failure(FW_INVALID, "at least one repeat is measured");
}

fw_event the_event;

}  // namespace

extern "C" {

int32_t fw_abi_version(void) { return FW_ABI_VERSION; }

const char* fw_layout(void) {
  struct Field {
    const char *type, *name;
    size_t at, size;
  };
#define FW_FIELD(type, name) {#type, #name, offsetof(type, name), sizeof(((type*)nullptr)->name)},
#define FW_END(type) {#type, "-", sizeof(type), alignof(type)},
  static const Field fields[] = {FW_LAYOUT(FW_FIELD, FW_END)};
#undef FW_FIELD
#undef FW_END
  static const std::string text = [] {
    std::string lines;
    for (const Field& f : fields)
      lines += std::string(f.type) + " " + f.name + " " + std::to_string(f.at) + " " +
               std::to_string(f.size) + "\n";
    return lines;
  }();
  return text.c_str();
}

const char* fw_error(void) { return last_error.c_str(); }

int32_t fw_device_count(int32_t* count) {
  return guarded([&] { checked(count, "count") = 1; });
}

int32_t fw_context_create(const fw_context_options* options, fw_context** context) {
  return guarded([&] {
    auto* made = new Context(checked(options, "options"));
    checked(context, "context") = reinterpret_cast<fw_context*>(made);
  });
}

void fw_context_destroy(fw_context* context) { delete reinterpret_cast<Context*>(context); }

int32_t fw_device(fw_context* context, fw_device_info* info) {
  return guarded([&] { of(context).describe(checked(info, "info")); });
}

int32_t fw_memory(fw_context* context, fw_memory_info* info) {
  return guarded([&] {
    const flatwake::HostMemory host = flatwake::host_memory();
    const flatwake::Memory& own = of(context).memory();
    checked(info, "info") = {host.total, host.free, own.allocated(), own.peak()};
  });
}

int32_t fw_supports(fw_context* context, int32_t op) {
  if (!context || op < 0 || op >= FW_OP_COUNT) return 0;
  return reinterpret_cast<Context*>(context)->kernels().run[op] ? 1 : 0;
}

int32_t fw_allocate(fw_context* context, int64_t bytes, int32_t kind, uint64_t* address) {
  return guarded([&] {
    if (kind != FW_MEMORY_DEVICE && kind != FW_MEMORY_PINNED)
      throw Failure(FW_INVALID, "memory kind " + std::to_string(kind) + " is unknown");
    checked(address, "address") = of(context).memory().allocate(bytes);
  });
}

int32_t fw_free(fw_context* context, int32_t, uint64_t address) {
  return guarded([&] {
    of(context).team().settle();
    of(context).memory().release(address);
  });
}

int32_t fw_copy(fw_context* context, uint64_t target, uint64_t source, int64_t bytes, int32_t) {
  return guarded([&] {
    of(context);
    if (bytes < 0 || (bytes && (!target || !source)))
      throw Failure(FW_INVALID, "a copy needs two addresses and a size");
    memmove(reinterpret_cast<void*>(target), reinterpret_cast<const void*>(source), size_t(bytes));
  });
}

// Runs and copies are done when they return, so every event has passed.
int32_t fw_event_create(fw_context* context, fw_event** event) {
  return guarded([&] {
    of(context);
    checked(event, "event") = &the_event;
  });
}

int32_t fw_event_record(fw_event* event) {
  return guarded([&] { checked(event, "event"); });
}

int32_t fw_event_wait(fw_event* event) {
  return guarded([&] { checked(event, "event"); });
}

void fw_event_destroy(fw_event*) {}

int32_t fw_linear_prepare(fw_context* context, const fw_weight_view* views, int32_t count,
                          int32_t activations, fw_linear** linear, fw_linear_info* info) {
  return guarded([&] {
    if (activations != FW_ACTIVATIONS_FLOAT && activations != FW_ACTIVATIONS_INT8)
      throw Failure(FW_INVALID, "activations " + std::to_string(activations) + " are unknown");
    auto* layer = new Layer(of(context), &checked(views, "views"), count, activations);
    checked(linear, "linear") = reinterpret_cast<fw_linear*>(layer);
    checked(info, "info") = layer->info();
  });
}

void fw_linear_destroy(fw_linear* linear) { delete reinterpret_cast<Layer*>(linear); }

int32_t fw_plan_create(fw_context* context, const fw_call* calls, int32_t count, fw_plan** plan) {
  return guarded([&] {
    if (count < 0 || (count && !calls)) throw Failure(FW_INVALID, "calls are missing");
    checked(plan, "plan") = reinterpret_cast<fw_plan*>(new Plan(of(context), calls, count));
  });
}

int32_t fw_plan_capture(fw_plan* plan) {
  return guarded([&] { of(plan); });
}

int32_t fw_plan_run(fw_plan* plan) {
  return guarded([&] { of(plan).run(); });
}

int32_t fw_plan_trace(fw_plan* plan, double* seconds, int32_t count) {
  return guarded([&] { of(plan).trace(&checked(seconds, "seconds"), count); });
}

void fw_plan_destroy(fw_plan* plan) { delete reinterpret_cast<Plan*>(plan); }

int32_t fw_measure_read(fw_context* context, int64_t bytes, int32_t repeats, double* seconds) {
  return guarded([&] {
    must_be_measured(repeats);
    checked(seconds, "seconds") = flatwake::measure_read(of(context), bytes, repeats);
  });
}

int32_t fw_measure_compute(fw_context* context, int32_t activations, int32_t repeats,
                           double* products) {
  return guarded([&] {
    must_be_measured(repeats);
    checked(products, "products") =
        flatwake::measure_compute(of(context), activations == FW_ACTIVATIONS_INT8, repeats);
  });
}

}  // extern "C"
