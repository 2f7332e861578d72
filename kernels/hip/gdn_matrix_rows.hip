// gdn_matrix_rows, launched before gdn_matrix: what all columns of a state share of a group's rows.
#include "gdn_matrix.h"

#if defined(FW_GDN_MATRIX)
namespace fw {

constexpr int ROWS_BLOCK = FW_GDN_ROWS_BLOCK, AT_ONCE = 2;  // V heads
constexpr int HOLDERS = AT_ONCE * SPAN;  // threads that have a column of a head's matrices
constexpr int CHUNKS = FW_GDN_KEYS / 8, PITCH = CHUNKS + 1, DOTS = SPAN + 1;
constexpr int FOURS = SPAN / 4 + 1;  // of rows i, and what keeps lanes' banks apart
constexpr int STAGED = 2 * AT_ONCE * SPAN * FOURS;
static_assert(STAGED >= 2 * SPAN * PITCH, "what is staged comes to lie where factors do");

// A block has a group of rows and a K head. Rows beyond the last repeat it, but neither decay nor add.
template <int W>
DEVICE void gdn_matrix_rows(const FwGdnMatrixParams& params) {
  using Unit = Matrix<W, bf16>;
  using Tile = MatrixTile<W, bf16>;
  FW_LDS(Words, staged, STAGED);  // keys, then queries
  // Later: of a head's row j in row i, by j, keys' dots and then queries', with gates.
  FW_LDS_AS(Words, factors, STAGED, staged);
  FW_LDS(float, brought, HOLDERS * SPAN);
  FW_LDS(float, dots, 2 * SPAN * DOTS);
  FW_LDS(float, gates, HOLDERS);
  FW_LDS(float, betas, HOLDERS);
  FW_LDS(float, scales, 2 * SPAN);
  FW_LDS(float, lasting, HOLDERS);
  const fw_gdn_chunk_params& p = params.op;
  const int k_head = block_y(), sequence = block_z();
  const Rows rows = rows_of(p, sequence);
  const int first = rows.first + block_x() * SPAN;
  if (first >= rows.end) return;
  const int group = first_group(rows.first, sequence) + block_x();
  Words* shared = out<Words>(params.shared) + ((size_t)k_head * params.groups + group) * SHARED;

  FW_UNROLL
  for (int i = 0; i < 2 * SPAN * CHUNKS / ROWS_BLOCK; i++) {
    const int task = i * ROWS_BLOCK + thread(), chunk = task % CHUNKS, t = task / CHUNKS % SPAN;
    const int query = task / (CHUNKS * SPAN), r = Tile::slot(t);
    const bf16* from = in<bf16>(p.qkv) + (size_t)least(first + t, rows.end - 1) * p.channels +
                       ((query ? 0 : p.k_heads) + k_head) * p.key_dim + chunk * 8;
    const Words piece = chunk * 8 < p.key_dim ? load_words(from) : no_words();
    staged[(query * SPAN + t) * PITCH + chunk] = piece;
    store_words(shared + (query ? QUERIES_AT : KEYS_AT) +
                    piece_of(r / MATRIX_ROWS * PAIRS + chunk / 4, r % MATRIX_ROWS, chunk % 4), piece);
  }
  barrier();
  static_assert(CHUNKS * SPAN / 8 * 2 == ROWS_BLOCK, "each turns half of eight rows of eight keys");
  {
    const int chunk = thread() % CHUNKS, w = thread() / CHUNKS % (SPAN / 8);
    const int half = thread() / (ROWS_BLOCK / 2);
    Words given[8];
    FW_UNROLL
    for (int i = 0; i < 8; i++) given[i] = staged[(w * 8 + i) * PITCH + chunk];
    FW_UNROLL
    for (int i = 0; i < 4; i++) {
      const int r = Tile::slot(chunk % 4 * 8 + half * 4 + i), tile = chunk / 4 * 2 + r / MATRIX_ROWS;
      const Words first_half = across_eight(given, i), second_half = across_eight(given, 4 + i);
      store_words(shared + TURNED_AT + piece_of(tile, r % MATRIX_ROWS, w), half ? second_half : first_half);
    }
  }
  // Keys and queries times keys: a wave has 16 rows of either.
  constexpr int TOKEN_TILES = SPAN / Unit::TOKENS;
  for (int task = uniform(thread() / W); task < 2 * SPAN / MATRIX_ROWS; task += ROWS_BLOCK / W) {
    float sums[TOKEN_TILES][Unit::SUMS] = {};
    FW_UNROLL
    for (int s = 0; s < PAIRS; s++) {
      Words a[Unit::ROW_LOADS], b[Unit::TOKEN_LOADS];
      FW_UNROLL
      for (int i = 0; i < Unit::ROW_LOADS; i++)
        a[i] = staged[(task * MATRIX_ROWS + Unit::row(i)) * PITCH + s * 4 + Unit::row_offset(i) / 8];
      FW_UNROLL
      for (int n = 0; n < TOKEN_TILES; n++) {
        FW_UNROLL
        for (int i = 0; i < Unit::TOKEN_LOADS; i++)
          b[i] = staged[(n * Unit::TOKENS + Unit::token(i)) * PITCH + s * 4 + Unit::token_offset(i) / 8];
        Unit::multiply(a, b, sums[n]);
      }
    }
    FW_UNROLL
    for (int n = 0; n < TOKEN_TILES; n++)
      FW_UNROLL
      for (int i = 0; i < Unit::SUMS; i++)
        dots[(task * MATRIX_ROWS + Unit::sum_row(i)) * DOTS + n * Unit::TOKENS + Unit::sum_token(i)] =
            sums[n][i];
  }
  if (thread() < 2 * SPAN) {  // a key's or a query's length
    float squares = 0;
    FW_UNROLL
    for (int c = 0; c < CHUNKS; c++) {
      const Eight<bf16> eight{staged[thread() * PITCH + c]};
      FW_UNROLL
      for (int i = 0; i < 8; i++) squares = fma(eight.get(i), eight.get(i), squares);
    }
    const float scale = sqrt(squares + p.eps);
    scales[thread()] = 1.0f / (thread() < SPAN ? scale : scale * sqrt((float)p.key_dim));
  }

  const int per_key = p.v_heads / p.k_heads, own = thread() / SPAN, j = thread() % SPAN;
  for (int n0 = 0; n0 < per_key; n0 += AT_ONCE) {
    const int n = n0 + own, head = p.head_map ? k_head + n * p.k_heads : k_head * per_key + n;
    const bool there = own < AT_ONCE && n < per_key;
    if (there) {
      const bf16* ab = in<bf16>(p.ab) + (size_t)least(first + j, rows.end - 1) * p.ab_stride;
      const float step = softplus(widen(ab[p.a_offset + head]) + in<float>(p.dt_bias)[head]);
      const bool live = first + j < rows.end;
      gates[thread()] = live ? exp(in<float>(p.negative_a)[head] * step) : 1.0f;
      betas[thread()] = live ? sigmoid(widen(ab[p.b_offset + head])) : 0.0f;
    }
    barrier();  // and all dots are there, and what lay where the factors come was read
    const int keys_by = own * SPAN * FOURS, queries_by = (AT_ONCE + own) * SPAN * FOURS;
    float decay = 1, all = 1;  // the gates of 0 … j, and of all
    if (there) {
      float since = 0;  // those of j + 1 … i
      FW_NO_UNROLL
      for (int i0 = 0; i0 < SPAN; i0 += 4) {
        float key[4], query[4];
        FW_UNROLL
        for (int e = 0; e < 4; e++) {
          const int i = i0 + e;
          const float by = gates[own * SPAN + i];
          since = i < j ? 0.0f : i == j ? 1.0f : since * by;
          all *= by;
          if (i <= j) decay *= by;
          key[e] = i > j ? since * (dots[i * DOTS + j] * scales[i] * scales[j]) : 0.0f;
          query[e] = since * (dots[(SPAN + i) * DOTS + j] * scales[SPAN + i] * scales[j]);
        }
        factors[keys_by + j * FOURS + i0 / 4] = floats(key[0], key[1], key[2], key[3]);
        factors[queries_by + j * FOURS + i0 / 4] = floats(query[0], query[1], query[2], query[3]);
      }
      lasting[thread()] = since * scales[j];
    }
    barrier();
    if (there) {
      const size_t to = ((size_t)head * params.groups + group) * OWN;
      // Row i of a matrix, of which this thread has column j.
      const auto put = [&](int at, int parts, int i, float value) {
        const int r = Tile::slot(i);
        const size_t piece = to + at + piece_of(r / MATRIX_ROWS, r % MATRIX_ROWS, j / 8);
        bf16* row = out<bf16>(params.own) + piece * 8 + j % 8;
        FW_UNROLL
        for (int part = 0; part < parts; part++) {
          row[part * 2 * TILE * 8] = bf16{(uint16_t)(as_uint(value) >> 16)};
          value = remainder(value);
        }
      };
      // Column j of d = brought u: four rows at a time follow from those before them.
      FW_NO_UNROLL
      for (int i0 = 0; i0 < SPAN; i0 += 4) {
        float seen[4] = {}, given[4] = {}, d[4];
        FW_NO_UNROLL
        for (int m0 = 0; m0 < i0; m0 += 4) {
          FW_UNROLL
          for (int m = m0; m < m0 + 4; m++) {
            const float before = brought[(own * SPAN + m) * SPAN + j];
            const Words key = factors[keys_by + m * FOURS + i0 / 4];
            const Words query = factors[queries_by + m * FOURS + i0 / 4];
            FW_UNROLL
            for (int e = 0; e < 4; e++) {
              seen[e] = fma(element(key, e), before, seen[e]);
              given[e] = fma(element(query, e), before, given[e]);
            }
          }
        }
        FW_UNROLL
        for (int f = 0; f < 4; f++) {
          const int m = i0 + f;
          const Words key = factors[keys_by + m * FOURS + i0 / 4];
          const Words query = factors[queries_by + m * FOURS + i0 / 4];
          d[f] = betas[own * SPAN + m] * ((m == j ? 1.0f : 0.0f) - seen[f]);
          brought[(own * SPAN + m) * SPAN + j] = d[f];
          FW_UNROLL
          for (int e = f; e < 4; e++) {
            if (e > f) seen[e] = fma(element(key, e), d[f], seen[e]);
            given[e] = fma(element(query, e), d[f], given[e]);
          }
        }
        FW_UNROLL
        for (int e = 0; e < 4; e++) {
          put(0, GIVES_PARTS, i0 + e, given[e]);
          put(BRINGS_AT, PARTS, i0 + e, lasting[own * SPAN + i0 + e] * d[e]);
        }
      }
      float* found = out<float>(params.own) + (to + FACTORS_AT) * 4;
      const int r = Tile::slot(j);
      found[r] = decay * scales[j];
      found[SPAN + r] = decay * scales[SPAN + j];
      if (j == 0) found[2 * SPAN] = all;
    }
    barrier();  // until all of it was read
  }
}

}  // namespace fw

FW_KERNEL(gdn_matrix_rows_bf16, fw::ROWS_BLOCK, FwGdnMatrixParams) { fw::gdn_matrix_rows<FW_WAVE>(p); }
#endif
