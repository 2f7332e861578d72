// attention_decode, attention_combine, attention_prefill, output_gate.
//
// A block takes one row's query heads of one KV head over a range of positions. Groups of LANES lanes
// take positions, eight elements a lane, each with a running maximum of its own; all groups' positions
// lie together, so that a short range is soon done. The groups are joined at the end, in their order,
// over LDS whose size depends on nothing. Which group sees a position, and in which order, follows from
// the row's own length: not from its company, nor from how its prompt was cut into chunks.
#include "parameters.h"
#include "portable.h"

namespace fw {

constexpr int BLOCK = 256;
// Finite, so that a difference of two is a number: no maximum yet, and a position that isn't seen.
constexpr float LOWEST = -1e30f, UNSEEN = -2e30f;
// Scores are kept as powers of two.
constexpr float LOG2_E = 1.44269504088896341f, LN_2 = 0.693147180559945309f;

// A group's sums over the positions that it has seen.
template <int HEADS>
struct Running {
  float largest[HEADS], weight[HEADS], sums[HEADS][8];
};

// Positions that a group takes at once: as many as registers allow, and a wave's in one KV block.
template <int W, int LANES, int HEADS, typename T>
struct Taken {
  static constexpr int MOST = (HEADS == 1 ? 8 : 4) / (int)sizeof(T), FIT = FW_BLOCK_TOKENS / (W / LANES);
  static constexpr int TURNS = FIT < MOST ? FIT : MOST, WAVE = W / LANES * TURNS;
};

// A wave's positions from `first` of a KV block on, of which `count` are seen. Those that are not read
// the last one that is, and weigh nothing; lanes beyond head_dim read the head's start, which their q
// of zero leaves without effect.
template <int W, int LANES, int HEADS, typename T>
DEVICE void attend_positions(const T* keys, const T* values, int first, int count, int head_dim,
                             const float (&q)[HEADS][8], Running<HEADS>& run) {
  constexpr int GROUPS = W / LANES, TURNS = Taken<W, LANES, HEADS, T>::TURNS;
  const int group = lane<W>() / LANES, offset = lane<W>() % LANES * 8;
  const int at = offset < head_dim ? offset : 0;
  Eight<T> key[TURNS], value[TURNS];
  FW_UNROLL
  for (int t = 0; t < TURNS; t++) {
    const int place = least(first + t * GROUPS + group, count - 1) * head_dim + at;
    key[t] = load8(keys + place);
    value[t] = load8(values + place);
  }
  float score[HEADS * TURNS], largest[HEADS];
  FW_UNROLL
  for (int h = 0; h < HEADS; h++) {
    FW_UNROLL
    for (int t = 0; t < TURNS; t++) {
      float dot = 0;
      FW_UNROLL
      for (int j = 0; j < 8; j++) dot = fma(q[h][j], key[t].get(j), dot);
      score[h * TURNS + t] = dot;
    }
  }
  group_sums<W, LANES>(score);
  bool larger = false;
  FW_UNROLL
  for (int h = 0; h < HEADS; h++) {
    largest[h] = run.largest[h];
    FW_UNROLL
    for (int t = 0; t < TURNS; t++) {
      if (first + t * GROUPS + group >= count) score[h * TURNS + t] = UNSEEN;
      largest[h] = fmax(largest[h], score[h * TURNS + t]);
    }
    larger |= largest[h] > run.largest[h];
  }
  // Else they would be multiplied by 1; one head's are so few that the branch costs more.
  if (HEADS == 1 || larger) {
    FW_UNROLL
    for (int h = 0; h < HEADS; h++) {
      const float shrink = fast_exp2(run.largest[h] - largest[h]);
      run.largest[h] = largest[h];
      run.weight[h] *= shrink;
      FW_UNROLL
      for (int j = 0; j < 8; j++) run.sums[h][j] *= shrink;
    }
  }
  FW_UNROLL
  for (int h = 0; h < HEADS; h++) {
    FW_UNROLL
    for (int t = 0; t < TURNS; t++) {
      const float weight = fast_exp2(score[h * TURNS + t] - run.largest[h]);
      run.weight[h] += weight;
      FW_UNROLL
      for (int j = 0; j < 8; j++) run.sums[h][j] = fma(weight, value[t].get(j), run.sums[h][j]);
    }
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

// A row's query heads (HEADS of them, or those that are left), eight elements a lane, times what makes
// powers of two of their scores. All are asked for before the first is used.
template <int LANES, int HEADS, typename T>
DEVICE void load_queries_as(const FwAttentionParams& p, int row, Heads heads, float (&q)[HEADS][8]) {
  const int offset = thread() % LANES * 8, at = offset < p.head_dim ? offset : 0;
  Eight<T> eight[HEADS];
  FW_UNROLL
  for (int h = 0; h < HEADS; h++) {
    const int head = least(heads.first + h, heads.end - 1);
    eight[h] = load8(in<T>(p.q) + ((size_t)row * p.heads + head) * p.head_dim + at);
  }
  FW_UNROLL
  for (int h = 0; h < HEADS; h++) {
    FW_UNROLL
    for (int j = 0; j < 8; j++)
      q[h][j] = offset < p.head_dim ? eight[h].get(j) * (p.scale * LOG2_E) : 0.0f;
  }
}
template <int LANES, int HEADS>
DEVICE void load_queries(const FwAttentionParams& p, int row, Heads heads, float (&q)[HEADS][8]) {
  if (p.dtype == FW_F32) load_queries_as<LANES, HEADS, float>(p, row, heads, q);
  else if (p.dtype == FW_F16) load_queries_as<LANES, HEADS, f16>(p, row, heads, q);
  else load_queries_as<LANES, HEADS, bf16>(p, row, heads, q);
}

// A row's query heads over positions [begin, end): the result, or a split's share of it.
template <int W, int LANES, int HEADS, typename T>
DEVICE void attend(const FwAttentionParams& p, int row, int sequence, Heads heads, int split,
                   int begin, int end) {
  constexpr int GROUPS = BLOCK / LANES, WIDTH = LANES * 8;
  constexpr int WAVE = Taken<W, LANES, HEADS, T>::WAVE;
  FW_LDS(float, joined, GROUPS * WIDTH);
  FW_LDS(float, maxima, GROUPS * HEADS);
  FW_LDS(float, weights, GROUPS * HEADS);
  const int group = thread() / LANES, at = thread() % LANES * 8;

  float q[HEADS][8];
  load_queries<LANES, HEADS>(p, row, heads, q);
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
  for (int from = begin + uniform(thread() / W) * WAVE; from < end; from += BLOCK / W * WAVE) {
    const int entry = from / FW_BLOCK_TOKENS, first = from % FW_BLOCK_TOKENS;
    int block = uniform(table[entry]);
    if (block < 0 || block >= p.blocks) block = 0;
    const T* keys = in<T>(p.kv) +
                    ((size_t)block * p.kv_heads + heads.kv_head) * FW_BLOCK_TOKENS * p.head_dim;
    attend_positions<W, LANES, HEADS, T>(keys, keys + values, first, end - from + first, p.head_dim, q,
                                         run);
  }

  // All groups' sums by the largest of all; then they are added, a head after another.
  if (at == 0) {
    FW_UNROLL
    for (int h = 0; h < HEADS; h++) maxima[group * HEADS + h] = run.largest[h];
  }
  barrier();
  float largest[HEADS];
  FW_UNROLL
  for (int h = 0; h < HEADS; h++) {
    largest[h] = LOWEST;
    for (int g = 0; g < GROUPS; g++) largest[h] = fmax(largest[h], maxima[g * HEADS + h]);
    const float shrink = fast_exp2(run.largest[h] - largest[h]);
    if (at == 0) weights[group * HEADS + h] = run.weight[h] * shrink;
    FW_UNROLL
    for (int j = 0; j < 8; j++) run.sums[h][j] *= shrink;
  }
  FW_UNROLL
  for (int h = 0; h < HEADS; h++) {
    if (h) barrier();
    FW_UNROLL
    for (int j = 0; j < 8; j++) joined[group * WIDTH + at + j] = run.sums[h][j];
    barrier();
    if (thread() >= p.head_dim || heads.first + h >= heads.end) continue;
    float sum = 0, weight = 0;
    for (int g = 0; g < GROUPS; g++) sum += joined[g * WIDTH + thread()];
    for (int g = 0; g < GROUPS; g++) weight += weights[g * HEADS + h];
    const size_t place = (size_t)row * p.heads + heads.first + h;
    if (p.y) {
      store_as(p.y, p.dtype, place * p.head_dim + thread(), sum / weight);
      continue;
    }
    const size_t part = place * p.splits + split;
    out<float>(p.partial)[part * p.head_dim + thread()] = sum;
    if (thread() == 0) {
      out<float>(p.partial_ml)[2 * part] = largest[h] * LN_2;
      out<float>(p.partial_ml)[2 * part + 1] = weight;
    }
  }
  barrier();  // the block may have another row
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

// Groups of lanes take splits in turn, eight elements a lane, and all at once; every lane of a wave
// knows a split's share of the whole. Then the groups are added in their order.
template <int W>
DEVICE void attention_combine(const FwCombineParams& params) {
  constexpr int LANES = 32, WIDTH = LANES * 8, GROUPS = BLOCK / LANES, TURNS = FW_MAX_SPLITS / GROUPS;
  static_assert(W >= FW_MAX_SPLITS && WIDTH <= BLOCK, "a lane a split, and a thread an element");
  FW_LDS(float, joined, GROUPS * WIDTH);
  const fw_attention_combine_params& p = params.op;
  const int row = block_y(), head = block_x(), i = least(thread(), p.head_dim - 1);
  const int split = least(lane<W>(), p.splits - 1);
  const int group = thread() / LANES, offset = thread() % LANES * 8;
  const size_t place = (size_t)row * p.heads + head;
  const int length = in<int>(p.row_length)[row];
  const float* ml = in<float>(p.partial_ml) + (place * p.splits + split) * 2;
  const float own_largest = ml[0], own_weight = ml[1];
  const size_t gates = (size_t)row * params.gate_stride + params.gate_offset + head * p.head_dim;
  const float gate = params.gate ? load_as(params.gate, p.dtype, gates + i) : 0.0f;
  const int part = split_length(length, p.splits, p.split_positions);
  const int count = length > 0 ? least((length + part - 1) / part, p.splits) : 0;

  const float* partial = in<float>(p.partial) + place * p.splits * p.head_dim +
                         (offset < p.head_dim ? offset : 0);
  Eight<float> eight[TURNS];
  FW_UNROLL
  for (int t = 0; t < TURNS; t++) {
    const int s = t * GROUPS + group;
    eight[t] = s < count ? load8(partial + (size_t)s * p.head_dim) : zero8<float>();
  }
  const bool live = lane<W>() < count;
  const float largest = wave_max<W>(live ? own_largest : LOWEST);
  const float share = live ? exp(own_largest - largest) : 0.0f;
  const float weight = wave_sum<W>(live ? own_weight * share : 0.0f);
  float sums[8] = {};
  FW_UNROLL
  for (int t = 0; t < TURNS; t++) {
    const float its = shuffle<W>(share, t * GROUPS + group);
    FW_UNROLL
    for (int j = 0; j < 8; j++) sums[j] = fma(eight[t].get(j), its, sums[j]);
  }
  FW_UNROLL
  for (int j = 0; j < 8; j++) joined[group * WIDTH + offset + j] = sums[j];
  barrier();
  float sum = 0;
  for (int g = 0; g < GROUPS; g++) sum += joined[g * WIDTH + i];
  float value = count ? sum / weight : 0.0f;
  if (params.gate && count) value = rounded(p.dtype, value) * sigmoid(gate);
  if (thread() < p.head_dim) store_as(p.y, p.dtype, place * p.head_dim + i, value);
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
FW_KERNEL(attention_combine, 256, FwCombineParams) { fw::attention_combine<FW_WAVE>(p); }
FW_KERNEL(output_gate, 256, fw_output_gate_params) { fw::output_gate(p); }
