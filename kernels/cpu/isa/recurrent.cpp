// Ops that keep state in slots: the causal convolution and the gated delta rule.
#include "ops.h"
#include "simd.h"

namespace flatwake {
namespace FW_ISA {

namespace {

// One sequence's rows and slots.
template <class Params>
struct Sequence {
  int64_t first, end, slot_in;

  Sequence(const Params& p, int64_t s) {
    first = most(0, at<const int32_t>(p.first_row)[s]);
    end = least(at<const int32_t>(p.first_row)[s] + int64_t(at<const int32_t>(p.row_count)[s]),
                p.rows);
    const int64_t slot = at<const int32_t>(p.slot_in)[s];
    slot_in = slot >= 0 && slot < p.slots ? slot : 0;
  }
};

// Where a row leaves its state; 0 for nowhere.
template <class Params>
int64_t slot_out(const Params& p, int64_t row) {
  const int64_t slot = at<const int32_t>(p.slot_out)[row];
  return slot > 0 && slot < p.slots ? slot : 0;
}

constexpr int64_t CHANNELS = 256;  // that a thread takes at a time

template <class T, class Params>
void convolve(const Params& p, const Sequence<Params>& sequence, int64_t first, int64_t last,
              bool every_row, float* history) {
  const int64_t kept = p.history, taps = p.taps;
  float* state = at<float>(p.state);
  const auto place = [&](int64_t slot) { return state + (slot * p.channels + first) * kept; };
  const size_t bytes = size_t((last - first) * kept) * 4;
  memcpy(history, place(sequence.slot_in), bytes);
  for (int64_t row = sequence.first; row < sequence.end; ++row) {
    const T* x = at<const T>(p.x) + row * p.stride + p.offset;
    T* y = at<T>(p.y) + row * p.channels;
    for (int64_t c = first; c < last; ++c) {
      float* old = history + (c - first) * kept;
      const float* weight = at<const float>(p.weight) + c * taps;
      const float now = widen(x[c]);
      float total = 0;
      for (int64_t t = 0; t < kept; ++t) total += old[t] * weight[t];
      total += now * weight[kept];
      for (int64_t t = 0; t + 1 < kept; ++t) old[t] = old[t + 1];
      if (kept) old[kept - 1] = now;
      narrow(silu(set(total))[0], y[c]);
    }
    const int64_t target = slot_out(p, row);
    if (target && (every_row || row + 1 == sequence.end)) memcpy(place(target), history, bytes);
  }
}

template <class Params>
void convolve_all(const Params& p, Worker& w, bool every_row) {
  const int64_t parts = (p.channels + CHANNELS - 1) / CHANNELS;
  auto* history = reinterpret_cast<float*>(w.own);
  with_float(p.dtype, [&](auto kind) {
    for (int64_t begin, end; w.take(0, p.sequences * parts, 1, begin, end);) {
      for (int64_t item = begin; item < end; ++item) {
        const Sequence<Params> sequence(p, item / parts);
        const int64_t first = item % parts * CHANNELS;
        if (sequence.first < sequence.end)
          convolve<decltype(kind)>(p, sequence, first, least(first + CHANNELS, p.channels),
                                   every_row, history);
      }
    }
  });
}

template <class Params>
Needs conv_needs(const Params& p) {
  return {0, CHANNELS * most(1, p.history) * 4};
}

// Scratch of one head: k, q, v and the delta of a row, then a state that no slot holds.
struct HeadScratch {
  float *k, *q, *v, *delta, *state;

  template <class Params>
  HeadScratch(const Params& p, char* own) {
    k = reinterpret_cast<float*>(own);
    q = k + round_up(p.key_dim, 16);
    v = q + round_up(p.key_dim, 16);
    delta = v + round_up(p.value_dim, 16);
    state = delta + round_up(p.value_dim, 16);
  }

  template <class Params>
  static Needs needs(const Params& p) {
    const int64_t vectors = 2 * round_up(p.key_dim, 16) + 2 * round_up(p.value_dim, 16);
    return {0, 4 * (vectors + int64_t(p.key_dim) * p.value_dim)};
  }
};

template <class T>
void unit(const T* x, int64_t n, float eps, float scale, float* out) {
  vf squares{};
  for (int64_t i = 0; i < n; i += W) {
    const vf v = load_upto(x + i, n - i);
    squares = fma(v, v, squares);
  }
  const float factor = scale / __builtin_sqrtf(sum(squares) + eps);
  for (int64_t i = 0; i < n; i += W) store_upto(out + i, load_upto(x + i, n - i) * factor, n - i);
}

inline float softplus(float x) {
  const float small = __builtin_log1pf(__builtin_expf(x < 0 ? x : -x));
  return (x > 0 ? x : 0) + small;
}

// S' = decay S + k dᵀ with d = beta (v - decay Sᵀk); y = S'ᵀq. `to` may be `from`.
template <class T>
void step_state(const HeadScratch& s, int64_t key_dim, int64_t value_dim, float decay, float beta,
                const float* from, float* to, T* y) {
  for (int64_t i = 0; i < value_dim; i += W) {
    const int64_t n = value_dim - i;
    vf seen{};
    for (int64_t j = 0; j < key_dim; ++j)
      seen = fma(load_upto(from + j * value_dim + i, n) * decay, set(s.k[j]), seen);
    const vf delta = (load_upto(s.v + i, n) - seen) * beta;
    vf out{};
    for (int64_t j = 0; j < key_dim; ++j) {
      const vf grown = fma(set(s.k[j]), delta, load_upto(from + j * value_dim + i, n) * decay);
      store_upto(to + j * value_dim + i, grown, n);
      out = fma(grown, set(s.q[j]), out);
    }
    store_upto(y + i, out, n);
  }
}

template <class T, class Params>
void walk_head(const Params& p, const Sequence<Params>& sequence, int64_t head, bool every_row,
               const HeadScratch& scratch) {
  const int64_t key_dim = p.key_dim, value_dim = p.value_dim, size = key_dim * value_dim;
  const int64_t k_head = p.head_map ? head % p.k_heads : head / (p.v_heads / p.k_heads);
  const auto place = [&](int64_t slot) {
    return at<float>(p.state) + (slot * p.v_heads + head) * size;
  };
  const float scale = 1.0f / __builtin_sqrtf(float(key_dim));
  const float* from = place(sequence.slot_in);
  const int64_t last = slot_out(p, sequence.end - 1);
  for (int64_t row = sequence.first; row < sequence.end; ++row) {
    const T* packed = at<const T>(p.qkv) + row * p.channels;
    const T* ab = at<const T>(p.ab) + row * p.ab_stride;
    unit(packed + k_head * key_dim, key_dim, p.eps, scale, scratch.q);
    unit(packed + (p.k_heads + k_head) * key_dim, key_dim, p.eps, 1.0f, scratch.k);
    const T* v = packed + 2 * p.k_heads * key_dim + head * value_dim;
    for (int64_t i = 0; i < value_dim; i += W)
      store_upto(scratch.v + i, load_upto(v + i, value_dim - i), value_dim - i);
    const float a = widen(ab[p.a_offset + head]) + at<const float>(p.dt_bias)[head];
    const float decay = __builtin_expf(at<const float>(p.negative_a)[head] * softplus(a));
    const float beta = sigmoid(set(widen(ab[p.b_offset + head])))[0];
    // A chunk's state gathers where its last row leaves it.
    const int64_t target = every_row ? slot_out(p, row) : last;
    float* to = target ? place(target) : scratch.state;
    step_state(scratch, key_dim, value_dim, decay, beta, from, to,
               at<T>(p.y) + (row * p.v_heads + head) * value_dim);
    from = to;
  }
}

template <class Params>
void walk_all(const Params& p, Worker& w, bool every_row) {
  const HeadScratch scratch(p, w.own);
  with_float(p.dtype, [&](auto kind) {
    for (int64_t begin, end; w.take(0, int64_t(p.sequences) * p.v_heads, 1, begin, end);) {
      for (int64_t item = begin; item < end; ++item) {
        const Sequence<Params> sequence(p, item / p.v_heads);
        if (sequence.first < sequence.end)
          walk_head<decltype(kind)>(p, sequence, item % p.v_heads, every_row, scratch);
      }
    }
  });
}

template <class Params>
char* slot_at(const Params& p, int64_t slot) {
  return at<char>(p.state) + slot * p.slot_words * 4;
}

}  // namespace

Needs conv_step_needs(const fw_conv_step_params& p) { return conv_needs(p); }
Needs conv_chunk_needs(const fw_conv_chunk_params& p) { return conv_needs(p); }
void conv_step(const fw_conv_step_params& p, Worker& w) { convolve_all(p, w, true); }
void conv_chunk(const fw_conv_chunk_params& p, Worker& w) { convolve_all(p, w, false); }

// The chunk walks its rows as steps do: the recurrence itself, so its bits are those of any cut.
Needs gdn_step_needs(const fw_gdn_step_params& p) { return HeadScratch::needs(p); }
Needs gdn_chunk_needs(const fw_gdn_chunk_params& p) { return HeadScratch::needs(p); }
void gdn_step(const fw_gdn_step_params& p, Worker& w) { walk_all(p, w, true); }
void gdn_chunk(const fw_gdn_chunk_params& p, Worker& w) { walk_all(p, w, false); }

void slot_copy(const fw_slot_copy_params& p, Worker& w) {
  // In order, as one item: a copy may read what another one wrote.
  for (int64_t begin, end; w.take(0, 1, 1, begin, end);) {
    for (int64_t i = 0; i < p.count; ++i) {
      const int64_t source = at<const int32_t>(p.source)[i];
      const int64_t target = at<const int32_t>(p.target)[i];
      if (target > 0 && target < p.slots && source >= 0 && source < p.slots)
        memmove(slot_at(p, target), slot_at(p, source), size_t(p.slot_words) * 4);
    }
  }
}

void slot_zero(const fw_slot_zero_params& p, Worker& w) {
  for (int64_t begin, end; w.take(0, p.count, 1, begin, end);) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t target = at<const int32_t>(p.target)[i];
      if (target > 0 && target < p.slots) memset(slot_at(p, target), 0, size_t(p.slot_words) * 4);
    }
  }
}

}  // namespace FW_ISA
}  // namespace flatwake
