// Attention over the paged KV: scores, softmax and weighted values of the Q heads of one KV head.
//
// A row's sums run over its positions in order, whoever else is in the step.
#include "ops.h"
#include "simd.h"

namespace flatwake {
namespace FW_ISA {

namespace {

// Q heads whose sums stay in registers together, and vectors of a head likewise.
constexpr int HEADS = W == 16 ? 4 : 2;
constexpr int VECTORS = 4;

// What a step's rows see of one KV head's pages.
template <class KvT>
struct Pages {
  const KvT* kv;
  const int32_t* table;  // the sequence's own
  int64_t blocks, table_blocks, kv_heads, head, dim;

  // Keys of a block; values lie `side` elements on.
  const KvT* keys(int64_t entry) const {
    const int64_t block = table[entry];
    const int64_t known = block >= 0 && block < blocks ? block : 0;
    return kv + (known * kv_heads + head) * FW_BLOCK_TOKENS * dim;
  }
  int64_t side() const { return blocks * kv_heads * FW_BLOCK_TOKENS * dim; }
};

// scores[g][p] = scale · q[g] · keys[p], for G heads and `count` positions of a block.
template <int G, class KvT>
void score_block(const float* q, int64_t dim, const KvT* keys, int64_t count, float scale,
                 float* scores, int64_t stride) {
  for (int64_t p = 0; p < count; ++p) {
    const KvT* key = keys + p * dim;
    vf total[G] = {};
    for (int64_t i = 0; i < dim; i += W) {
      const vf k = load_upto(key + i, dim - i);
      for (int g = 0; g < G; ++g) total[g] = fma(load_upto(q + g * dim + i, dim - i), k, total[g]);
    }
    for (int g = 0; g < G; ++g) scores[g * stride + p] = sum(total[g]) * scale;
  }
}

// out[g][…] += Σ weights[g][p] · values[p], for G heads and V vectors from element `at`.
template <int G, int V, class KvT>
void add_block(const float* weights, int64_t stride, const KvT* values, int64_t dim, int64_t at,
               int64_t count, float* out) {
  vf total[G][V];
  for (int g = 0; g < G; ++g)
    for (int v = 0; v < V; ++v) total[g][v] = load(out + g * dim + at + v * W);
  for (int64_t p = 0; p < count; ++p) {
    vf value[V];
    for (int v = 0; v < V; ++v) value[v] = load(values + p * dim + at + v * W);
    for (int g = 0; g < G; ++g) {
      const vf weight = set(weights[g * stride + p]);
      for (int v = 0; v < V; ++v) total[g][v] = fma(weight, value[v], total[g][v]);
    }
  }
  for (int g = 0; g < G; ++g)
    for (int v = 0; v < V; ++v) store(out + g * dim + at + v * W, total[g][v]);
}

template <int G, class KvT>
void add_values(const float* weights, int64_t stride, const KvT* values, int64_t dim,
                int64_t count, float* out) {
  int64_t at = 0;
  for (; at + VECTORS * W <= dim; at += VECTORS * W)
    add_block<G, VECTORS>(weights, stride, values, dim, at, count, out);
  for (; at + W <= dim; at += W) add_block<G, 1>(weights, stride, values, dim, at, count, out);
  if (at == dim) return;
  const int64_t n = dim - at;
  for (int g = 0; g < G; ++g) {
    vf total = load_part(out + g * dim + at, n);
    for (int64_t p = 0; p < count; ++p)
      total = fma(set(weights[g * stride + p]), load_part(values + p * dim + at, n), total);
    store_part(out + g * dim + at, total, n);
  }
}

// scores become exp(score - max); returns max and their sum.
inline void soften(float* scores, int64_t count, float& top, float& total) {
  float most = scores[0];
  for (int64_t i = 1; i < count; ++i) most = scores[i] > most ? scores[i] : most;
  vf sums{};
  for (int64_t i = 0; i < count; i += W) {
    const int64_t n = count - i;
    vf value = exponential(load_upto(scores + i, n) - most);
    if (n < W)
      for (int64_t lane = n; lane < W; ++lane) value[lane] = 0;
    store_upto(scores + i, value, n);
    sums += value;
  }
  top = most;
  total = sum(sums);
}

// G heads of a row over positions [begin, end): out[g][dim] = Σ exp(s - m) v; m and the weights'
// sum go to ml[g].
template <int G, class KvT>
void attend(const float* q, const Pages<KvT>& pages, int64_t begin, int64_t end, float scale,
            float* scores, float* out, float (*ml)[2]) {
  const int64_t stride = round_up(end - begin, W), dim = pages.dim;
  for (int64_t p = begin; p < end; p += FW_BLOCK_TOKENS)
    score_block<G>(q, dim, pages.keys(p / FW_BLOCK_TOKENS), least(FW_BLOCK_TOKENS, end - p), scale,
                   scores + p - begin, stride);
  for (int g = 0; g < G; ++g) soften(scores + g * stride, end - begin, ml[g][0], ml[g][1]);
  memset(out, 0, size_t(G * dim) * 4);
  for (int64_t p = begin; p < end; p += FW_BLOCK_TOKENS)
    add_values<G>(scores + p - begin, stride, pages.keys(p / FW_BLOCK_TOKENS) + pages.side(), dim,
                  least(FW_BLOCK_TOKENS, end - p), out);
}

template <class KvT>
void attend_heads(int64_t heads, const float* q, const Pages<KvT>& pages, int64_t begin,
                  int64_t end, float scale, float* scores, float* out, float (*ml)[2]) {
  switch (heads) {
    case 1: return attend<1>(q, pages, begin, end, scale, scores, out, ml);
    case 2: return attend<2>(q, pages, begin, end, scale, scores, out, ml);
    case 3: return attend<3>(q, pages, begin, end, scale, scores, out, ml);
    default: return attend<4>(q, pages, begin, end, scale, scores, out, ml);
  }
}

// Where a row's sequence is, for rows that see something.
template <class Params>
int64_t sequence_of(const Params& p, int64_t row) {
  const auto* first = at<const int32_t>(p.first_row);
  const auto* count = at<const int32_t>(p.row_count);
  for (int64_t s = 0; s < p.sequences; ++s)
    if (row >= first[s] && row < first[s] + count[s]) return s;
  return -1;
}

template <class Params>
int64_t length_of(const Params& p, int64_t row) {
  return least(at<const int32_t>(p.row_length)[row], int64_t(p.table_blocks) * FW_BLOCK_TOKENS);
}

int64_t split_length(int64_t length, int64_t splits, int64_t split_positions) {
  const int64_t even = (length + splits - 1) / splits;
  return most(split_positions, round_up(even, FW_BLOCK_TOKENS));
}

template <class KvT, class Params>
Pages<KvT> pages_of(const Params& p, int64_t sequence, int64_t head) {
  return {at<const KvT>(p.kv), at<const int32_t>(p.block_table) + sequence * p.table_blocks,
          p.blocks, p.table_blocks, p.kv_heads, head, p.head_dim};
}

// A thread's scratch: the group's queries in float32, its outputs, its scores.
struct Scratch {
  float *q, *out, *scores;

  template <class Params>
  Scratch(const Params& p, char* own) {
    const int64_t group = round_up(HEADS * int64_t(p.head_dim), 16);
    q = reinterpret_cast<float*>(own);
    out = q + group;
    scores = out + group;
  }

  template <class Params>
  static Needs needs(const Params& p, int64_t positions) {
    const int64_t group = round_up(HEADS * int64_t(p.head_dim), 16);
    return {0, 4 * (2 * group + HEADS * round_up(positions, 16))};
  }
};

// Call use(head of q, count, pages, scratch) for the Q heads of one KV head, HEADS at a time.
template <class T, class KvT, class Params, class Use>
void each_group(const Params& p, int64_t row, int64_t kv_head, int64_t sequence,
                const Scratch& scratch, const Use& use) {
  const int64_t group = p.heads / p.kv_heads, dim = p.head_dim;
  const auto pages = pages_of<KvT>(p, sequence, kv_head);
  for (int64_t first = 0; first < group; first += HEADS) {
    const int64_t head = kv_head * group + first, count = least(HEADS, group - first);
    const T* q = at<const T>(p.q) + (row * p.heads + head) * dim;
    for (int64_t i = 0; i < count * dim; i += W)
      store_upto(scratch.q + i, load_upto(q + i, count * dim - i), count * dim - i);
    use(head, count, pages);
  }
}

}  // namespace

Needs attention_decode_needs(const fw_attention_decode_params& p) {
  const int64_t positions = int64_t(p.table_blocks) * FW_BLOCK_TOKENS;
  return Scratch::needs(p, split_length(positions, p.splits, p.split_positions));
}

void attention_decode(const fw_attention_decode_params& p, Worker& w) {
  const Scratch scratch(p, w.own);
  const int64_t dim = p.head_dim, per_row = int64_t(p.kv_heads) * p.splits;
  with_float(p.dtype, [&](auto kind) {
    with_float(p.kv_dtype, [&](auto kv_kind) {
      for (int64_t begin, end; w.take(0, p.rows * per_row, 1, begin, end);) {
        for (int64_t item = begin; item < end; ++item) {
          const int64_t row = item / per_row;
          const int64_t split = item % p.splits, kv_head = item % per_row / p.splits;
          const int64_t length = length_of(p, row);
          const int64_t step = split_length(length, p.splits, p.split_positions);
          const int64_t from = split * step, to = least(from + step, length);
          if (from >= to) continue;
          const int64_t sequence = sequence_of(p, row);
          if (sequence < 0) continue;
          each_group<decltype(kind), decltype(kv_kind)>(
              p, row, kv_head, sequence, scratch,
              [&](int64_t head, int64_t count, const auto& pages) {
                float ml[HEADS][2];
                attend_heads(count, scratch.q, pages, from, to, p.scale, scratch.scores,
                             scratch.out, ml);
                for (int64_t g = 0; g < count; ++g) {
                  const int64_t place = (row * p.heads + head + g) * p.splits + split;
                  memcpy(at<float>(p.partial) + place * dim, scratch.out + g * dim,
                         size_t(dim) * 4);
                  memcpy(at<float>(p.partial_ml) + place * 2, ml[g], sizeof ml[g]);
                }
              });
        }
      }
    });
  });
}

void attention_combine(const fw_attention_combine_params& p, Worker& w) {
  const int64_t dim = p.head_dim;
  with_float(p.dtype, [&](auto kind) {
    using T = decltype(kind);
    for (int64_t begin, end; w.take(0, int64_t(p.rows) * p.heads, 4, begin, end);) {
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

Needs attention_prefill_needs(const fw_attention_prefill_params& p) {
  return Scratch::needs(p, int64_t(p.table_blocks) * FW_BLOCK_TOKENS);
}

void attention_prefill(const fw_attention_prefill_params& p, Worker& w) {
  const Scratch scratch(p, w.own);
  const int64_t dim = p.head_dim;
  with_float(p.dtype, [&](auto kind) {
    using T = decltype(kind);
    with_float(p.kv_dtype, [&](auto kv_kind) {
      for (int64_t begin, end; w.take(0, int64_t(p.rows) * p.kv_heads, 1, begin, end);) {
        for (int64_t item = begin; item < end; ++item) {
          // The longest rows first: the last items should be short ones.
          const int64_t row = p.rows - 1 - item / p.kv_heads, kv_head = item % p.kv_heads;
          const int64_t length = length_of(p, row);
          const int64_t sequence = length > 0 ? sequence_of(p, row) : -1;
          if (sequence < 0) continue;
          each_group<T, decltype(kv_kind)>(
              p, row, kv_head, sequence, scratch,
              [&](int64_t head, int64_t count, const auto& pages) {
                float ml[HEADS][2];
                attend_heads(count, scratch.q, pages, 0, length, p.scale, scratch.scores,
                             scratch.out, ml);
                for (int64_t g = 0; g < count; ++g) {
                  T* y = at<T>(p.y) + (row * p.heads + head + g) * dim;
                  for (int64_t i = 0; i < dim; i += W)
                    store_upto(y + i, load_upto(scratch.out + g * dim + i, dim - i) / ml[g][1],
                               dim - i);
                }
              });
        }
      }
    });
  });
}

}  // namespace FW_ISA
}  // namespace flatwake
