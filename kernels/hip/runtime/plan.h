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
  int launches() const { return (int)lowering_.launches.size(); }
  int graph_nodes() const { return graph_ ? graph_->nodes() : 0; }

 private:
  void launch(int from, int to);

  Context& context_;
  Lowering lowering_;
  std::unique_ptr<Graph> graph_;
};

// The best seconds of `repeats` reads of `bytes` bytes.
double measure_read(Context& context, int64_t bytes, int repeats);

}  // namespace fw::runtime
