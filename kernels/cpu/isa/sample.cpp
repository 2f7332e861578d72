// Choosing the next id without sorting the vocabulary, and log probabilities.
#include <math.h>

#include "ops.h"
#include "philox.h"
#include "simd.h"

namespace flatwake {
namespace FW_ISA {

namespace {

constexpr float GREEDY_BELOW = 1e-5f;
// No noise is larger: -log(-log(1 - 2⁻²⁴)) is 16.6356.
constexpr float MOST_NOISE = 16.64f;
constexpr int BINS = 2048;

const float INFINITE = __builtin_inff();

// Order as unsigned integers: larger floats have larger keys.
inline uint32_t key_of(float value) {
  const uint32_t bits = to_bits(value);
  return bits >> 31 ? ~bits : bits | 0x80000000u;
}

inline float value_of(uint32_t key) {
  return from_bits(key >> 31 ? key & 0x7fffffffu : ~key);
}

inline float top_of(const float* values, int64_t n) {
  vf top = set(-INFINITE);
  int64_t i = 0;
  for (; i + W <= n; i += W) top = larger(load(values + i), top);
  float most = largest(top);
  for (; i < n; ++i) most = values[i] > most ? values[i] : most;
  return most;
}

// The smallest index of the largest value.
inline int64_t argmax(const float* values, int64_t n) {
  const float top = top_of(values, n);
  for (int64_t i = 0; i < n; ++i)
    if (values[i] == top) return i;
  return 0;
}

// A thread's scratch for one sequence.
struct Scratch {
  float *logits, *weights, *few;
  double* bins;
  int32_t* ids;

  Scratch(char* own, int64_t vocabulary) {
    const int64_t n = round_up(vocabulary, 16);
    bins = reinterpret_cast<double*>(own);
    logits = reinterpret_cast<float*>(bins + BINS);
    weights = logits + n;
    few = weights + n;
    ids = reinterpret_cast<int32_t*>(few + n);
  }

  static Needs needs(int64_t vocabulary) {
    return {0, BINS * 8 + 4 * round_up(vocabulary, 16) * 4};
  }
};

// Going down from the largest value, the one at which the mass (or the count, without masses)
// first reaches `target`: by histograms of the keys' top, middle and low bits.
float descend(const float* values, const float* masses, int64_t n, double target, double* bins) {
  double above = 0;
  uint32_t prefix = 0;
  for (int shift = 21, width = 11; shift >= 0; shift = shift == 21 ? 10 : shift == 10 ? 0 : -1) {
    if (shift == 0) width = 10;
    const uint32_t mask = (1u << width) - 1;
    memset(bins, 0, BINS * sizeof(double));
    int lowest = -1;
    for (int64_t i = 0; i < n; ++i) {
      const uint32_t key = key_of(values[i]);
      if (shift != 21 && key >> (shift + width) != prefix) continue;
      const int bin = int(key >> shift & mask);
      bins[bin] += masses ? double(masses[i]) : 1.0;
      if (lowest < 0 || bin < lowest) lowest = bin;
    }
    int bin = int(mask);
    while (bin > lowest && above + bins[bin] < target) above += bins[bin--];
    prefix = prefix << width | uint32_t(bin);
  }
  return value_of(prefix);
}

// Copy live logits; what is forbidden or NaN becomes -inf; bias is added.
void allow(const fw_sample_params& p, const fw_sampling& how, int64_t sequence, int64_t slot,
           int64_t length, float* logits) {
  const int64_t live = p.vocabulary_live;
  const float* raw = at<const float>(p.logits) + sequence * p.vocabulary;
  for (int64_t i = 0; i < live; i += W) {
    const vf value = load_upto(raw + i, live - i);
    store_upto(logits + i, value == value ? value : set(-INFINITE), live - i);
  }
  if (how.flags & FW_SAMPLE_MASK && p.mask) {
    const auto* mask = at<const uint32_t>(p.mask) + slot * p.mask_words;
    for (int64_t i = 0; i < live; ++i)
      if (!(mask[i / 32] >> i % 32 & 1)) logits[i] = -INFINITE;
  }
  if (length < how.ban_below) {
    const auto* banned = at<const int32_t>(p.ban_id) + slot * p.ban_most;
    for (int64_t i = 0; i < least(how.ban_count, p.ban_most); ++i)
      if (banned[i] >= 0 && banned[i] < live) logits[banned[i]] = -INFINITE;
  }
  const auto* ids = at<const int32_t>(p.bias_id) + slot * p.bias_most;
  const auto* bias = at<const float>(p.bias) + slot * p.bias_most;
  for (int64_t i = 0; i < least(how.bias_count, p.bias_most); ++i)
    if (ids[i] >= 0 && ids[i] < live) logits[ids[i]] += bias[i];
}

void penalise(const fw_sampling& how, const int32_t* counts, int64_t live, float* logits) {
  for (int64_t i = 0; i < live; ++i) {
    if (!counts[i]) continue;
    const int32_t answer = counts[i] & (FW_COUNT_PROMPT - 1);
    float value = logits[i];
    value = value > 0 ? value / how.repetition_penalty : value * how.repetition_penalty;
    value -= how.frequency_penalty * float(answer);
    if (answer > 0) value -= how.presence_penalty;
    logits[i] = value;
  }
}

// Those that are left: values, and ids in rising order (null: all).
struct Left {
  float* values;
  int32_t* ids;
  int64_t n;

  void keep(float at_least, float* values_to, int32_t* ids_to) {
    int64_t kept = 0;
    for (int64_t i = 0; i < n; ++i) {
      if (!(values[i] >= at_least)) continue;
      const int32_t id = ids ? ids[i] : int32_t(i);
      values_to[kept] = values[i];
      ids_to[kept++] = id;
    }
    *this = {values_to, ids_to, kept};
  }
};

void filter(const fw_sampling& how, float top, const Scratch& s, Left& left) {
  if (how.top_k > 0 && how.top_k < left.n)
    left.keep(descend(left.values, nullptr, left.n, how.top_k, s.bins), s.few, s.ids);
  if (how.top_p < 1) {
    vf sums{};
    double total = 0;
    for (int64_t i = 0; i < left.n; i += W) {
      const int64_t n = left.n - i;
      vf weight = exponential(load_upto(left.values + i, n) - top);
      for (int64_t lane = n; lane < W; ++lane) weight[lane] = 0;
      store_upto(s.weights + i, weight, n);
      sums += weight;
      if (i % 1024 == 1024 - W || n <= W) {
        total += double(sum(sums));
        sums = vf{};
      }
    }
    left.keep(descend(left.values, s.weights, left.n, double(how.top_p) * total, s.bins), s.few,
              s.ids);
  }
  if (how.min_p > 0) left.keep(top + logf(how.min_p), s.few, s.ids);
}

// The id that maximises value + noise, found so far. Noise is by seed, position and id alone.
class Draw {
 public:
  Draw(const Left& left, int64_t seed, int32_t position)
      : left_(left), seed_(uint64_t(seed)), position_(uint32_t(position)) {}

  // Entry i may take the lead.
  void consider(int64_t i) {
    if (left_.values[i] + MOST_NOISE < best_ || left_.values[i] == -INFINITE) return;
    const int32_t id = left_.ids ? left_.ids[i] : int32_t(i);
    if (id / 4 != group_) {
      group_ = id / 4;
      philox(seed_, uint32_t(group_), position_, words_);
    }
    const double uniform = (double(words_[id % 4] >> 9) + 0.5) * 0x1p-23;
    const float noisy = left_.values[i] + float(-log(-log(uniform)));
    if (noisy > best_ || (noisy == best_ && id < chosen_)) {
      best_ = noisy;
      chosen_ = id;
    }
  }

  // All entries from `first` to 4 W further on, where ids are the entries themselves and `first`
  // is a multiple of 4 W. -log(-log(u)) leads only if u is above exp(-exp(value - best)), which is
  // at least 1 - exp(value - best): nearly all fail that without a logarithm.
  void consider_many(int64_t first) {
    vu counter, words[4];
    for (int i = 0; i < W; ++i) counter[i] = uint32_t(first / 4 + i);
    philox(seed_, counter, position_, words);
    uint32_t by_word[4][W];
    for (int k = 0; k < 4; ++k) memcpy(by_word[k], &words[k], sizeof words[k]);
    for (int64_t part = 0; part < 4; ++part) {
      const vf value = load(left_.values + first + part * W);
      const vf bound = 1.0f - exponential(value - best_) * 1.0001f - 1e-6f;
      vu mine;
      for (int i = 0; i < W; ++i) mine[i] = by_word[i % 4][(part * W + i) / 4];
      const vf uniform = to_float((vi)(mine >> 9)) * 0x1p-23f;
      const vi may_lead = uniform > bound;
      if (!any(may_lead)) continue;
      for (int i = 0; i < W; ++i)
        if (may_lead[i]) consider(first + part * W + i);
    }
  }

  int32_t chosen() const { return chosen_ < 0 ? 0 : chosen_; }

 private:
  const Left& left_;
  const uint64_t seed_;
  const uint32_t position_;
  float best_ = -INFINITE;
  int32_t chosen_ = -1;
  int64_t group_ = -1;
  uint32_t words_[4];
};

int32_t draw(const Left& left, int64_t seed, int32_t position) {
  Draw draw(left, seed, position);
  draw.consider(argmax(left.values, left.n));
  int64_t i = 0;
  if (!left.ids)
    for (; i + 4 * W <= left.n; i += 4 * W) draw.consider_many(i);
  for (; i < left.n; ++i) draw.consider(i);
  return draw.chosen();
}

int32_t choose(const fw_sampling& how, int32_t position, const Scratch& s, int64_t live) {
  if (how.temperature < GREEDY_BELOW) return int32_t(argmax(s.logits, live));
  for (int64_t i = 0; i < live; i += W)
    store_upto(s.logits + i, load_upto(s.logits + i, live - i) / how.temperature, live - i);
  Left left{s.logits, nullptr, live};
  const float top = top_of(s.logits, live);
  if (top < INFINITE && top > -INFINITE) filter(how, top, s, left);
  return draw(left, how.seed, position);
}

}  // namespace

Needs sample_needs(const fw_sample_params& p) { return Scratch::needs(p.vocabulary_live); }
Needs logprobs_needs(const fw_logprobs_params& p) { return Scratch::needs(p.vocabulary_live); }

void sample(const fw_sample_params& p, Worker& w) {
  const Scratch scratch(w.own, p.vocabulary_live);
  for (int64_t begin, end; w.take(0, p.sequences, 1, begin, end);) {
    for (int64_t sequence = begin; sequence < end; ++sequence) {
      auto* next_id = at<int32_t>(p.next_id) + sequence;
      const int64_t row = at<const int32_t>(p.sample_row)[sequence];
      const int64_t slot = at<const int32_t>(p.sampling_slot)[sequence];
      if (row < 0 || row >= p.rows || slot < 0 || slot >= p.slot_count) {
        *next_id = -1;
        continue;
      }
      const auto& how = at<const fw_sampling>(p.slots)[slot];
      int32_t* counts = at<int32_t>(p.counts) + slot * p.vocabulary;
      int32_t& position = at<int32_t>(p.row_position)[row];
      int32_t& length = at<int32_t>(p.row_length)[row];
      allow(p, how, sequence, slot, length, scratch.logits);
      if (how.flags & FW_SAMPLE_PENALTIES)
        penalise(how, counts, p.vocabulary_live, scratch.logits);
      const int32_t id = choose(how, position + 1, scratch, p.vocabulary_live);
      *next_id = at<int32_t>(p.row_id)[row] = id;
      ++position;
      ++length;
      if (how.flags & FW_SAMPLE_PENALTIES) ++counts[id];
    }
  }
}

void logprobs(const fw_logprobs_params& p, Worker& w) {
  const int64_t live = p.vocabulary_live;
  const Scratch s(w.own, live);
  for (int64_t begin, end; w.take(0, p.sequences, 1, begin, end);) {
    for (int64_t sequence = begin; sequence < end; ++sequence) {
      const int64_t slot = at<const int32_t>(p.sampling_slot)[sequence];
      const int64_t id = at<const int32_t>(p.next_id)[sequence];
      if (slot < 0 || slot >= p.slot_count || id < 0 || id >= live) continue;
      const int64_t wanted = at<const fw_sampling>(p.slots)[slot].logprobs;
      if (wanted < 0) continue;
      const float* logits = at<const float>(p.logits) + sequence * p.vocabulary;
      const float top = top_of(logits, live);
      double total = 0;
      for (int64_t i = 0; i < live; i += W) {
        vf weight = exponential(load_upto(logits + i, live - i) - top);
        for (int64_t lane = live - i; lane < W; ++lane) weight[lane] = 0;
        total += double(sum(weight));
      }
      const double whole = double(top) + log(total);
      at<float>(p.chosen)[sequence] = float(double(logits[id]) - whole);
      const int64_t count = least(wanted, least(p.top, live));
      if (count <= 0) continue;
      // The few that are large enough, then the largest of them again and again.
      Left left{const_cast<float*>(logits), nullptr, live};
      left.keep(descend(logits, nullptr, live, double(count), s.bins), s.few, s.ids);
      for (int64_t i = 0; i < count; ++i) {
        const int64_t best = argmax(left.values, left.n);
        at<int32_t>(p.top_id)[sequence * p.top + i] = left.ids[best];
        at<float>(p.top_logprob)[sequence * p.top + i] = float(double(left.values[best]) - whole);
        left.values[best] = -INFINITE;
      }
    }
  }
}

}  // namespace FW_ISA
}  // namespace flatwake
