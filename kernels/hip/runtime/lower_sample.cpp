// sample and logprobs.
#include "runtime/lowering.h"

namespace fw::runtime {

namespace {

void check_vocabulary(const char* op, int live, int vocabulary) {
  if (live < 1 || live > vocabulary)
    throw Error(FW_INVALID, text("%s: %d live ids of %d", op, live, vocabulary));
}

}  // namespace

void lower(Lowering& to, const fw_sample_params& p) {
  check_vocabulary("sample", p.vocabulary_live, p.vocabulary);
  FwSampleParams s{};
  s.op = p;
  s.parts = blocks(p.vocabulary_live, FW_SAMPLE_PART);
  s.stride = s.parts * FW_SAMPLE_PART;
  const int64_t logits = (int64_t)p.sequences * s.stride, best = (int64_t)p.sequences * s.parts;
  s.scaled = to.workspace((logits + 2 * best) * 4);
  s.best = s.scaled + logits * 4;
  s.best_id = s.best + best * 4;
  to.launch("sample_scan", {s.parts, p.sequences, 1}, 256, s);
  to.launch("sample_choose", {p.sequences, 1, 1}, 1024, s);
}

void lower(Lowering& to, const fw_logprobs_params& p) {
  check_vocabulary("logprobs", p.vocabulary_live, p.vocabulary);
  to.launch("logprobs", {p.sequences, 1, 1}, 1024, p);
}

}  // namespace fw::runtime
