// The C ABI over the runtime: errors become codes, handles become objects.
#include <cstring>
#include <new>

#include "runtime/measure.h"
#include "runtime/plan.h"

using namespace fw::runtime;

struct fw_event {
  Context& context;
  std::unique_ptr<Event> event;
};

namespace {

thread_local std::string last_error;

template <typename Body>
int32_t guarded(Body body) {
  try {
    body();
    return FW_OK;
  } catch (const Error& error) {
    last_error = error.what();
    return error.code();
  } catch (const std::bad_alloc&) {
    last_error = "the host has no memory left";
    return FW_MEMORY;
  } catch (const std::exception& error) {
    last_error = error.what();
    return FW_DEVICE;
  }
}

Context& of(fw_context* context) {
  if (!context) throw Error(FW_INVALID, "no context");
  auto& of = *reinterpret_cast<Context*>(context);
  of.driver().enter();
  return of;
}

Plan& of(fw_plan* plan) {
  if (!plan) throw Error(FW_INVALID, "no plan");
  auto& of = *reinterpret_cast<Plan*>(plan);
  of.context().driver().enter();
  return of;
}

fw_event& of(fw_event* event) {
  if (!event) throw Error(FW_INVALID, "no event");
  event->context.driver().enter();
  return *event;
}

template <size_t N>
void put(char (&to)[N], const std::string& text) {
  std::strncpy(to, text.c_str(), N - 1);
  to[N - 1] = 0;
}

}  // namespace

int32_t fw_abi_version(void) { return FW_ABI_VERSION; }

const char* fw_error(void) { return last_error.c_str(); }

int32_t fw_device_count(int32_t* count) {
  return guarded([&] { *count = count_devices(); });
}

int32_t fw_context_create(const fw_context_options* options, fw_context** context) {
  return guarded([&] { *context = reinterpret_cast<fw_context*>(new Context(*options)); });
}

void fw_context_destroy(fw_context* context) { delete reinterpret_cast<Context*>(context); }

int32_t fw_device(fw_context* context, fw_device_info* info) {
  return guarded([&] {
    const DeviceFacts& facts = of(context).facts();
    put(info->name, facts.name);
    put(info->architecture, facts.architecture);
    put(info->features, facts.features);
    info->compute_units = facts.compute_units;
    info->wave = facts.wave;
  });
}

int32_t fw_memory(fw_context* context, fw_memory_info* info) {
  return guarded([&] { *info = of(context).memory(); });
}

int32_t fw_supports(fw_context*, int32_t op) { return lowers(op); }

int32_t fw_allocate(fw_context* context, int64_t bytes, int32_t kind, uint64_t* address) {
  return guarded([&] {
    *address = reinterpret_cast<uint64_t>(of(context).allocate(bytes, kind));
  });
}

int32_t fw_free(fw_context* context, int32_t kind, uint64_t address) {
  return guarded([&] { of(context).release(reinterpret_cast<void*>(address), kind); });
}

int32_t fw_copy(fw_context* context, uint64_t target, uint64_t source, int64_t bytes,
                int32_t direction) {
  return guarded([&] {
    Context& to = of(context);
    if (bytes < 0 || direction < FW_COPY_TO_DEVICE || direction > FW_COPY_ON_DEVICE)
      throw Error(FW_INVALID, text("cannot copy %lld bytes in direction %d", (long long)bytes, direction));
    if (bytes)
      to.driver().copy(reinterpret_cast<void*>(target), reinterpret_cast<const void*>(source),
                       bytes, direction);
  });
}

int32_t fw_event_create(fw_context* context, fw_event** event) {
  return guarded([&] {
    Context& to = of(context);
    *event = new fw_event{to, to.driver().event(to.blocking())};
  });
}

int32_t fw_event_record(fw_event* event) {
  return guarded([&] { of(event).event->record(); });
}

int32_t fw_event_wait(fw_event* event) {
  return guarded([&] {
    of(event).event->wait();
    event->context.stamp();
  });
}

void fw_event_destroy(fw_event* event) { delete event; }

int32_t fw_linear_prepare(fw_context* context, const fw_weight_view* views, int32_t count,
                          int32_t activations, fw_linear** linear, fw_linear_info* info) {
  return guarded([&] {
    Context& to = of(context);
    if (activations != FW_ACTIVATIONS_FLOAT && Weights::quantised(views, count))
      throw Error(FW_UNSUPPORTED, "int8 activations are not built for GPUs: use float");
    auto weights = std::make_unique<Weights>(to, views, count);
    *info = weights->info();
    *linear = reinterpret_cast<fw_linear*>(weights.release());
  });
}

void fw_linear_destroy(fw_linear* linear) { delete reinterpret_cast<Weights*>(linear); }

int32_t fw_plan_create(fw_context* context, const fw_call* calls, int32_t count, fw_plan** plan) {
  return guarded([&] {
    *plan = reinterpret_cast<fw_plan*>(new Plan(of(context), calls, count));
  });
}

int32_t fw_plan_capture(fw_plan* plan) {
  return guarded([&] { of(plan).capture(); });
}

int32_t fw_plan_run(fw_plan* plan) {
  return guarded([&] { of(plan).run(); });
}

int32_t fw_plan_trace(fw_plan* plan, double* seconds, int32_t count) {
  return guarded([&] { of(plan).trace(seconds, count); });
}

void fw_plan_destroy(fw_plan* plan) { delete reinterpret_cast<Plan*>(plan); }

int32_t fw_measure_read(fw_context* context, int64_t bytes, int32_t repeats, double* seconds) {
  return guarded([&] {
    if (repeats < 1) throw Error(FW_INVALID, "at least one repeat is measured");
    *seconds = measure_read(of(context), bytes, repeats);
  });
}

int32_t fw_plan_launches(fw_plan* plan, int32_t* launches, int32_t* nodes) {
  return guarded([&] {
    *launches = of(plan).launches();
    if (nodes) *nodes = of(plan).graph_nodes();
  });
}
