// sample, in two kernels: sample_scan makes the logits that remain and the largest of each part of
// the vocabulary; sample_choose takes the largest, or finds the threshold that top-k, top-p and
// min-p leave and takes the largest with noise. logprobs.
//
// Thresholds are found digit by digit of the logits' bits, from histograms of integers: counts for
// top-k, probabilities in units of 2^-40 for top-p. Integer sums don't depend on their order.
#include "parameters.h"
#include "portable.h"

namespace fw {

constexpr int SCAN_BLOCK = 256, CHOOSE_BLOCK = 512;
constexpr int DIGITS = 256;

struct Best {
  float value;
  int id;
};
// Larger values win, then smaller ids.
DEVICE bool before(Best a, Best b) {
  return a.value > b.value || (a.value == b.value && a.id < b.id);
}
DEVICE Best better(Best a, Best b) { return before(b, a) ? b : a; }
DEVICE Best nothing() { return Best{-FW_INFINITY, 0x7fffffff}; }

template <int W, int BLOCK, typename F, typename I>
DEVICE Best block_best(Best best, F& values, I& ids) {
  FW_UNROLL
  for (int d = W / 2; d > 0; d /= 2) {
    const int source = lane<W>() ^ d;
    const float value = shuffle<W>(best.value, source);
    const int id = shuffle<W>(best.id, source);
    best = better(best, Best{value, id});
  }
  if (lane<W>() == 0) {
    values[thread() / W] = best.value;
    ids[thread() / W] = best.id;
  }
  barrier();
  best = nothing();
  for (int i = 0; i < BLOCK / W; i++) best = better(best, Best{values[i], ids[i]});
  barrier();
  return best;
}

DEVICE fw_sampling sampling_of(uint64_t slots, uint64_t sampling_slot, int sequence, int count) {
  const int slot = in<int>(sampling_slot)[sequence];
  return in<fw_sampling>(slots)[slot < 0 || slot >= count ? 0 : slot];
}

DEVICE bool greedy(const fw_sampling& how) { return how.temperature < 1e-5f; }

DEVICE float penalised(float logit, int count, const fw_sampling& how) {
  const int answer = count & (FW_COUNT_PROMPT - 1);
  if (count) logit = logit > 0 ? logit / how.repetition_penalty : logit * how.repetition_penalty;
  logit -= how.frequency_penalty * (float)answer;
  return answer > 0 ? logit - how.presence_penalty : logit;
}

// Thread t keeps ids t, t + SCAN_BLOCK … of its part, so that it alone touches them in LDS.
template <int W>
DEVICE void sample_scan(const FwSampleParams& p) {
  FW_LDS(float, logits, FW_SAMPLE_PART);
  FW_LDS(float, values, SCAN_BLOCK / W);
  FW_LDS(int, ids, SCAN_BLOCK / W);
  const int sequence = block_y(), start = block_x() * FW_SAMPLE_PART;
  const int row = in<int>(p.op.sample_row)[sequence];
  if (row < 0 || row >= p.op.rows) return;
  const fw_sampling how =
      sampling_of(p.op.slots, p.op.sampling_slot, sequence, p.op.slot_count);
  const size_t slot = in<int>(p.op.sampling_slot)[sequence];
  const int end = least(start + FW_SAMPLE_PART, p.op.vocabulary_live);
  const bool masked = (how.flags & FW_SAMPLE_MASK) && p.op.mask;

  for (int id = start + thread(); id < end; id += SCAN_BLOCK) {
    float logit = in<float>(p.op.logits)[(size_t)sequence * p.op.vocabulary + id];
    const bool allowed =
        !masked || in<int>(p.op.mask)[slot * p.op.mask_words + id / 32] >> (id % 32) & 1;
    logits[id - start] = allowed && logit == logit ? logit : -FW_INFINITY;
  }
  if (in<int>(p.op.row_length)[row] < how.ban_below)
    for (int i = 0; i < least(how.ban_count, p.op.ban_most); i++) {
      const int at = in<int>(p.op.ban_id)[slot * p.op.ban_most + i] - start;
      if (at >= 0 && at < end - start && at % SCAN_BLOCK == thread()) logits[at] = -FW_INFINITY;
    }
  for (int i = 0; i < least(how.bias_count, p.op.bias_most); i++) {
    const int at = in<int>(p.op.bias_id)[slot * p.op.bias_most + i] - start;
    if (at >= 0 && at < end - start && at % SCAN_BLOCK == thread())
      logits[at] += in<float>(p.op.bias)[slot * p.op.bias_most + i];
  }

  Best best = nothing();
  for (int id = start + thread(); id < end; id += SCAN_BLOCK) {
    float logit = logits[id - start];
    if (how.flags & FW_SAMPLE_PENALTIES)
      logit = penalised(logit, in<int>(p.op.counts)[slot * p.op.vocabulary + id], how);
    if (!greedy(how)) logit /= how.temperature;
    out<float>(p.scaled)[(size_t)sequence * p.op.vocabulary + id] = logit;
    best = better(best, Best{logit, id});
  }
  best = block_best<W, SCAN_BLOCK>(best, values, ids);
  if (thread() == 0) {
    out<float>(p.best)[(size_t)sequence * p.parts + block_x()] = best.value;
    out<int>(p.best_id)[(size_t)sequence * p.parts + block_x()] = best.id;
  }
}

// Unsigned integers in the order of floats.
DEVICE uint32_t ordered(float value) {
  const uint32_t bits = as_uint(value);
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}
DEVICE float unordered(uint32_t key) {
  return as_float(key & 0x80000000u ? key & 0x7fffffffu : ~key);
}

DEVICE uint64_t probability(float logit, float largest) {
  return (uint64_t)(exp(logit - largest) * 1099511627776.0f);
}

// The smallest key among values of at least `floor` above which less than `limit` lies, as `mass`
// weighs values. With counts and limit k: the k-th largest. `histogram` has DIGITS + 2 entries.
template <typename H, typename Mass>
DEVICE uint32_t threshold_key(const float* scaled, int count, uint32_t floor, uint64_t limit,
                              H& histogram, Mass mass) {
  uint32_t prefix = 0;
  uint64_t above = 0;
  for (int shift = 24; shift >= 0; shift -= 8) {
    for (int i = thread(); i < DIGITS; i += CHOOSE_BLOCK) histogram[i] = 0;
    barrier();
    for (int id = thread(); id < count; id += CHOOSE_BLOCK) {
      const uint32_t key = ordered(scaled[id]);
      if (key >= floor && (shift == 24 || key >> (shift + 8) == prefix >> (shift + 8)))
        add_lds(histogram, (int)(key >> shift & 255), mass(scaled[id]));
    }
    barrier();
    // From the top: the first digit whose values reach the limit, or the last that has any.
    int digit = DIGITS - 1, chosen = -1;
    uint64_t chosen_above = above, sum = above;
    for (; digit >= 0; digit--) {
      const uint64_t here = histogram[digit];
      if (!here) continue;
      if (sum >= limit && chosen >= 0) break;
      chosen = digit;
      chosen_above = sum;
      sum += here;
      if (sum >= limit) break;
    }
    barrier();
    if (chosen < 0) return floor;
    prefix |= (uint32_t)chosen << shift;
    above = chosen_above;
  }
  return prefix;
}

// What top-k, top-p and min-p leave: logits of at least this.
template <typename H>
DEVICE float threshold(const fw_sampling& how, const float* scaled, int count, float largest,
                       H& histogram) {
  uint32_t floor = ordered(-FW_INFINITY);
  if (how.top_k > 0 && how.top_k < count)
    floor = threshold_key(scaled, count, floor, (uint64_t)how.top_k, histogram,
                          [](float) { return (uint64_t)1; });
  if (how.top_p < 1) {
    for (int i = thread(); i < 1; i += CHOOSE_BLOCK) histogram[0] = 0;
    barrier();
    uint64_t mine = 0;
    for (int id = thread(); id < count; id += CHOOSE_BLOCK)
      if (ordered(scaled[id]) >= floor) mine += probability(scaled[id], largest);
    add_lds(histogram, 0, mine);
    barrier();
    const uint64_t total = histogram[0];
    barrier();
    const uint64_t limit = (uint64_t)((double)how.top_p * (double)total);
    floor = threshold_key(scaled, count, floor, limit > 0 ? limit : 1, histogram,
                          [&](float value) { return probability(value, largest); });
  }
  const float least_logit = unordered(floor);
  return how.min_p > 0 ? fmax(least_logit, largest + log(how.min_p)) : least_logit;
}

struct Random {
  uint32_t words[4];
};
DEVICE Random philox(int64_t seed, uint32_t group, uint32_t position) {
  uint32_t a = group, b = position, c = 0, d = 0;
  uint32_t low = (uint32_t)seed, high = (uint32_t)((uint64_t)seed >> 32);
  for (int round = 0; round < 10; round++) {
    const uint32_t a_low = a * 0xD2511F53u, a_high = high_product(a, 0xD2511F53u);
    const uint32_t c_low = c * 0xCD9E8D57u, c_high = high_product(c, 0xCD9E8D57u);
    a = c_high ^ b ^ low, b = c_low, c = a_high ^ d ^ high, d = a_low;
    low += 0x9E3779B9u, high += 0xBB67AE85u;
  }
  return Random{{a, b, c, d}};
}

// -log(-log(u)), u = ((word >> 9) + 1/2) / 2^23. Near 1, where the noise is large, -log(u) comes
// from 1 - u, which is exact.
DEVICE float gumbel(uint32_t word) {
  const float u = ((float)(word >> 9) + 0.5f) * 1.1920928955078125e-7f, rest = 1.0f - u;
  const float minus_log =
      rest < 0.03125f
          ? rest * (1 + rest * (1.0f / 2 + rest * (1.0f / 3 + rest * (1.0f / 4 + rest / 5))))
          : -log(u);
  return -log(minus_log);
}

template <int W>
DEVICE void sample_choose(const FwSampleParams& p) {
  FW_LDS(uint64_t, histogram, DIGITS);
  FW_LDS(float, values, CHOOSE_BLOCK / W);
  FW_LDS(int, ids, CHOOSE_BLOCK / W);
  const int sequence = block_x(), row = in<int>(p.op.sample_row)[sequence];
  if (row < 0 || row >= p.op.rows) {
    if (thread() == 0) out<int>(p.op.next_id)[sequence] = -1;
    return;
  }
  const fw_sampling how =
      sampling_of(p.op.slots, p.op.sampling_slot, sequence, p.op.slot_count);
  Best best = nothing();
  for (int i = thread(); i < p.parts; i += CHOOSE_BLOCK)
    best = better(best, Best{in<float>(p.best)[(size_t)sequence * p.parts + i],
                             in<int>(p.best_id)[(size_t)sequence * p.parts + i]});
  best = block_best<W, CHOOSE_BLOCK>(best, values, ids);
  const int count = p.op.vocabulary_live, position = in<int>(p.op.row_position)[row];
  if (!greedy(how) && best.value > -FW_INFINITY && best.value < FW_INFINITY) {
    const float* scaled = in<float>(p.scaled) + (size_t)sequence * p.op.vocabulary;
    const float floor = threshold(how, scaled, count, best.value, histogram);
    best = nothing();
    for (int group = thread(); group * 4 < count; group += CHOOSE_BLOCK) {
      const Random random = philox(how.seed, (uint32_t)group, (uint32_t)(position + 1));
      FW_UNROLL
      for (int i = 0; i < 4; i++) {
        const int id = group * 4 + i;
        if (id < count && scaled[id] >= floor)
          best = better(best, Best{scaled[id] + gumbel(random.words[i]), id});
      }
    }
    best = block_best<W, CHOOSE_BLOCK>(best, values, ids);
  }
  if (thread() != 0) return;
  out<int>(p.op.next_id)[sequence] = best.id;
  out<int>(p.op.row_id)[row] = best.id;
  out<int>(p.op.row_position)[row] = position + 1;
  out<int>(p.op.row_length)[row] += 1;
  if (how.flags & FW_SAMPLE_PENALTIES) {
    const size_t slot = in<int>(p.op.sampling_slot)[sequence];
    out<int>(p.op.counts)[slot * p.op.vocabulary + best.id] += 1;
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
  for (int id = thread(); id < p.vocabulary_live; id += CHOOSE_BLOCK)
    largest = fmax(largest, logits[id]);
  largest = block_max<W>(largest, scratch);
  float sum = 0;
  for (int id = thread(); id < p.vocabulary_live; id += CHOOSE_BLOCK)
    sum += exp(logits[id] - largest);
  const float total = log(block_sum<W>(sum, scratch));
  if (thread() == 0) out<float>(p.chosen)[sequence] = logits[chosen] - largest - total;

  Best last{FW_INFINITY, -1};
  const int count = least(least(how.logprobs, p.top), p.vocabulary_live);
  for (int i = 0; i < count; i++) {
    Best best = nothing();
    for (int id = thread(); id < p.vocabulary_live; id += CHOOSE_BLOCK) {
      const Best here{logits[id], id};
      if (before(last, here)) best = better(best, here);
    }
    last = block_best<W, CHOOSE_BLOCK>(best, values, ids);
    if (thread() == 0) {
      out<int>(p.top_id)[(size_t)sequence * p.top + i] = last.id;
      out<float>(p.top_logprob)[(size_t)sequence * p.top + i] = last.value - largest - total;
    }
  }
}

}  // namespace fw

FW_KERNEL(sample_scan, 256, FwSampleParams) { fw::sample_scan<FW_WAVE>(p); }
FW_KERNEL(sample_choose, 512, FwSampleParams) { fw::sample_choose<FW_WAVE>(p); }
FW_KERNEL(logprobs, 512, fw_logprobs_params) { fw::logprobs<FW_WAVE>(p); }
