#include "runtime/module_api.h"

#include <dlfcn.h>

#include <cstring>

// The build's table (embed.py).
extern "C" {
extern const fw::runtime::CodeObject fw_code_objects[] __attribute__((visibility("hidden")));
extern const uint64_t fw_code_object_count __attribute__((visibility("hidden")));
}

namespace fw::runtime {

std::vector<CodeObject> code_objects(const std::string& architecture) {
  std::vector<CodeObject> found;
  for (uint64_t i = 0; i < fw_code_object_count; i++)
    if (architecture == fw_code_objects[i].architecture) found.push_back(fw_code_objects[i]);
  return found;
}

std::string built_architectures() {
  std::string all;
  for (uint64_t i = 0; i < fw_code_object_count; i++) {
    const char* name = fw_code_objects[i].architecture;
    if (i && !std::strcmp(name, fw_code_objects[i - 1].architecture)) continue;
    all += (all.empty() ? "" : ", ") + std::string(name);
  }
  return all;
}

Dynamic::Dynamic(std::vector<const char*> names, const char* missing) {
  std::string why;  // of the first name: the others fail alike
  for (const char* name : names) {
    library_ = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (library_) {
      name_ = name;
      return;
    }
    if (why.empty()) why = dlerror();
  }
  throw Error(FW_DEVICE, missing + (" (" + why) + ")");
}

void* Dynamic::find(const char* name, bool required) {
  void* symbol = dlsym(library_, name);
  if (!symbol && required)
    throw Error(FW_DEVICE, name_ + " has no " + name + ": it is too old, or not what it says");
  return symbol;
}

}  // namespace fw::runtime
