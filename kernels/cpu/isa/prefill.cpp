// Prefill attention: a group of a chunk's rows over one KV head, sixty-four positions at a time.
//
// Keys are widened and turned once for the group, so that a vector of scores belongs to as many
// positions and no lanes are ever summed. Each row keeps its own running maximum over pieces that
// begin at fixed positions and end at its own length: its bits are the same in any group, and
// however its prompt was cut.
#include "ops.h"
#include "pages.h"

namespace flatwake {
namespace FW_ISA {

namespace {

using Params = fw_attention_prefill_params;

constexpr int64_t PIECE = 64;  // positions
constexpr int64_t ROWS = 32;   // of a group at most
// Queries, times vectors, whose sums stay in registers together.
constexpr int SCORED = W == 16 ? 6 : 4, CHUNKS = 2;
constexpr int SUMMED = W == 16 ? 6 : 2, VECTORS = 4;

// Fewer where a short chunk's groups would be too few for the threads.
int64_t rows_together(const Params& p) { return p.rows < 2 * ROWS ? ROWS / 2 : ROWS; }

// A thread's scratch. Queries, outputs and values have rows of `padded` floats, keys and scores
// of PIECE.
struct Scratch {
  int64_t padded, queries;
  float *q, *out, *keys, *values, *scores, *top, *weight;

  Scratch(const Params& p, char* own)
      : padded(round_up(p.head_dim, 16)), queries(rows_together(p) * (p.heads / p.kv_heads)) {
    q = reinterpret_cast<float*>(own);
    out = q + queries * padded;
    keys = out + queries * padded;
    values = keys + PIECE * padded;
    scores = values + PIECE * padded;
    top = scores + queries * PIECE;
    weight = top + queries;
  }

  int64_t bytes() const {
    return 4 * (2 * queries * padded + 2 * PIECE * padded + queries * PIECE + 2 * queries);
  }
};

// Consecutive rows of one sequence that see something.
struct Run {
  int64_t first, count, sequence, longest;
};

// Keys, turned, and values of positions [start, start + count); the rest of the piece is zero.
template <class KvT>
void widen_piece(const Pages<KvT>& pages, int64_t start, int64_t count, const Scratch& s) {
  const int64_t dim = pages.dim;
  for (int64_t p = 0; p < PIECE; p += FW_BLOCK_TOKENS) {
    const bool seen = p < count;
    const KvT* keys = seen ? pages.keys(start + p) : nullptr;
    const KvT* values = seen ? pages.values(start + p) : nullptr;
    for (int64_t b = 0; b < FW_BLOCK_TOKENS; b += W) {
      for (int64_t i = 0; i < s.padded; i += W) {
        vf square[W];
        for (int64_t lane = 0; lane < W; ++lane) {
          const bool there = p + b + lane < count && i < dim;
          square[lane] = there ? load_upto(keys + (b + lane) * dim + i, dim - i) : vf{};
        }
        transpose(square);
        for (int64_t row = 0; row < W; ++row)
          store(s.keys + (i + row) * PIECE + p + b, square[row]);
      }
    }
    for (int64_t b = 0; b < FW_BLOCK_TOKENS; ++b) {
      float* to = s.values + (p + b) * s.padded;
      if (p + b < count)
        widen_row(values + b * dim, dim, to);
      else
        memset(to, 0, size_t(s.padded) * 4);
    }
  }
}

// scores[i][…] = scale · q[i] · keys, for N queries and C vectors of positions.
template <int N, int C>
void score(const float* q, int64_t padded, int64_t dim, const float* keys, float scale,
           float* scores) {
  vf total[N][C] = {};
  for (int64_t d = 0; d < dim; ++d) {
    vf key[C];
    for (int c = 0; c < C; ++c) key[c] = load(keys + d * PIECE + c * W);
    for (int i = 0; i < N; ++i)
      for (int c = 0; c < C; ++c) total[i][c] = fma(set(q[i * padded + d]), key[c], total[i][c]);
  }
  for (int i = 0; i < N; ++i)
    for (int c = 0; c < C; ++c) store(scores + i * PIECE + c * W, total[i][c] * scale);
}

void score_all(const Scratch& s, int64_t queries, int64_t dim, int64_t count, float scale) {
  for (int64_t c = 0; c < round_up(count, CHUNKS * W); c += CHUNKS * W) {
    int64_t i = 0;
    for (; i + SCORED <= queries; i += SCORED)
      score<SCORED, CHUNKS>(s.q + i * s.padded, s.padded, dim, s.keys + c, scale,
                            s.scores + i * PIECE + c);
    for (; i < queries; ++i)
      score<1, CHUNKS>(s.q + i * s.padded, s.padded, dim, s.keys + c, scale,
                       s.scores + i * PIECE + c);
  }
}

// One query's scores of a piece become weights; what it had so far is scaled to the new maximum.
inline void weigh(const Scratch& s, int64_t i, int64_t seen) {
  float* scores = s.scores + i * PIECE;
  const int64_t count = least(seen, PIECE);
  if (count <= 0) {
    memset(scores, 0, PIECE * 4);
    return;
  }
  const float piece = top_score(scores, count);
  const float top = piece > s.top[i] ? piece : s.top[i];
  if (top != s.top[i]) {
    const float factor = exponential(set(s.top[i] - top))[0];
    s.weight[i] *= factor;
    s.top[i] = top;
    float* out = s.out + i * s.padded;
    for (int64_t d = 0; d < s.padded; d += W) store(out + d, load(out + d) * factor);
  }
  s.weight[i] += exponents(scores, count, top);
  for (int64_t p = round_up(count, 16); p < PIECE; ++p) scores[p] = 0;
}

// out[i] += Σ weights[i][p] · values[p], for N queries and V vectors.
template <int N, int V>
void add(const float* weights, const float* values, int64_t padded, int64_t count, float* out) {
  vf total[N][V];
  for (int i = 0; i < N; ++i)
    for (int v = 0; v < V; ++v) total[i][v] = load(out + i * padded + v * W);
  for (int64_t p = 0; p < count; ++p) {
    vf value[V];
    for (int v = 0; v < V; ++v) value[v] = load(values + p * padded + v * W);
    for (int i = 0; i < N; ++i) {
      const vf weight = set(weights[i * PIECE + p]);
      for (int v = 0; v < V; ++v) total[i][v] = fma(weight, value[v], total[i][v]);
    }
  }
  for (int i = 0; i < N; ++i)
    for (int v = 0; v < V; ++v) store(out + i * padded + v * W, total[i][v]);
}

template <int V>
void add_columns(const Scratch& s, int64_t queries, int64_t from, int64_t count) {
  int64_t i = 0;
  for (; i + SUMMED <= queries; i += SUMMED)
    add<SUMMED, V>(s.scores + i * PIECE, s.values + from, s.padded, count,
                   s.out + i * s.padded + from);
  for (; i < queries; ++i)
    add<1, V>(s.scores + i * PIECE, s.values + from, s.padded, count, s.out + i * s.padded + from);
}

void add_all(const Scratch& s, int64_t queries, int64_t count) {
  int64_t from = 0;
  for (; from + VECTORS * W <= s.padded; from += VECTORS * W)
    add_columns<VECTORS>(s, queries, from, count);
  for (; from < s.padded; from += W) add_columns<1>(s, queries, from, count);
}

template <class T, class KvT>
void attend(const Params& p, const Run& run, int64_t kv_head, const Scratch& s) {
  const int64_t group = p.heads / p.kv_heads, dim = p.head_dim, queries = run.count * group;
  const Pages<KvT> pages(p, run.sequence, kv_head);
  const auto head_of = [&](int64_t i) {
    return ((run.first + i / group) * p.heads + kv_head * group + i % group) * dim;
  };
  for (int64_t i = 0; i < queries; ++i) {
    widen_row(at<const T>(p.q) + head_of(i), dim, s.q + i * s.padded);
    s.top[i] = -__builtin_inff();
    s.weight[i] = 0;
  }
  memset(s.out, 0, size_t(queries * s.padded) * 4);
  for (int64_t start = 0; start < run.longest; start += PIECE) {
    const int64_t count = least(PIECE, run.longest - start);
    widen_piece(pages, start, count, s);
    score_all(s, queries, dim, count, p.scale);
    for (int64_t i = 0; i < queries; ++i)
      weigh(s, i, length_of(p, run.first + i / group) - start);
    add_all(s, queries, count);
  }
  for (int64_t i = 0; i < queries; ++i) {
    const float* out = s.out + i * s.padded;
    T* y = at<T>(p.y) + head_of(i);
    for (int64_t d = 0; d < dim; d += W)
      store_upto(y + d, load(out + d) / s.weight[i], dim - d);
  }
}

// The rows from `row` on, before `end`, that one call of attend can take; row moves past them.
Run next_run(const Params& p, int64_t& row, int64_t end) {
  Run run{row, 0, -1, 0};
  for (; row < end; ++row) {
    const int64_t length = length_of(p, row);
    const int64_t sequence = length > 0 ? sequence_of(p, row) : -1;
    if (run.count && sequence != run.sequence) break;
    if (sequence < 0) {
      run.first = row + 1;
      continue;
    }
    run.sequence = sequence;
    run.longest = most(run.longest, length);
    ++run.count;
  }
  return run;
}

}  // namespace

Needs attention_prefill_needs(const Params& p) { return {0, Scratch(p, nullptr).bytes()}; }

void attention_prefill(const Params& p, Worker& w) {
  const Scratch scratch(p, w.own);
  const int64_t together = rows_together(p), groups = (p.rows + together - 1) / together;
  with_float(p.dtype, [&](auto kind) {
    with_float(p.kv_dtype, [&](auto kv_kind) {
      for (int64_t begin, end; w.take(0, groups * p.kv_heads, 1, begin, end);) {
        for (int64_t item = begin; item < end; ++item) {
          // The longest rows first, so that the last items are short.
          int64_t row = (groups - 1 - item / p.kv_heads) * together;
          for (const int64_t last = least(row + together, p.rows); row < last;) {
            const Run run = next_run(p, row, last);
            if (run.count)
              attend<decltype(kind), decltype(kv_kind)>(p, run, item % p.kv_heads, scratch);
          }
        }
      }
    });
  });
}

}  // namespace FW_ISA
}  // namespace flatwake
