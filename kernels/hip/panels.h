// Where a prepared layer's elements lie. `bits` are its panel_bits; no division, for what comes before
// the first load.
#pragma once

#include "parameters.h"
#include "portable.h"

namespace fw {

// Elements from the layer's start to row n.
DEVICE size_t panel_row(const FwMatrix& m, int bits, size_t n) {
  const size_t first = n >> bits << bits;
  return first * m.stride + (n - first) * FW_PANEL_COLUMNS;
}
// Elements from a row's start to its column k.
DEVICE int panel_column(int bits, int k) {
  if (!bits) return k;
  const int within = k & (FW_PANEL_COLUMNS - 1);
  return ((k - within) << bits) + within;
}

}  // namespace fw
