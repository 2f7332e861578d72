// Decode attention: each row's positions in splits, then the splits joined.
//
// A row's sums run over its positions in order, whoever else is in the step.
#include "ops.h"
#include "pages.h"

namespace flatwake {
namespace FW_ISA {

namespace {

// Q heads of one KV head that are taken together: a key is widened once for all of them.
constexpr int HEADS = 4;
// Vectors of a head whose sums stay in registers.
constexpr int VECTORS = W == 16 ? 4 : 2;

// Ask for `count` keys or values that are read next: blocks lie anywhere in the pool. A row of them
// at a time, between others' sums: a whole block at once waits for the memory.
template <class KvT>
inline void fetch(const KvT* next, int64_t count) {
  for (int64_t i = 0; i < count; i += 64 / int64_t(sizeof(KvT))) __builtin_prefetch(next + i, 0, 2);
}

// products[g][p] = q[g] · keys[p] by lanes, whose sums are the scores. V vectors of a head, or, if
// that is 0, as many as fill dim.
template <int G, int V, class KvT>
inline void multiply_keys(const float* q, int64_t dim, int64_t padded, const KvT* keys,
                          const KvT* next, int64_t count, vf (&products)[G][W]) {
  constexpr bool HELD = V && G * V <= W;  // in registers
  vf queries[G][HELD ? V : 1];
  if (HELD)
    for (int g = 0; g < G; ++g)
      for (int v = 0; v < V; ++v) queries[g][v] = load(q + g * padded + v * W);
  for (int64_t p = 0; p < count; ++p, keys += dim, next += dim) {
    fetch(next, V ? V * W : dim);
    vf total[G] = {};
    if constexpr (V > 0) {
#pragma GCC unroll 16
      for (int v = 0; v < V; ++v) {
        const vf k = load(keys + v * W);
        for (int g = 0; g < G; ++g)
          total[g] = fma(HELD ? queries[g][v] : load(q + g * padded + v * W), k, total[g]);
      }
    } else {
      for (int64_t i = 0; i < dim; i += W) {
        const vf k = load_upto(keys + i, dim - i);
        for (int g = 0; g < G; ++g) total[g] = fma(load(q + g * padded + i), k, total[g]);
      }
    }
    for (int g = 0; g < G; ++g) products[g][p] = total[g];
  }
}

// scores[g][p] = scale · q[g] · keys[p], for G heads and `count` positions of a block. q has rows
// of `padded` floats, zero past dim. Writes all 16 positions of scores.
template <int G, int V, class KvT>
void score_block(const float* q, int64_t dim, int64_t padded, const KvT* keys, const KvT* next,
                 int64_t count, float scale, float* scores, int64_t stride) {
  for (int64_t first = 0; first < FW_BLOCK_TOKENS; first += W) {
    vf products[G][W];
    const int64_t seen = most(0, least(W, count - first));
    if (seen < W) memset(products, 0, sizeof products);
    multiply_keys<G, V>(q, dim, padded, keys + first * dim, next + first * dim, seen, products);
    for (int g = 0; g < G; ++g) store(scores + g * stride + first, sum_each(products[g]) * scale);
  }
}

// out[g][…] += Σ weights[g][p] · values[p], for G heads and V vectors from element `from`.
template <int G, int V, class KvT>
void add_block(const float* weights, int64_t stride, const KvT* values, const KvT* next,
               int64_t dim, int64_t padded, int64_t from, int64_t count, float* out) {
  vf total[G][V];
  for (int g = 0; g < G; ++g)
    for (int v = 0; v < V; ++v) total[g][v] = load(out + g * padded + from + v * W);
  for (int64_t p = 0; p < count; ++p) {
    fetch(next + p * dim + from, V * W);
    vf value[V];
    for (int v = 0; v < V; ++v) value[v] = load(values + p * dim + from + v * W);
    for (int g = 0; g < G; ++g) {
      const vf weight = set(weights[g * stride + p]);
      for (int v = 0; v < V; ++v) total[g][v] = fma(weight, value[v], total[g][v]);
    }
  }
  for (int g = 0; g < G; ++g)
    for (int v = 0; v < V; ++v) store(out + g * padded + from + v * W, total[g][v]);
}

template <int G, class KvT>
void add_values(const float* weights, int64_t stride, const KvT* values, const KvT* next,
                int64_t dim, int64_t padded, int64_t count, float* out) {
  int64_t i = 0;
  for (; i + VECTORS * W <= dim; i += VECTORS * W)
    add_block<G, VECTORS>(weights, stride, values, next, dim, padded, i, count, out);
  for (; i + W <= dim; i += W)
    add_block<G, 1>(weights, stride, values, next, dim, padded, i, count, out);
  if (i == dim) return;
  for (int g = 0; g < G; ++g) {
    vf total = load(out + g * padded + i);
    for (int64_t p = 0; p < count; ++p)
      total = fma(set(weights[g * stride + p]), load_part(values + p * dim + i, dim - i), total);
    store(out + g * padded + i, total);
  }
}

// A thread's scratch: the group's queries and outputs, rows of `padded` floats, and its scores.
struct Scratch {
  int64_t padded;
  float *q, *out, *scores;

  Scratch(int64_t dim, char* own) : padded(round_up(dim, 16)) {
    q = reinterpret_cast<float*>(own);
    out = q + HEADS * padded;
    scores = out + HEADS * padded;
  }

  static Needs needs(int64_t dim, int64_t positions) {
    return {0, 4 * HEADS * (2 * round_up(dim, 16) + round_up(positions, 16))};
  }
};

// G heads of a row over positions [begin, end): out[g] = Σ exp(s - m) v; m and the weights' sum go
// to ml[g]. begin is a multiple of 16.
template <int G, int V, class KvT>
void attend(const Pages<KvT>& pages, int64_t begin, int64_t end, float scale, const Scratch& s,
            float (*ml)[2]) {
  const int64_t stride = round_up(end - begin, 16), dim = pages.dim;
  for (int64_t p = begin; p < end; p += FW_BLOCK_TOKENS) {
    const int64_t next = p + FW_BLOCK_TOKENS;
    score_block<G, V>(s.q, dim, s.padded, pages.keys(p),
                      next < end ? pages.keys(next) : pages.values(begin),
                      least(FW_BLOCK_TOKENS, end - p), scale, s.scores + p - begin, stride);
  }
  for (int g = 0; g < G; ++g) {
    float* scores = s.scores + g * stride;
    ml[g][0] = top_score(scores, end - begin);
    ml[g][1] = exponents(scores, end - begin, ml[g][0]);
  }
  memset(s.out, 0, size_t(G * s.padded) * 4);
  for (int64_t p = begin; p < end; p += FW_BLOCK_TOKENS) {
    const int64_t next = p + FW_BLOCK_TOKENS;
    add_values<G>(s.scores + p - begin, stride, pages.values(p), pages.values(next < end ? next : p),
                  dim, s.padded, least(FW_BLOCK_TOKENS, end - p), s.out);
  }
}

template <int V, class KvT>
void attend_heads(int64_t heads, const Pages<KvT>& pages, int64_t begin, int64_t end, float scale,
                  const Scratch& s, float (*ml)[2]) {
  switch (heads) {
    case 1: return attend<1, V>(pages, begin, end, scale, s, ml);
    case 2: return attend<2, V>(pages, begin, end, scale, s, ml);
    case 3: return attend<3, V>(pages, begin, end, scale, s, ml);
    default: return attend<4, V>(pages, begin, end, scale, s, ml);
  }
}

// The usual sizes of a head have code of their own.
template <class KvT>
void attend_group(int64_t heads, const Pages<KvT>& pages, int64_t begin, int64_t end, float scale,
                  const Scratch& s, float (*ml)[2]) {
  switch (pages.dim) {
    case 64: return attend_heads<64 / W>(heads, pages, begin, end, scale, s, ml);
    case 128: return attend_heads<128 / W>(heads, pages, begin, end, scale, s, ml);
    default: return attend_heads<0>(heads, pages, begin, end, scale, s, ml);
  }
}

int64_t split_length(int64_t length, int64_t splits, int64_t split_positions) {
  const int64_t even = (length + splits - 1) / splits;
  return most(split_positions, round_up(even, FW_BLOCK_TOKENS));
}

// Splits that the longest row is in.
int64_t splits_used(const fw_attention_decode_params& p) {
  int64_t used = 1;
  for (int64_t row = 0; row < p.rows; ++row) {
    const int64_t length = length_of(p, row);
    const int64_t step = split_length(length, p.splits, p.split_positions);
    used = most(used, (length + step - 1) / step);
  }
  return used;
}

// One row, KV head and split.
template <class T, class KvT>
void decode_item(const fw_attention_decode_params& p, int64_t item, int64_t splits,
                 const Scratch& s) {
  const int64_t per_row = p.kv_heads * splits, dim = p.head_dim;
  const int64_t row = item / per_row, kv_head = item % per_row / splits, split = item % splits;
  const int64_t length = length_of(p, row);
  const int64_t step = split_length(length, p.splits, p.split_positions);
  const int64_t from = split * step, to = least(from + step, length);
  if (from >= to) return;
  const int64_t sequence = sequence_of(p, row);
  if (sequence < 0) return;
  const Pages<KvT> pages(p, sequence, kv_head);
  const int64_t group = p.heads / p.kv_heads;
  for (int64_t first = 0; first < group; first += HEADS) {
    const int64_t head = kv_head * group + first, count = least(HEADS, group - first);
    for (int64_t g = 0; g < count; ++g)
      widen_row(at<const T>(p.q) + (row * p.heads + head + g) * dim, dim, s.q + g * s.padded);
    float ml[HEADS][2];
    attend_group(count, pages, from, to, p.scale, s, ml);
    for (int64_t g = 0; g < count; ++g) {
      const int64_t place = (row * p.heads + head + g) * p.splits + split;
      memcpy(at<float>(p.partial) + place * dim, s.out + g * s.padded, size_t(dim) * 4);
      memcpy(at<float>(p.partial_ml) + place * 2, ml[g], sizeof ml[g]);
    }
  }
}

}  // namespace

Needs attention_decode_needs(const fw_attention_decode_params& p) {
  const int64_t positions = int64_t(p.table_blocks) * FW_BLOCK_TOKENS;
  return Scratch::needs(p.head_dim, split_length(positions, p.splits, p.split_positions));
}

void attention_decode(const fw_attention_decode_params& p, Worker& w) {
  const Scratch scratch(p.head_dim, w.own);
  const int64_t splits = splits_used(p), items = int64_t(p.rows) * p.kv_heads * splits;
  with_float(p.dtype, [&](auto kind) {
    with_float(p.kv_dtype, [&](auto kv_kind) {
      for (int64_t begin, end; w.take(0, items, 1, begin, end);)
        for (int64_t item = begin; item < end; ++item)
          decode_item<decltype(kind), decltype(kv_kind)>(p, item, splits, scratch);
    });
  });
}

void attention_combine(const fw_attention_combine_params& p, Worker& w) {
  const int64_t dim = p.head_dim;
  with_float(p.dtype, [&](auto kind) {
    using T = decltype(kind);
    for (int64_t begin, end; w.take(0, int64_t(p.rows) * p.heads, grain_of(2 * dim), begin, end);) {
      for (int64_t item = begin; item < end; ++item) {
        const int64_t length = at<const int32_t>(p.row_length)[item / p.heads];
        T* y = at<T>(p.y) + item * dim;
        if (length <= 0) {
          for (int64_t i = 0; i < dim; i += W) store_upto(y + i, vf{}, dim - i);
          continue;
        }
        const int64_t step = split_length(length, p.splits, p.split_positions);
        const int64_t count = least(p.splits, (length + step - 1) / step);
        const float* partial = at<const float>(p.partial) + item * p.splits * dim;
        const float* ml = at<const float>(p.partial_ml) + item * p.splits * 2;
        float top = ml[0], weight = 0, factors[FW_MAX_SPLITS];
        for (int64_t s = 1; s < count; ++s) top = ml[2 * s] > top ? ml[2 * s] : top;
        for (int64_t s = 0; s < count; ++s) {
          factors[s] = exponential(set(ml[2 * s] - top))[0];
          weight += factors[s] * ml[2 * s + 1];
        }
        for (int64_t i = 0; i < dim; i += W) {
          vf total{};
          for (int64_t s = 0; s < count; ++s)
            total = fma(set(factors[s]), load_upto(partial + s * dim + i, dim - i), total);
          store_upto(y + i, total / weight, dim - i);
        }
      }
    }
  });
}

}  // namespace FW_ISA
}  // namespace flatwake
