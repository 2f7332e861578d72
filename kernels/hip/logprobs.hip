// logprobs: of the chosen ids and of the most likely ones, a block a sequence.
#include "sample.h"

namespace fw {

// f(id, logit) for every id; several loads are under way before the first is used.
template <typename F>
DEVICE void each_logit(const float* logits, int count, F f) {
  constexpr int AHEAD = 8;
  for (int start = thread(); start < count; start += AHEAD * CHOOSE_BLOCK) {
    float found[AHEAD];
    FW_UNROLL
    for (int i = 0; i < AHEAD; i++)
      found[i] = logits[least(start + i * CHOOSE_BLOCK, count - 1)];
    FW_UNROLL
    for (int i = 0; i < AHEAD; i++)
      if (start + i * CHOOSE_BLOCK < count) f(start + i * CHOOSE_BLOCK, found[i]);
  }
}

template <int W>
DEVICE void logprobs(const fw_logprobs_params& p) {
  FW_LDS(float, scratch, CHOOSE_BLOCK / W);
  FW_LDS(float, values, CHOOSE_BLOCK / W);
  FW_LDS(int, ids, CHOOSE_BLOCK / W);
  const int sequence = block_x(), chosen = in<int>(p.next_id)[sequence];
  const fw_sampling how = sampling_of(p.slots, p.sampling_slot, sequence, p.slot_count);
  if (how.logprobs < 0 || chosen < 0 || chosen >= p.vocabulary_live) return;
  const float* logits = in<float>(p.logits) + (size_t)sequence * p.vocabulary;
  float largest = -FW_INFINITY;
  each_logit(logits, p.vocabulary_live,
             [&](int, float logit) { largest = fmax(largest, logit); });
  largest = block_max<W>(largest, scratch);
  float sum = 0;
  each_logit(logits, p.vocabulary_live, [&](int, float logit) { sum += exp(logit - largest); });
  const float total = log(block_sum<W>(sum, scratch));
  if (thread() == 0) out<float>(p.chosen)[sequence] = logits[chosen] - largest - total;

  Best last{FW_INFINITY, -1};
  const int count = least(least(how.logprobs, p.top), p.vocabulary_live);
  for (int i = 0; i < count; i++) {
    Best best = nothing();
    each_logit(logits, p.vocabulary_live, [&](int id, float logit) {
      const Best here{logit, id};
      if (before(last, here)) best = better(best, here);
    });
    last = block_best<W, CHOOSE_BLOCK>(best, values, ids);
    if (thread() == 0) {
      out<int>(p.top_id)[(size_t)sequence * p.top + i] = last.id;
      out<float>(p.top_logprob)[(size_t)sequence * p.top + i] = last.value - largest - total;
    }
  }
}

}  // namespace fw

FW_KERNEL(logprobs, 1024, fw_logprobs_params) { fw::logprobs<FW_WAVE>(p); }
