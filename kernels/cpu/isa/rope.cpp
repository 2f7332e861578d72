// Norm and rotation of queries and keys, and the write into the paged KV.
#include "norm.h"
#include "ops.h"

namespace flatwake {
namespace FW_ISA {

namespace {

using Params = fw_qk_norm_rope_write_params;

// One head in float32, normed where there is a weight, then rotated in place.
template <class T>
void turn(const Params& p, const T* head, uint64_t weight, const float* rope, float* out) {
  const int64_t dim = p.head_dim, half = p.rotary_half;
  if (weight) {
    scale_row(head, out, at<const float>(weight), dim, inverse_rms(head, dim, p.eps),
              p.weight_offset);
  } else {
    for (int64_t i = 0; i < dim; i += W) store_upto(out + i, load_upto(head + i, dim - i), dim - i);
  }
  const float *cosine = rope, *sine = rope + half;
  if (p.pairing == 0) {
    for (int64_t i = 0; i < half; i += W) {
      const int64_t n = half - i;
      const vf a = load_upto(out + i, n), b = load_upto(out + half + i, n);
      const vf c = load_upto(cosine + i, n), s = load_upto(sine + i, n);
      store_upto(out + i, a * c - b * s, n);
      store_upto(out + half + i, b * c + a * s, n);
    }
  } else {
    for (int64_t i = 0; i < half; ++i) {
      const float a = out[2 * i], b = out[2 * i + 1];
      out[2 * i] = a * cosine[i] - b * sine[i];
      out[2 * i + 1] = b * cosine[i] + a * sine[i];
    }
  }
}

template <class T>
void put(const float* values, T* to, int64_t n) {
  for (int64_t i = 0; i < n; i += W) store_upto(to + i, load_upto(values + i, n - i), n - i);
}

// The block of a row's position; 0, padding's, where there is none to write to.
int64_t block_of(const Params& p, int64_t row) {
  const int64_t entry = at<const int32_t>(p.row_position)[row] / FW_BLOCK_TOKENS;
  const int64_t sequence = at<const int32_t>(p.row_sequence)[row];
  if (entry < 0 || entry >= p.table_blocks || sequence < 0 || sequence >= p.sequences) return 0;
  const int64_t block = at<const int32_t>(p.block_table)[sequence * p.table_blocks + entry];
  return block > 0 && block < p.blocks ? block : 0;
}

template <class T, class KvT>
void row_in(const Params& p, int64_t row, float* scratch) {
  const int64_t dim = p.head_dim, position = at<const int32_t>(p.row_position)[row];
  const int64_t angle = most(0, least(position, p.context - 1));
  const float* rope = at<const float>(p.rope) + angle * 2 * p.rotary_half;
  const T* packed = at<const T>(p.projection) + row * p.stride;
  T* q = at<T>(p.q) + row * p.heads * dim;
  for (int64_t h = 0; h < p.heads; ++h) {
    turn(p, packed + p.q_offset + h * dim, p.q_norm, rope, scratch);
    put(scratch, q + h * dim, dim);
  }
  const int64_t block = position < 0 ? 0 : block_of(p, row);
  if (!block) return;
  const int64_t side = int64_t(p.blocks) * p.kv_heads * FW_BLOCK_TOKENS * dim;
  for (int64_t h = 0; h < p.kv_heads; ++h) {
    KvT* k = at<KvT>(p.kv) +
             ((block * p.kv_heads + h) * FW_BLOCK_TOKENS + position % FW_BLOCK_TOKENS) * dim;
    turn(p, packed + p.k_offset + h * dim, p.k_norm, rope, scratch);
    put(scratch, k, dim);
    const T* v = packed + p.v_offset + h * dim;
    for (int64_t i = 0; i < dim; i += W)
      store_upto(k + side + i, load_upto(v + i, dim - i), dim - i);
  }
}

}  // namespace

Needs qk_norm_rope_write_needs(const Params& p) { return {0, int64_t(p.head_dim) * 4}; }

void qk_norm_rope_write(const Params& p, Worker& w) {
  const int64_t live = live_rows(p.live, p.rows);
  const int64_t grain = grain_of(2 * int64_t(p.heads + 2 * p.kv_heads) * p.head_dim);
  auto* scratch = reinterpret_cast<float*>(w.own);
  with_float(p.dtype, [&](auto kind) {
    with_float(p.kv_dtype, [&](auto kv_kind) {
      for (int64_t begin, end; w.take(0, live, grain, begin, end);)
        for (int64_t r = begin; r < end; ++r)
          if (at<const int32_t>(p.row_length)[r] > 0)
            row_in<decltype(kind), decltype(kv_kind)>(p, r, scratch);
    });
  });
}

}  // namespace FW_ISA
}  // namespace flatwake
