// sample, in two kernels: sample_scan makes the logits that remain, and the largest of each part of
// the vocabulary, with noise where top-k, top-p and min-p leave everything; sample_choose takes the
// largest of them, or finds the threshold that those leave and takes the largest above with noise.
//
// Thresholds are found from histograms of integers: counts for top-k, probabilities in units of
// 2^-40 for top-p. Integer sums don't depend on their order.
#include "sample.h"

namespace fw {

DEVICE bool greedy(const fw_sampling& how) { return how.temperature < 1e-5f; }
DEVICE bool truncates(const fw_sampling& how, int count) {
  return (how.top_k > 0 && how.top_k < count) || how.top_p < 1 || how.min_p > 0;
}

DEVICE float penalised(float logit, int count, const fw_sampling& how) {
  const int answer = count & (FW_COUNT_PROMPT - 1);
  if (count) logit = logit > 0 ? logit / how.repetition_penalty : logit * how.repetition_penalty;
  logit -= how.frequency_penalty * (float)answer;
  return answer > 0 ? logit - how.presence_penalty : logit;
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

// Thread t keeps ids 4 t … 4 t + 3 of every 4 · SCAN_BLOCK of its part, so that it alone touches
// them in LDS, and one number of Philox serves them. Ids beyond the last become -∞ in `scaled`.
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
  const int count = p.op.vocabulary_live;
  const bool masked = (how.flags & FW_SAMPLE_MASK) && p.op.mask;
  const auto own = [&](int at) {
    return at >= 0 && at < FW_SAMPLE_PART && at / 4 % SCAN_BLOCK == thread();
  };

  const float* given = in<float>(p.op.logits) + (size_t)sequence * p.op.vocabulary + start;
  const bool aligned = p.op.vocabulary % 4 == 0;
  for (int at = thread() * 4; at < FW_SAMPLE_PART; at += 4 * SCAN_BLOCK) {
    Words four = no_words();
    const bool together = aligned && start + at + 4 <= count;
    if (together) four = load_words(given + at);
    FW_UNROLL
    for (int i = 0; i < 4; i++) {
      const int id = start + at + i;
      float logit = -FW_INFINITY;
      if (id < count) logit = together ? as_float(word(four, i)) : given[at + i];
      const bool allowed =
          id < count &&
          (!masked || in<int>(p.op.mask)[slot * p.op.mask_words + id / 32] >> (id % 32) & 1);
      logits[at + i] = allowed && logit == logit ? logit : -FW_INFINITY;
    }
  }
  if (in<int>(p.op.row_length)[row] < how.ban_below)
    for (int i = 0; i < least(how.ban_count, p.op.ban_most); i++) {
      const int at = in<int>(p.op.ban_id)[slot * p.op.ban_most + i] - start;
      if (own(at)) logits[at] = -FW_INFINITY;
    }
  for (int i = 0; i < least(how.bias_count, p.op.bias_most); i++) {
    const int at = in<int>(p.op.bias_id)[slot * p.op.bias_most + i] - start;
    if (own(at)) logits[at] += in<float>(p.op.bias)[slot * p.op.bias_most + i];
  }

  const bool kept = !greedy(how) && truncates(how, count), noisy = !greedy(how) && !kept;
  const uint32_t next = (uint32_t)in<int>(p.op.row_position)[row] + 1;
  Best best = nothing();
  for (int at = thread() * 4; at < FW_SAMPLE_PART; at += 4 * SCAN_BLOCK) {
    Random random{};
    if (noisy) random = philox(how.seed, (uint32_t)(start + at) / 4, next);
    FW_UNROLL
    for (int i = 0; i < 4; i++) {
      const int id = start + at + i;
      float logit = logits[at + i];
      if ((how.flags & FW_SAMPLE_PENALTIES) && id < count)
        logit = penalised(logit, in<int>(p.op.counts)[slot * p.op.vocabulary + id], how);
      if (!greedy(how)) logit /= how.temperature;
      if (kept) out<float>(p.scaled)[(size_t)sequence * p.stride + id] = logit;
      if (id < count) best = better(best, Best{noisy ? logit + gumbel(random.words[i]) : logit, id});
    }
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

DEVICE uint32_t smaller(uint32_t a, uint32_t b) { return a < b ? a : b; }
DEVICE uint32_t larger(uint32_t a, uint32_t b) { return a > b ? a : b; }

// f(id, four) for every four logits from `id` on, up to `stride`; several loads are under way before the first is used.
template <typename F>
DEVICE void each_scaled(const float* scaled, int stride, F f) {
  constexpr int AHEAD = 4, STEP = 4 * CHOOSE_BLOCK;
  for (int start = thread() * 4; start < stride; start += AHEAD * STEP) {
    Words found[AHEAD];
    FW_UNROLL
    for (int i = 0; i < AHEAD; i++)
      found[i] = load_words(scaled + least(start + i * STEP, stride - 4));
    FW_UNROLL
    for (int i = 0; i < AHEAD; i++)
      if (start + i * STEP < stride) f(start + i * STEP, found[i]);
  }
}

constexpr int BINS = 2048, GROUPS = 64, GROUP_BINS = BINS / GROUPS;

// What a threshold lies below: so much mass, or that share of all.
struct Limit {
  uint64_t mass;
  float share;
};

// The first bin with which the sum from bin 0 on, added to `above`, reaches the limit, or the last
// that holds anything (-1: none does). `above` becomes what lies before that bin; a share becomes a
// mass.
template <typename H, typename G>
DEVICE int reach(H& histogram, G& groups, Limit& limit, uint64_t& above) {
  barrier();
  if (thread() < GROUPS) {
    uint64_t sum = 0;
    for (int i = 0; i < GROUP_BINS; i++) sum += histogram[thread() * GROUP_BINS + i];
    groups[thread()] = sum;
  }
  barrier();
  if (!limit.mass) {
    uint64_t total = 0;
    for (int i = 0; i < GROUPS; i++) total += groups[i];
    limit.mass = (uint64_t)((double)limit.share * (double)total);
    if (!limit.mass) limit.mass = 1;
  }
  int chosen = -1;
  uint64_t sum = above;
  for (int i = 0; i < GROUPS && (chosen < 0 || sum < limit.mass); i++)
    if (const uint64_t here = groups[i]) chosen = i, above = sum, sum += here;
  if (chosen < 0) return chosen;
  const int first = chosen * GROUP_BINS;
  chosen = -1, sum = above;
  for (int i = 0; i < GROUP_BINS && (chosen < 0 || sum < limit.mass); i++)
    if (const uint64_t here = histogram[first + i]) chosen = first + i, above = sum, sum += here;
  return chosen;
}

// A logit's bin by its distance from the largest one: 64 for each doubling.
constexpr int NEAREST = (127 - 16) << 6;  // of 2^-16
DEVICE int distance_bin(float logit, float largest) {
  return least(most((int)(as_uint(largest - logit) >> 17) - NEAREST, 0), BINS - 1);
}
DEVICE float distance_of(int bin) { return as_float((uint32_t)(bin + NEAREST) << 17); }

// The smallest key among logits of at least `floor` above which less than the limit lies, as `mass`
// weighs logits. With counts and a limit of k: the k-th largest.
//
// First by distance from the largest logit, where logits spread over the bins, then by equal parts
// of the keys that a bin may hold.
template <typename H, typename G, typename Mass>
DEVICE uint32_t threshold_key(const FwSampleParams& p, const float* scaled, float largest,
                              uint32_t floor, Limit limit, H& histogram, G& groups, Mass mass) {
  uint32_t low = floor, high = ordered(largest);
  int shift = 0, first = -1;  // `first`: the bin that was found by distance
  for (uint64_t above = 0;;) {
    for (int i = thread(); i < BINS; i += CHOOSE_BLOCK) histogram[i] = 0;
    barrier();
    each_scaled(scaled, p.stride, [&](int, const Words& four) {
      FW_UNROLL
      for (int i = 0; i < 4; i++) {
        const float logit = as_float(word(four, i));
        const uint32_t key = ordered(logit);
        if (key < low || key > high) continue;
        const int near = distance_bin(logit, largest);
        if (first >= 0 && near != first) continue;
        if (const uint64_t weight = mass(logit))
          add_lds(histogram, first < 0 ? near : (int)((high - key) >> shift), weight);
      }
    });
    const int chosen = reach(histogram, groups, limit, above);
    if (chosen < 0) return floor;
    if (first < 0) {
      // The subtraction has rounded: a few keys more at both ends hold all of the bin's logits.
      first = chosen;
      if (first > 0) high = smaller(high, ordered(largest - distance_of(first) * 0.999999f) + 2);
      if (first < BINS - 1)
        low = larger(low, ordered(largest - distance_of(first + 1) * 1.000001f) - 2);
    } else {
      high -= (uint32_t)chosen << shift;
      if (shift == 0) return high;
      low = larger(low, high - ((1u << shift) - 1));
    }
    shift = 0;
    while ((high - low) >> shift >= (uint32_t)BINS) shift++;
    barrier();
  }
}

DEVICE uint64_t probability(float logit, float largest) {
  return (uint64_t)(exp(logit - largest) * 1099511627776.0f);
}

// What top-k, top-p and min-p leave: logits of at least this.
template <typename H, typename G>
DEVICE float threshold(const FwSampleParams& p, const fw_sampling& how, const float* scaled,
                       float largest, H& histogram, G& groups) {
  const int count = p.op.vocabulary_live;
  uint32_t floor = ordered(-FW_INFINITY);
  if (how.top_k > 0 && how.top_k < count)
    floor = threshold_key(p, scaled, largest, floor, Limit{(uint64_t)how.top_k, 0}, histogram,
                          groups, [](float) { return (uint64_t)1; });
  if (how.top_p < 1) {
    barrier();  // until the last search has been read
    floor = threshold_key(p, scaled, largest, floor, Limit{0, how.top_p}, histogram, groups,
                          [&](float logit) { return probability(logit, largest); });
  }
  const float least_logit = unordered(floor);
  return how.min_p > 0 ? fmax(least_logit, largest + log(how.min_p)) : least_logit;
}

template <int W>
DEVICE void sample_choose(const FwSampleParams& p) {
  FW_LDS(uint64_t, histogram, BINS);
  FW_LDS(uint64_t, groups, GROUPS);
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
  if (!greedy(how) && truncates(how, count) && best.value > -FW_INFINITY &&
      best.value < FW_INFINITY) {
    const float* scaled = in<float>(p.scaled) + (size_t)sequence * p.stride;
    const float floor = threshold(p, how, scaled, best.value, histogram, groups);
    best = nothing();
    each_scaled(scaled, p.stride, [&](int id, const Words& four) {
      bool any = false;
      FW_UNROLL
      for (int i = 0; i < 4; i++) any |= as_float(word(four, i)) >= floor;
      if (!any) return;
      const Random random = philox(how.seed, (uint32_t)id / 4, (uint32_t)(position + 1));
      FW_UNROLL
      for (int i = 0; i < 4; i++) {
        const float logit = as_float(word(four, i));
        if (id + i < count && logit >= floor)
          best = better(best, Best{logit + gumbel(random.words[i]), id + i});
      }
    });
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

}  // namespace fw

FW_KERNEL(sample_scan, 256, FwSampleParams) { fw::sample_scan<FW_WAVE>(p); }
FW_KERNEL(sample_choose, 1024, FwSampleParams) { fw::sample_choose<FW_WAVE>(p); }
