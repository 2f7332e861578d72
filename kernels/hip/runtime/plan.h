// A recorded list of calls, lowered to launches.
#pragma once

#include <memory>
#include <vector>

#include "runtime/lowering.h"

namespace fw::runtime {

class Plan {
 public:
  Plan(Context& context, const fw_call* calls, int count);
  void capture();
  void run();
  void trace(double* seconds, int count);
  Context& context() { return context_; }

 private:
  void launch(int from, int to);

  Context& context_;
  Lowering lowering_;
  std::unique_ptr<Graph> graph_;
};

}  // namespace fw::runtime
