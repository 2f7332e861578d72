#include "plan.h"

#include <cstring>
#include <string>

#include "check.h"
#include "clock.h"
#include "error.h"

namespace flatwake {

Plan::Plan(Context& context, const fw_call* calls, int32_t count)
    : context_(context) {
  size_t words = 0;
  for (int32_t i = 0; i < count; ++i) {
    check_call(context.kernels(), calls[i], i);
    words += size_t(calls[i].size + 7) / 8;
  }
  params_.resize(words);
  uint64_t* next = params_.data();
  Needs most;
  for (int32_t i = 0; i < count; ++i) {
    const fw_call& call = calls[i];
    memcpy(next, reinterpret_cast<const void*>(call.params), size_t(call.size));
    calls_.push_back({context.kernels().run[call.op], next});
    if (const NeedsOf needs_of = context.kernels().needs[call.op]) {
      const Needs needs = needs_of(next);
      if (needs.shared > most.shared) most.shared = needs.shared;
      if (needs.own > most.own) most.own = needs.own;
    }
    next += size_t(call.size + 7) / 8;
  }
  context.reserve(most);
}

Plan::~Plan() { context_.team().settle(); }

void Plan::run() { run_range(0, calls_.size()); }

void Plan::trace(double* seconds, int32_t count) {
  if (size_t(count) != calls_.size())
    throw Failure(FW_INVALID, "the plan has " + std::to_string(calls_.size()) + " calls, not " +
                                  std::to_string(count));
  for (size_t i = 0; i < calls_.size(); ++i) {
    const double start = now();
    run_range(i, i + 1);
    seconds[i] = now() - start;
  }
}

void Plan::run_range(size_t begin, size_t end) {
  Team& team = context_.team();
  team.begin(context_.scratch());
  for (size_t i = begin; i < end; ++i) {
    team.run(calls_[i].kernel, calls_[i].params);
    context_.stamp();
  }
  team.end();
}

}  // namespace flatwake
