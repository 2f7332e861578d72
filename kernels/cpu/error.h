// Failures inside the library: thrown here, turned into codes at the C ABI's edge.
#ifndef FLATWAKE_CPU_ERROR_H
#define FLATWAKE_CPU_ERROR_H

#include <cstdint>
#include <exception>
#include <string>
#include <utility>

namespace flatwake {

class Failure : public std::exception {
 public:
  Failure(int32_t code, std::string text) : code_(code), text_(std::move(text)) {}
  int32_t code() const { return code_; }
  const char* what() const noexcept override { return text_.c_str(); }

 private:
  int32_t code_;
  std::string text_;
};

}  // namespace flatwake

#endif
