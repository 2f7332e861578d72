// What products with few rows share, whatever multiplies them.
#pragma once

#include "panels.h"
#include "portable.h"

namespace fw {

// What is added to an output's sum: its bias, then its residual.
struct Added {
  float bias, residual;
};

// From sums in LDS to outputs: total(group, n, r) is weight row n of a group's with x row r. Waits
// for all of the block's sums; what is added to them is asked for before. written(n, r, value, kept)
// hears of every output; whole waves call it together.
template <int OUTPUTS, int ROWS, bool GATED, typename Total, typename Written>
DEVICE void write_outputs(const FwLinearParams& p, int groups, int row0, int live, Total total,
                          Written written) {
  const int all = groups * OUTPUTS * ROWS;
  const auto output_of = [&](int i) {
    return (block_x() * groups + i / OUTPUTS % groups) * OUTPUTS + i % OUTPUTS;
  };
  const auto added_to = [&](int i) {
    const int row = row0 + i / (groups * OUTPUTS), output = output_of(i);
    Added added{0, 0};
    if (i >= all || row >= p.rows || output >= p.outputs) return added;
    if (p.bias) added.bias = in<float>(p.bias)[output];
    if (p.residual)
      added.residual = load_as(p.residual, p.output_dtype, (size_t)row * p.outputs + output);
    return added;
  };
  Added added = added_to(thread());
  barrier();
  for (int i = thread(); i < all; i += threads(), added = added_to(i)) {
    const int r = i / (groups * OUTPUTS), group = i / OUTPUTS % groups, n = i % OUTPUTS;
    const int row = row0 + r, output = output_of(i);
    const bool kept = row < live && output < p.outputs;
    float value = 0;
    if (kept) {
      value = total(group, n, r);
      if (GATED) value = silu(value) * total(group, OUTPUTS + n, r);
      if (p.bias) value += added.bias;
      if (p.residual) value += added.residual;
      store_as(p.y, p.output_dtype, (size_t)row * p.outputs + output, value);
    }
    written(n, r, value, kept);
  }
}
template <int OUTPUTS, int ROWS, bool GATED, typename Total>
DEVICE void write_outputs(const FwLinearParams& p, int groups, int row0, int live, Total total) {
  write_outputs<OUTPUTS, ROWS, GATED>(p, groups, row0, live, total, [](int, int, float, bool) {});
}

// Row n of those that make a group's outputs: its gates come first, then its ups.
template <int OUTPUTS>
DEVICE size_t weight_row(const FwLinearParams& p, int first, int n) {
  const int output = least(first + n % OUTPUTS, p.outputs - 1);
  return n < OUTPUTS ? output : p.outputs + output;
}

}  // namespace fw
