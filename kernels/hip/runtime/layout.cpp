// The compiler's own layout of every struct of the ABI, as text.
#include <cstddef>
#include <string>

#include "flatwake/abi.h"

namespace {

std::string describe() {
  std::string lines;
  const auto line = [&](const char* name, const char* field, size_t a, size_t b) {
    lines += std::string(name) + " " + field + " " + std::to_string(a) + " " + std::to_string(b) + "\n";
  };
#define FIELD(s, f) line(#s, #f, offsetof(s, f), sizeof(s::f));
#define END(s) line(#s, "-", sizeof(s), alignof(s));
  FW_LAYOUT(FIELD, END)
#undef FIELD
#undef END
  return lines;
}

}  // namespace

const char* fw_layout(void) {
  static const std::string text = describe();
  return text.c_str();
}
