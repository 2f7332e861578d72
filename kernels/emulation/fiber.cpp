#include "emulation/fiber.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

namespace fw::emulation {

namespace {

Fiber* current = nullptr;
// The scheduler's stack, as the sanitizer saw it when a fiber was last entered.
const void* home_bottom = nullptr;
size_t home_size = 0;

void before_switch(void** fake_stack, const void* bottom, size_t size) {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(fake_stack, bottom, size);
#else
  (void)fake_stack, (void)bottom, (void)size;
#endif
}

void after_switch(void* fake_stack, const void** bottom, size_t* size) {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(fake_stack, bottom, size);
#else
  (void)fake_stack, (void)bottom, (void)size;
#endif
}

}  // namespace

#if defined(__x86_64__)
// Callee-saved registers go on the stack that is left; its pointer into *from.
extern "C" void fw_switch_stack(void** from, void* to);
__asm__(R"(
.text
.p2align 4
.type fw_switch_stack, @function
fw_switch_stack:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size fw_switch_stack, .-fw_switch_stack
)");
static void* home = nullptr;
#else
static ucontext_t home;
#endif

void Fiber::main() {
  after_switch(nullptr, &home_bottom, &home_size);
  Fiber* self = current;
  self->body_();
  before_switch(nullptr, home_bottom, home_size);
#if defined(__x86_64__)
  void* nowhere;
  fw_switch_stack(&nowhere, home);
#else
  setcontext(&home);
#endif
  __builtin_unreachable();
}

void Fiber::start(void (*body)()) {
  if (!stack_) stack_.reset(new char[STACK_BYTES]);
#if defined(__SANITIZE_ADDRESS__)
  __asan_unpoison_memory_region(stack_.get(), STACK_BYTES);  // a launch that failed left frames
#endif
  body_ = body;
  fake_stack_ = nullptr;
#if defined(__x86_64__)
  auto top = (reinterpret_cast<uintptr_t>(stack_.get()) + STACK_BYTES) & ~uintptr_t{15};
  auto** place = reinterpret_cast<void**>(top);
  *--place = nullptr;  // where main() would return to; its stack is aligned as after a call
  *--place = reinterpret_cast<void*>(&Fiber::main);
  for (int i = 0; i < 6; i++) *--place = nullptr;
  here_ = place;
#else
  getcontext(&here_);
  here_.uc_stack.ss_sp = stack_.get();
  here_.uc_stack.ss_size = STACK_BYTES;
  here_.uc_link = nullptr;
  makecontext(&here_, &Fiber::main, 0);
#endif
}

void Fiber::enter() {
  current = this;
  void* fake_stack = nullptr;
  before_switch(&fake_stack, stack_.get(), STACK_BYTES);
#if defined(__x86_64__)
  fw_switch_stack(&home, here_);
#else
  swapcontext(&home, &here_);
#endif
  after_switch(fake_stack, nullptr, nullptr);
}

void Fiber::leave() {
  before_switch(&fake_stack_, home_bottom, home_size);
#if defined(__x86_64__)
  fw_switch_stack(&here_, home);
#else
  swapcontext(&here_, &home);
#endif
  after_switch(fake_stack_, &home_bottom, &home_size);
}

}  // namespace fw::emulation
