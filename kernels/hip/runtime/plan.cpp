#include "runtime/plan.h"

#include <algorithm>

namespace fw::runtime {

Plan::Plan(Context& context, const fw_call* calls, int count)
    : context_(context), lowering_(context) {
  lowering_.add(calls, count);
}

void Plan::launch(int from, int to) {
  for (int i = from; i < to; i++) context_.driver().launch(lowering_.launches[i]);
}

void Plan::capture() {
  const int all = (int)lowering_.launches.size();
  if (!all) return;
  graph_ = context_.driver().capture([&] { launch(0, all); });
}

void Plan::run() {
  context_.stamp();
  if (graph_) graph_->launch();
  else launch(0, (int)lowering_.launches.size());
}

void Plan::trace(double* seconds, int count) {
  const int calls = (int)lowering_.ends.size();
  if (count < calls)
    throw Error(FW_INVALID, text("a trace of %d calls has no room in %d", calls, count));
  std::vector<std::unique_ptr<Event>> marks;
  for (int i = 0; i <= calls; i++) marks.push_back(context_.driver().event(context_.blocking()));
  marks[0]->record();
  for (int i = 0, from = 0; i < calls; from = lowering_.ends[i++]) {
    launch(from, lowering_.ends[i]);
    marks[i + 1]->record();
  }
  marks[calls]->wait();
  for (int i = 0; i < calls; i++) seconds[i] = marks[i + 1]->since(*marks[i]);
  context_.stamp();
}

double measure_read(Context& context, int64_t bytes, int repeats) {
  constexpr int BLOCKS_PER_UNIT = 8;
  const Region data(context, bytes), found(context, 16);
  Driver& driver = context.driver();
  FwReadParams p{data.address(), found.address(), bytes,
                 context.facts().compute_units * BLOCKS_PER_UNIT, 0};
  Launch launch{driver.kernel("read_words"), {p.blocks, 1, 1}, 512, (int)sizeof p, {}};
  std::memcpy(launch.parameters, &p, sizeof p);
  const auto start = driver.event(context.blocking()), end = driver.event(context.blocking());
  double best = 1e30;
  for (int i = 0; i < repeats; i++) {
    start->record();
    driver.launch(launch);
    end->record();
    end->wait();
    best = std::min(best, end->since(*start));
  }
  return best;
}

}  // namespace fw::runtime
