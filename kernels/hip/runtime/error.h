// What a call of the C ABI fails with.
#pragma once

#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <stdexcept>
#include <string>

#include "flatwake/abi.h"

namespace fw::runtime {

class Error : public std::runtime_error {
 public:
  Error(int32_t code, const std::string& text) : std::runtime_error(text), code_(code) {}
  int32_t code() const { return code_; }

 private:
  int32_t code_;
};

__attribute__((format(printf, 1, 2))) inline std::string text(const char* format, ...) {
  char buffer[1024];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(buffer, sizeof buffer, format, arguments);
  va_end(arguments);
  return buffer;
}

}  // namespace fw::runtime
