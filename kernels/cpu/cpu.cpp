#include "cpu.h"

#include <fstream>
#include <vector>

#include "error.h"
#include "flatwake/abi.h"

namespace flatwake {

namespace {

struct Choice {
  const Kernels& (*kernels)();
  bool (*here)();
};

#if defined(FW_WITH_X86)
bool has_avx2() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
         __builtin_cpu_supports("f16c");
}

bool has_avx512() {
  return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512vnni");
}
#endif

bool always() { return true; }

// The best first.
const std::vector<Choice>& choices() {
  static const std::vector<Choice> all = {
#if defined(FW_WITH_X86)
      {avx512::kernels, has_avx512},
      {avx2::kernels, has_avx2},
#endif
      {plain::kernels, always},
  };
  return all;
}

}  // namespace

std::string processor_name() {
  std::ifstream file("/proc/cpuinfo");
  std::string line;
  while (std::getline(file, line)) {
    const auto colon = line.find(':');
    if (line.rfind("model name", 0) == 0 && colon + 2 < line.size()) return line.substr(colon + 2);
  }
#if defined(__aarch64__)
  return "aarch64 processor";
#else
  return "processor";
#endif
}

std::string processor_features() {
  std::string words;
  for (const auto& choice : choices())
    if (choice.here()) words += std::string(words.empty() ? "" : " ") + choice.kernels().name;
  return words;
}

std::string isa_names() {
  std::string names;
  for (const auto& choice : choices())
    names += std::string(names.empty() ? "" : "|") + choice.kernels().name;
  return names;
}

const Kernels& kernels_for(const std::string& isa) {
  for (const auto& choice : choices()) {
    const Kernels& kernels = choice.kernels();
    if (isa != "auto" && isa != kernels.name) continue;
    if (choice.here()) return kernels;
    if (isa != "auto")
      throw Failure(FW_UNSUPPORTED, "isa=" + isa + ": this processor has " + processor_features());
  }
  throw Failure(FW_INVALID, "isa=" + isa + " is unknown: auto|" + isa_names());
}

}  // namespace flatwake
