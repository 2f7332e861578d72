// A recorded list of calls that all threads walk together.
#ifndef FLATWAKE_CPU_PLAN_H
#define FLATWAKE_CPU_PLAN_H

#include <cstdint>
#include <vector>

#include "context.h"
#include "flatwake/abi.h"

namespace flatwake {

class Plan {
 public:
  Plan(Context& context, const fw_call* calls, int32_t count);
  ~Plan();
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;

  void run();
  // The seconds of each call, in `count` places.
  void trace(double* seconds, int32_t count);

 private:
  struct Call {
    Kernel kernel;
    const void* params;
  };

  void run_range(size_t begin, size_t end);

  Context& context_;
  std::vector<uint64_t> params_;
  std::vector<Call> calls_;
};

}  // namespace flatwake

#endif
