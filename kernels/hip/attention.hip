// attention_decode, attention_combine, attention_prefill, output_gate.
//
// A block takes one row's query heads of one KV head over a range of positions. A wave takes whole
// KV blocks (16 positions) in turn; groups of LANES lanes take positions, eight elements a lane,
// each with a running maximum of its own. The groups are joined at the end, in their order, over
// LDS whose size depends on nothing. Which group sees a position, and in which order, follows from
// the row's own length: not from its company, nor from how its prompt was cut into chunks.
#include "parameters.h"
#include "portable.h"

namespace fw {

constexpr int BLOCK = 256;
// Finite, so that a difference of two is a number: no maximum yet, and a position that isn't seen.
constexpr float LOWEST = -1e30f, UNSEEN = -2e30f;

// A group's sums over the positions that it has seen.
template <int HEADS>
struct Running {
  float largest[HEADS], weight[HEADS], sums[HEADS][8];
};

// Positions that are not seen read the last one that is, and weigh nothing; lanes beyond head_dim
// read the head's start, which their q of zero leaves without effect.
template <int W, int LANES, int HEADS, typename T>
DEVICE void attend_block(const T* keys, const T* values, int count, int head_dim, float scale,
                         const float (&q)[HEADS][8], Running<HEADS>& run) {
  constexpr int GROUPS = W / LANES, BATCH = FW_BLOCK_TOKENS / GROUPS;
  constexpr int MOST = HEADS == 1 ? 4 : 2, TURNS = BATCH > MOST ? MOST : BATCH;  // by registers
  const int group = lane<W>() / LANES, offset = lane<W>() % LANES * 8;
  const int at = offset < head_dim ? offset : 0;
  for (int first = 0; first < count; first += GROUPS * TURNS) {
    Eight<T> key[TURNS], value[TURNS];
    FW_UNROLL
    for (int t = 0; t < TURNS; t++) {
      const int place = least(first + t * GROUPS + group, count - 1) * head_dim + at;
      key[t] = load8(keys + place);
      value[t] = load8(values + place);
    }
    FW_UNROLL
    for (int h = 0; h < HEADS; h++) {
      float score[TURNS], largest = run.largest[h];
      FW_UNROLL
      for (int t = 0; t < TURNS; t++) {
        float dot = 0;
        FW_UNROLL
        for (int j = 0; j < 8; j++) dot = fma(q[h][j], key[t].get(j), dot);
        dot = group_sum<W, LANES>(dot) * scale;
        score[t] = first + t * GROUPS + group < count ? dot : UNSEEN;
        largest = fmax(largest, score[t]);
      }
      const float shrink = fast_exp(run.largest[h] - largest);
      run.largest[h] = largest;
      run.weight[h] *= shrink;
      FW_UNROLL
      for (int j = 0; j < 8; j++) run.sums[h][j] *= shrink;
      FW_UNROLL
      for (int t = 0; t < TURNS; t++) {
        const float weight = fast_exp(score[t] - largest);
        run.weight[h] += weight;
        FW_UNROLL
        for (int j = 0; j < 8; j++) run.sums[h][j] = fma(weight, value[t].get(j), run.sums[h][j]);
      }
    }
  }
}

// Eight elements of an array whose type is known at run time alone.
DEVICE void load8_as(uint64_t address, int dtype, size_t i, float (&values)[8]) {
  if (dtype == FW_F32) {
    const Eight<float> eight = load8(in<float>(address) + i);
    FW_UNROLL
    for (int j = 0; j < 8; j++) values[j] = eight.get(j);
    return;
  }
  const Words words = load_words(in<uint16_t>(address) + i);
  FW_UNROLL
  for (int j = 0; j < 8; j++) {
    const uint32_t pair = word(words, j / 2);
    const uint16_t bits = (uint16_t)(j % 2 ? pair >> 16 : pair & 0xffff);
    values[j] = dtype == FW_F16 ? widen(f16{bits}) : widen(bf16{bits});
  }
}

// Positions in each part of a row that sees `length` positions.
DEVICE int split_length(int length, int splits, int split_positions) {
  const int even = (length + splits - 1) / splits;
  return most(split_positions, (even + FW_BLOCK_TOKENS - 1) / FW_BLOCK_TOKENS * FW_BLOCK_TOKENS);
}

struct Heads {
  int kv_head, first, end;
};
// Block x counts KV heads, and within one the sets of HEADS query heads.
template <int HEADS>
DEVICE Heads heads_of_block(const FwAttentionParams& p) {
  const int shared = p.heads / p.kv_heads, sets = (shared + HEADS - 1) / HEADS;
  const int kv_head = block_x() / sets;
  return Heads{kv_head, kv_head * shared + block_x() % sets * HEADS, (kv_head + 1) * shared};
}

// A row's query heads (HEADS of them, or those that are left) over positions [begin, end): the
// result, or a split's share of it.
template <int W, int LANES, int HEADS, typename T>
DEVICE void attend(const FwAttentionParams& p, int row, int sequence, Heads heads, int split,
                   int begin, int end) {
  constexpr int GROUPS = BLOCK / LANES, WIDTH = LANES * 8;
  FW_LDS(float, joined, GROUPS * WIDTH);
  FW_LDS(float, maxima, GROUPS);
  FW_LDS(float, weights, GROUPS);
  const int group = thread() / LANES, at = thread() % LANES * 8;

  float q[HEADS][8];
  FW_UNROLL
  for (int h = 0; h < HEADS; h++) {
    const int head = least(heads.first + h, heads.end - 1), from = at < p.head_dim ? at : 0;
    load8_as(p.q, p.dtype, ((size_t)row * p.heads + head) * p.head_dim + from, q[h]);
    FW_UNROLL
    for (int j = 0; j < 8; j++) q[h][j] = at < p.head_dim ? q[h][j] : 0.0f;
  }
  Running<HEADS> run;
  FW_UNROLL
  for (int h = 0; h < HEADS; h++) {
    run.largest[h] = LOWEST;
    run.weight[h] = 0;
    FW_UNROLL
    for (int j = 0; j < 8; j++) run.sums[h][j] = 0;
  }

  const int* table = in<int>(p.block_table) + (size_t)sequence * p.table_blocks;
  const size_t values = (size_t)p.blocks * p.kv_heads * FW_BLOCK_TOKENS * p.head_dim;
  const int waves = BLOCK / W, last = (end + FW_BLOCK_TOKENS - 1) / FW_BLOCK_TOKENS;
  for (int b = begin / FW_BLOCK_TOKENS + uniform(thread() / W); b < last; b += waves) {
    int block = uniform(table[b]);
    if (block < 0 || block >= p.blocks) block = 0;
    const T* keys = in<T>(p.kv) +
                    ((size_t)block * p.kv_heads + heads.kv_head) * FW_BLOCK_TOKENS * p.head_dim;
    attend_block<W, LANES, HEADS, T>(keys, keys + values,
                                     least(FW_BLOCK_TOKENS, end - b * FW_BLOCK_TOKENS), p.head_dim,
                                     p.scale, q, run);
  }

  FW_UNROLL
  for (int h = 0; h < HEADS; h++) {
    barrier();
    FW_UNROLL
    for (int j = 0; j < 8; j++) joined[group * WIDTH + at + j] = run.sums[h][j];
    if (at == 0) {
      maxima[group] = run.largest[h];
      weights[group] = run.weight[h];
    }
    barrier();
    float largest = LOWEST, weight = 0, sum = 0;
    for (int g = 0; g < GROUPS; g++) largest = fmax(largest, maxima[g]);
    for (int g = 0; g < GROUPS; g++) weight = fma(weights[g], fast_exp(maxima[g] - largest), weight);
    if (thread() >= p.head_dim || heads.first + h >= heads.end) continue;
    for (int g = 0; g < GROUPS; g++)
      sum = fma(joined[g * WIDTH + thread()], fast_exp(maxima[g] - largest), sum);
    const size_t place = (size_t)row * p.heads + heads.first + h;
    if (p.y) {
      store_as(p.y, p.dtype, place * p.head_dim + thread(), sum / weight);
      continue;
    }
    const size_t part = place * p.splits + split;
    out<float>(p.partial)[part * p.head_dim + thread()] = sum;
    if (thread() == 0) {
      out<float>(p.partial_ml)[2 * part] = largest;
      out<float>(p.partial_ml)[2 * part + 1] = weight;
    }
  }
}

// Block y is a split of every row of the sequence, or one row with all that it sees.
template <int W, int LANES, int HEADS, typename T>
DEVICE void attention(const FwAttentionParams& p) {
  const Heads heads = heads_of_block<HEADS>(p);
  const int sequence = block_z(), first = most(in<int>(p.first_row)[sequence], 0);
  const int end = least(in<int>(p.first_row)[sequence] + in<int>(p.row_count)[sequence], p.rows);
  const int from = p.y ? first + block_y() : first, to = p.y ? least(from + 1, end) : end;
  for (int row = from; row < to; row++) {
    const int length = least(in<int>(p.row_length)[row], p.table_blocks * FW_BLOCK_TOKENS);
    const int part = p.y ? length : split_length(length, p.splits, p.split_positions);
    const int split = p.y ? 0 : block_y();
    const int begin = split * part, stop = least(begin + part, length);
    if (begin < stop)
      attend<W, LANES, HEADS, T>(p, row, sequence, heads, split, begin, stop);
  }
}

// A thread an element. The first split is asked for before the row's length is known.
DEVICE void attention_combine(const FwCombineParams& params) {
  const fw_attention_combine_params& p = params.op;
  const int row = block_y(), head = block_x(), i = thread();
  if (i >= p.head_dim) return;
  const size_t place = (size_t)row * p.heads + head;
  const float* ml = in<float>(p.partial_ml) + place * p.splits * 2;
  const float* partial = in<float>(p.partial) + place * p.splits * p.head_dim + i;
  const float first_largest = ml[0], first_weight = ml[1], first = partial[0];
  const size_t gates = (size_t)row * params.gate_stride + params.gate_offset + head * p.head_dim;
  const float gate = params.gate ? load_as(params.gate, p.dtype, gates + i) : 0.0f;
  const int length = in<int>(p.row_length)[row];
  const int part = split_length(length, p.splits, p.split_positions);
  const int count = length > 0 ? least((length + part - 1) / part, p.splits) : 0;

  float largest = first_largest;
  for (int s = 1; s < count; s++) largest = fmax(largest, ml[2 * s]);
  const float share = exp(first_largest - largest);
  float weight = first_weight * share, sum = first * share;
  for (int s = 1; s < count; s++) {
    const float other = exp(ml[2 * s] - largest);
    weight = fma(ml[2 * s + 1], other, weight);
    sum = fma(partial[(size_t)s * p.head_dim], other, sum);
  }
  float value = count ? sum / weight : 0.0f;
  if (params.gate && count) value = rounded(p.dtype, value) * sigmoid(gate);
  store_as(p.y, p.dtype, place * p.head_dim + i, value);
}

DEVICE void output_gate(const fw_output_gate_params& p) {
  const int row = block_y(), i = block_x() * threads() + thread();
  if (row >= live_rows(p.live, p.rows) || i >= p.width) return;
  const size_t at = (size_t)row * p.width + i;
  const float gate = load_as(p.gate, p.dtype, (size_t)row * p.gate_stride + p.gate_offset + i);
  store_as(p.y, p.dtype, at, load_as(p.x, p.dtype, at) * sigmoid(gate));
}

}  // namespace fw

#define ENTRY(suffix, T, lanes, heads)                                        \
  FW_KERNEL(attention_##suffix##_##lanes##_##heads, 256, FwAttentionParams) { \
    fw::attention<FW_WAVE, lanes, heads, T>(p);                               \
  }
#define ENTRIES(suffix, T) \
  ENTRY(suffix, T, 8, 1)   \
  ENTRY(suffix, T, 16, 1)  \
  ENTRY(suffix, T, 32, 1)  \
  ENTRY(suffix, T, 8, 4)   \
  ENTRY(suffix, T, 16, 4)  \
  ENTRY(suffix, T, 32, 4)
ENTRIES(f32, float)
ENTRIES(f16, fw::f16)
ENTRIES(bf16, fw::bf16)
FW_KERNEL(attention_combine, 256, FwCombineParams) { fw::attention_combine(p); }
FW_KERNEL(output_gate, 256, fw_output_gate_params) { fw::output_gate(p); }
