// A sequence's keys and values where they lie in the pool, and what its rows may see of them.
#ifndef FLATWAKE_CPU_ISA_PAGES_H
#define FLATWAKE_CPU_ISA_PAGES_H

#include "simd.h"

namespace flatwake {
namespace FW_ISA {
namespace {

// One KV head's pages.
template <class KvT>
struct Pages {
  const KvT* kv;
  const int32_t* table;  // the sequence's own
  int64_t blocks, kv_heads, head, dim;

  template <class Params>
  Pages(const Params& p, int64_t sequence, int64_t kv_head)
      : kv(at<const KvT>(p.kv)),
        table(at<const int32_t>(p.block_table) + sequence * p.table_blocks),
        blocks(p.blocks),
        kv_heads(p.kv_heads),
        head(kv_head),
        dim(p.head_dim) {}

  // Of the block of position p, a multiple of its size.
  const KvT* keys(int64_t position) const {
    const int64_t block = table[position / FW_BLOCK_TOKENS];
    const int64_t known = block >= 0 && block < blocks ? block : 0;
    return kv + (known * kv_heads + head) * FW_BLOCK_TOKENS * dim;
  }
  const KvT* values(int64_t position) const {
    return keys(position) + blocks * kv_heads * FW_BLOCK_TOKENS * dim;
  }
};

// The sequence that a row is of; -1 for none.
template <class Params>
int64_t sequence_of(const Params& p, int64_t row) {
  const auto* first = at<const int32_t>(p.first_row);
  const auto* count = at<const int32_t>(p.row_count);
  for (int64_t s = 0; s < p.sequences; ++s)
    if (row >= first[s] && row < first[s] + count[s]) return s;
  return -1;
}

// Positions that a row sees; never past its table.
template <class Params>
int64_t length_of(const Params& p, int64_t row) {
  return least(at<const int32_t>(p.row_length)[row], int64_t(p.table_blocks) * FW_BLOCK_TOKENS);
}

// `dim` elements in float32, zero up to the next multiple of 16.
template <class T>
void widen_row(const T* from, int64_t dim, float* to) {
  for (int64_t i = 0; i < round_up(dim, 16); i += W)
    store(to + i, i < dim ? load_upto(from + i, dim - i) : vf{});
}

// Scores become exp(score - top), and zero up to the next multiple of 16; their sum.
inline float exponents(float* scores, int64_t count, float top) {
  vf sums{};
  const int64_t whole = count / W * W;
  for (int64_t i = 0; i < whole; i += W) {
    const vf value = exponential(load(scores + i) - top);
    store(scores + i, value);
    sums += value;
  }
  for (int64_t i = whole; i < round_up(count, 16); i += W) {
    vf value = exponential(load(scores + i) - top);
    for (int lane = 0; lane < W; ++lane) value[lane] = i + lane < count ? value[lane] : 0;
    store(scores + i, value);
    sums += value;
  }
  return sum(sums);
}

inline float top_score(const float* scores, int64_t count) {
  const int64_t whole = count / W * W;
  float top = scores[0];
  if (whole) {
    vf tops = load(scores);
    for (int64_t i = W; i < whole; i += W) tops = larger(load(scores + i), tops);
    top = largest(tops);
  }
  for (int64_t i = whole; i < count; ++i) top = scores[i] > top ? scores[i] : top;
  return top;
}

}  // namespace
}  // namespace FW_ISA
}  // namespace flatwake

#endif
