// A fiber: a stack that a block's scheduler enters and that a thread of the kernel leaves.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#if !defined(__x86_64__)
#include <ucontext.h>
#endif

namespace fw::emulation {

class Fiber {
 public:
  static constexpr size_t STACK_BYTES = 64 << 10;

  // The next enter() begins `body` on an empty stack, whatever the fiber was doing before.
  void start(void (*body)());
  // Scheduler: run until leave() or the end of `body`.
  void enter();
  // Fiber: back to the scheduler.
  void leave();

 private:
  static void main();
  std::unique_ptr<char[]> stack_;
  void (*body_)() = nullptr;
#if defined(__x86_64__)
  void* here_ = nullptr;
#else
  ucontext_t here_;
#endif
  void* fake_stack_ = nullptr;  // the address sanitizer's
};

}  // namespace fw::emulation
