/* libflatwake_hip.so for the device tests: the CPU's library, seen as an AMD device.
 *
 * It defines what is looked at (how many devices, which architecture) and takes everything else from
 * libflatwake_cpu.so, which it is linked against. Arithmetic is the CPU's; preflight, requests,
 * groups, conditions and rollouts are production's.
 *
 *   PRETENDED_DEVICES        how many there are (1)
 *   PRETENDED_ARCHITECTURE   of each (gfx942)
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "flatwake/abi.h"

static _Thread_local char own_error[256];

static const char* setting(const char* name, const char* usual) {
  const char* value = getenv(name);
  return value && *value ? value : usual;
}

static void* real(const char* name) { return dlsym(RTLD_NEXT, name); }

const char* fw_error(void) {
  if (*own_error) return own_error;
  return ((const char* (*)(void))real("fw_error"))();
}

int32_t fw_device_count(int32_t* count) {
  *own_error = 0;
  const int kfd = open("/dev/kfd", O_RDWR | O_CLOEXEC);
  *count = kfd < 0 ? 0 : atoi(setting("PRETENDED_DEVICES", "1"));
  if (kfd >= 0) close(kfd);
  if (*count > 0) return FW_OK;
  snprintf(own_error, sizeof own_error, "HIP finds no device, though it was looked for");
  return FW_DEVICE;
}

int32_t fw_device(fw_context* context, fw_device_info* info) {
  *own_error = 0;
  const int32_t code =
      ((int32_t(*)(fw_context*, fw_device_info*))real("fw_device"))(context, info);
  if (code != FW_OK) return code;
  snprintf(info->name, sizeof info->name, "pretended AMD device");
  snprintf(info->architecture, sizeof info->architecture, "%s",
           setting("PRETENDED_ARCHITECTURE", "gfx942"));
  return FW_OK;
}
