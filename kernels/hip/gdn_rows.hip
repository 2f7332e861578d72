// gdn_rows, the first of gdn_chunk's two kernels: what all columns of a state share of a prompt's rows,
// made once. Keys and queries of length one, and what a group's rows do to one another.
#include "gdn_group.h"

namespace fw {

// d[i] = beta[i] (value[i] - gate[i] Sᵀk[i]), S = gate[i] S + k[i] d[i]ᵀ, y[i] = Sᵀq[i], with the S before
// the group in place of each row's. `own` are k[i] · q[i]; `keys` and `queries` k[i] · k[later] and
// k[i] · q[later] of pairs.
DEVICE Group group_of(const float (&gate)[GROUP], const float (&beta)[GROUP], const float (&own)[GROUP],
                      const float (&keys)[PAIRS], const float (&queries)[PAIRS]) {
  Group of;
  float d[TRIANGLE], since[TRIANGLE];  // of u[j] in d[i]; the gates of j + 1 … i, multiplied
  FW_UNROLL
  for (int i = 0; i < GROUP; i++) {
    of.decay[i] = i ? gate[i] * of.decay[i - 1] : gate[i];
    FW_UNROLL
    for (int j = 0; j <= i; j++)
      since[of_triangle(i, j)] = j < i ? gate[i] * since[of_triangle(i - 1, j)] : 1.0f;
    FW_UNROLL
    for (int j = 0; j <= i; j++) {
      float seen = 0, asked = 0;
      FW_UNROLL
      for (int m = j; m < i; m++) {
        const float by = since[of_triangle(i, m)] * d[of_triangle(m, j)];
        seen = fma(keys[of_pair(m, i)], by, seen);
        asked = fma(queries[of_pair(m, i)], by, asked);
      }
      d[of_triangle(i, j)] = j < i ? -beta[i] * seen : beta[i];
      of.gives[of_triangle(i, j)] = fma(own[i], d[of_triangle(i, j)], asked);
    }
  }
  FW_UNROLL
  for (int i = 0; i < GROUP; i++)
    FW_UNROLL
    for (int j = 0; j <= i; j++)
      of.brings[of_triangle(i, j)] = since[of_triangle(GROUP - 1, i)] * d[of_triangle(i, j)];
  return of;
}

// A group of rows and a K head, by a wave: four elements a lane. Rows beyond the last repeat it, but
// neither decay nor add.
template <int W, typename T>
DEVICE void gdn_rows(const FwGdnChunkParams& params) {
  const fw_gdn_chunk_params& p = params.op;
  const int k_head = block_y(), sequence = block_z();
  const Rows rows = rows_of(p, sequence);
  const int own = block_x() * (threads() / W) + uniform(thread() / W), first = rows.first + own * GROUP;
  if (first >= rows.end) return;
  const int group = first_group(rows.first, sequence) + own, at = lane<W>() * 4;
  const auto row_of = [&](int r) { return (size_t)least(first + r, rows.end - 1); };

  float q[GROUP][4], k[GROUP][4], dots[3 * GROUP + 2 * PAIRS] = {};
  FW_UNROLL
  for (int r = 0; r < GROUP; r++) {
    const T* qkv = in<T>(p.qkv) + row_of(r) * p.channels + (size_t)k_head * p.key_dim;
    FW_UNROLL
    for (int i = 0; i < 4; i++) {
      const bool there = at + i < p.key_dim;
      q[r][i] = there ? widen(qkv[at + i]) : 0.0f;
      k[r][i] = there ? widen(qkv[p.k_heads * p.key_dim + at + i]) : 0.0f;
    }
  }
  FW_UNROLL
  for (int e = 0; e < 4; e++)
    FW_UNROLL
    for (int i = 0, n = 3 * GROUP; i < GROUP; i++) {
      dots[i] = fma(q[i][e], q[i][e], dots[i]);
      dots[GROUP + i] = fma(k[i][e], k[i][e], dots[GROUP + i]);
      dots[2 * GROUP + i] = fma(k[i][e], q[i][e], dots[2 * GROUP + i]);
      FW_UNROLL
      for (int later = i + 1; later < GROUP; later++, n++) {
        dots[n] = fma(k[i][e], k[later][e], dots[n]);
        dots[n + PAIRS] = fma(k[i][e], q[later][e], dots[n + PAIRS]);
      }
    }
  group_sums<W, W>(dots);

  float q_scale[GROUP], k_scale[GROUP];
  Words* keys = out<Words>(params.keys) + place_of_group(params, k_head, group) * GROUP * PIECES;
  Words* queries = out<Words>(params.queries) + place_of_group(params, k_head, group) * GROUP * PIECES;
  FW_UNROLL
  for (int r = 0; r < GROUP; r++) {
    q_scale[r] = 1.0f / (sqrt(dots[r] + p.eps) * sqrt((float)p.key_dim));
    k_scale[r] = 1.0f / sqrt(dots[GROUP + r] + p.eps);
    if (lane<W>() >= PIECES) continue;
    queries[r * PIECES + lane<W>()] =
        floats(q[r][0] * q_scale[r], q[r][1] * q_scale[r], q[r][2] * q_scale[r], q[r][3] * q_scale[r]);
    keys[r * PIECES + lane<W>()] =
        floats(k[r][0] * k_scale[r], k[r][1] * k_scale[r], k[r][2] * k_scale[r], k[r][3] * k_scale[r]);
  }
  float own_dots[GROUP], key_dots[PAIRS], query_dots[PAIRS];
  FW_UNROLL
  for (int i = 0, n = 0; i < GROUP; i++) {
    own_dots[i] = dots[2 * GROUP + i] * k_scale[i] * q_scale[i];
    FW_UNROLL
    for (int later = i + 1; later < GROUP; later++, n++) {
      key_dots[n] = dots[3 * GROUP + n] * k_scale[i] * k_scale[later];
      query_dots[n] = dots[3 * GROUP + PAIRS + n] * k_scale[i] * q_scale[later];
    }
  }
  const int shared = p.v_heads / p.k_heads;  // V heads of a K head
  for (int n = lane<W>(); n < shared; n += W) {
    const int head = p.head_map ? k_head + n * p.k_heads : k_head * shared + n;
    float gate[GROUP], beta[GROUP];
    FW_UNROLL
    for (int r = 0; r < GROUP; r++) {
      const T* ab = in<T>(p.ab) + row_of(r) * p.ab_stride;
      const float step = softplus(widen(ab[p.a_offset + head]) + in<float>(p.dt_bias)[head]);
      const bool live = first + r < rows.end;
      gate[r] = live ? exp(in<float>(p.negative_a)[head] * step) : 1.0f;
      beta[r] = live ? sigmoid(widen(ab[p.b_offset + head])) : 0.0f;
    }
    const Group of = group_of(gate, beta, own_dots, key_dots, query_dots);
    float all[FW_GDN_FACTS];
    FW_UNROLL
    for (int i = 0; i < GROUP; i++) all[i] = of.decay[i];
    FW_UNROLL
    for (int i = 0; i < TRIANGLE; i++) all[GROUP + i] = of.gives[i], all[GROUP + TRIANGLE + i] = of.brings[i];
    Words* facts = out<Words>(params.facts) + place_of_group(params, head, group) * FACTS;
    FW_UNROLL
    for (int i = 0; i < FACTS; i++) facts[i] = floats(all[4 * i], all[4 * i + 1], all[4 * i + 2], all[4 * i + 3]);
  }
}

}  // namespace fw

#define ENTRY(suffix, T) \
  FW_KERNEL(gdn_rows_##suffix, 256, FwGdnChunkParams) { fw::gdn_rows<FW_WAVE, T>(p); }
ENTRY(f32, float)
ENTRY(f16, fw::f16)
ENTRY(bf16, fw::bf16)
