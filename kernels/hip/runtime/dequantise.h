// Weight formats as float: GGML's block layouts.
#pragma once

#include <cstdint>

namespace fw::runtime {

struct Format {
  int block, bytes;  // elements and bytes of one block; 0 for what is not a weight format
};
Format format_of(int dtype);
// `columns` elements, whole blocks, of one row.
void widen_row(int dtype, const uint8_t* row, int64_t columns, float* values);

}  // namespace fw::runtime
