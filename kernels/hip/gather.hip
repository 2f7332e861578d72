// embedding, gather_rows: rows by their number.
#include "panels.h"
#include "portable.h"

namespace fw {

DEVICE void embedding(const FwEmbeddingParams& p) {
  const int row = block_y();
  if (row >= live_rows(p.op.live, p.op.rows)) return;
  const int i = block_x() * threads() + thread();
  if (i >= p.op.width) return;
  const int id = in<int>(p.op.row_id)[row];
  const bool known = id >= 0 && id < p.table.rows;
  const int bits = p.table.panel_bits;
  const float value =
      known ? load_as(p.table.data, p.table.dtype, panel_row(p.table, bits, id) + panel_column(bits, i))
            : 0.0f;
  store_as(p.op.y, p.op.dtype, (size_t)row * p.op.width + i, value);
}

template <typename T>
DEVICE void gather_rows(const fw_gather_rows_params& p) {
  const int i = block_x() * threads() + thread();
  if (i >= p.width) return;
  const int source = in<int>(p.index)[block_y()];
  const bool known = source >= 0 && source < p.rows;
  out<T>(p.y)[(size_t)block_y() * p.width + i] =
      known ? in<T>(p.x)[(size_t)source * p.width + i] : T{};
}

}  // namespace fw

FW_KERNEL(embedding, 256, FwEmbeddingParams) { fw::embedding(p); }
FW_KERNEL(gather_rows_16, 256, fw_gather_rows_params) { fw::gather_rows<uint16_t>(p); }
FW_KERNEL(gather_rows_32, 256, fw_gather_rows_params) { fw::gather_rows<uint32_t>(p); }
