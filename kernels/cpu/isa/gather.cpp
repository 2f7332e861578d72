// Rows by their number: embedding and gather_rows.
#include "layer.h"
#include "ops.h"
#include "simd.h"

namespace flatwake {
namespace FW_ISA {

Needs embedding_needs(const fw_embedding_params& p) { return {0, int64_t(p.width) * 4}; }

void embedding(const fw_embedding_params& p, Worker& w) {
  const auto& layer = *at<const Layer>(p.table);
  const auto* ids = at<const int32_t>(p.row_id);
  const int64_t live = live_rows(p.live, p.rows), width = p.width;
  auto* row = reinterpret_cast<float*>(w.own);
  for (int64_t begin, end; w.take(0, live, grain_of(16 * width), begin, end);) {
    for (int64_t r = begin; r < end; ++r) {
      if (ids[r] >= 0 && ids[r] < layer.rows)
        read_row(layer, ids[r], row);
      else
        memset(row, 0, size_t(width) * 4);
      with_float(p.dtype, [&](auto kind) {
        auto* y = at<decltype(kind)>(p.y) + r * width;
        for (int64_t i = 0; i < width; i += W)
          store_upto(y + i, load_upto(row + i, width - i), width - i);
      });
    }
  }
}

void gather_rows(const fw_gather_rows_params& p, Worker& w) {
  const auto* index = at<const int32_t>(p.index);
  const int64_t bytes = int64_t(p.width) * (p.dtype == FW_F32 ? 4 : 2);
  for (int64_t begin, end; w.take(0, p.count, grain_of(p.width), begin, end);) {
    for (int64_t i = begin; i < end; ++i) {
      char* y = at<char>(p.y) + i * bytes;
      if (index[i] >= 0 && index[i] < p.rows)
        memcpy(y, at<const char>(p.x) + index[i] * bytes, size_t(bytes));
      else
        memset(y, 0, size_t(bytes));
    }
  }
}

void all_reduce(const fw_all_reduce_params&, Worker&) {
  // A context has one rank: its sum is what it has.
}

}  // namespace FW_ISA
}  // namespace flatwake
