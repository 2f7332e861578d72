/* The C ABI of every Flatwake kernel library.
 *
 * Fixed-width fields, explicit padding, no bool or enum in structs. Calls return FW_OK or a code
 * above it; fw_error() then has the text, for the calling thread. Addresses are uint64_t. The
 * library owns device, stream, memory and graphs; a context belongs to one thread at a time.
 */
#ifndef FLATWAKE_ABI_H
#define FLATWAKE_ABI_H

#include "ops.h"

#ifdef __cplusplus
extern "C" {
#endif

#define FW_ABI_VERSION 1

#define FW_OK 0
#define FW_INVALID 1     /* a caller's mistake: a size, a type, a handle */
#define FW_UNSUPPORTED 2 /* this library or device does not do it */
#define FW_MEMORY 3      /* not enough of it */
#define FW_DEVICE 4      /* the device or its runtime failed */

#define FW_MEMORY_DEVICE 0
#define FW_MEMORY_PINNED 1

#define FW_COPY_TO_DEVICE 0
#define FW_COPY_TO_HOST 1
#define FW_COPY_ON_DEVICE 2

#define FW_ACTIVATIONS_FLOAT 0
#define FW_ACTIVATIONS_INT8 1

#define FW_WAIT_SPIN 0
#define FW_WAIT_BLOCK 1

#if defined(_WIN32)
#define FW_EXPORT
#else
#define FW_EXPORT __attribute__((visibility("default")))
#endif

typedef struct fw_context fw_context;
typedef struct fw_linear fw_linear;
typedef struct fw_plan fw_plan;
typedef struct fw_event fw_event;

FW_EXPORT int32_t fw_abi_version(void);
/* One line a field, "struct field offset size", and one a struct, "struct - size alignment". */
FW_EXPORT const char *fw_layout(void);
FW_EXPORT const char *fw_error(void);
/* Devices that this library can use here. FW_DEVICE says why none: runtime, driver, group. */
FW_EXPORT int32_t fw_device_count(int32_t *count);

FW_EXPORT int32_t fw_context_create(const fw_context_options *options, fw_context **context);
FW_EXPORT void fw_context_destroy(fw_context *context);
FW_EXPORT int32_t fw_device(fw_context *context, fw_device_info *info);
FW_EXPORT int32_t fw_memory(fw_context *context, fw_memory_info *info);
/* 1 where the library runs the op, 0 where it does not. */
FW_EXPORT int32_t fw_supports(fw_context *context, int32_t op);

/* Zeroed memory, at least 64-byte aligned; untouched pages stay untouched on the CPU. */
FW_EXPORT int32_t fw_allocate(fw_context *context, int64_t bytes, int32_t kind, uint64_t *address);
FW_EXPORT int32_t fw_free(fw_context *context, int32_t kind, uint64_t address);
/* Ordered on the context's stream; may return before it ends where the host side is pinned. */
FW_EXPORT int32_t fw_copy(fw_context *context, uint64_t target, uint64_t source, int64_t bytes,
                          int32_t direction);

FW_EXPORT int32_t fw_event_create(fw_context *context, fw_event **event);
FW_EXPORT int32_t fw_event_record(fw_event *event);
FW_EXPORT int32_t fw_event_wait(fw_event *event);
FW_EXPORT void fw_event_destroy(fw_event *event);

/* Rows of all views, one after another. Data stays mapped while the layer lives unless info.own
 * says that the library holds its own. */
FW_EXPORT int32_t fw_linear_prepare(fw_context *context, const fw_weight_view *views, int32_t count,
                                    int32_t activations, fw_linear **linear, fw_linear_info *info);
FW_EXPORT void fw_linear_destroy(fw_linear *linear);

/* Parameters are copied; what they point to stays the caller's. */
FW_EXPORT int32_t fw_plan_create(fw_context *context, const fw_call *calls, int32_t count,
                                 fw_plan **plan);
/* Record the plan as one device graph, where there is such a thing; else it does nothing. */
FW_EXPORT int32_t fw_plan_capture(fw_plan *plan);
/* Launch; ordered on the stream. On the CPU it returns when the step is done. */
FW_EXPORT int32_t fw_plan_run(fw_plan *plan);
/* Run once, call by call, with each call's seconds. */
FW_EXPORT int32_t fw_plan_trace(fw_plan *plan, double *seconds, int32_t count);
FW_EXPORT void fw_plan_destroy(fw_plan *plan);

/* The best seconds of `repeats` reads of `bytes` bytes of device memory, which are allocated here:
 * what the memory gives. */
FW_EXPORT int32_t fw_measure_read(fw_context *context, int64_t bytes, int32_t repeats,
                                  double *seconds);

#ifdef __cplusplus
}
#endif

#endif
