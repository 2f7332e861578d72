// Rows of a sequence and the slots of their state, as ops on recurrent state see them.
#pragma once

#include "parameters.h"
#include "portable.h"

namespace fw {

struct Rows {
  int first, end;
};
template <typename Params>
DEVICE Rows rows_of(const Params& p, int sequence) {
  const int first = in<int>(p.first_row)[sequence];
  return Rows{most(first, 0), least(first + in<int>(p.row_count)[sequence], p.rows)};
}

// Where a sequence's state starts from: a slot outside of the pool counts as the empty slot 0.
template <typename Params>
DEVICE size_t slot_in(const Params& p, int sequence) {
  const int slot = in<int>(p.slot_in)[sequence];
  return slot < 0 || slot >= p.slots ? 0 : slot;
}

// Where a row's state is kept, or 0: padding's slot, which is never written.
template <bool EVERY_ROW, typename Params>
DEVICE size_t slot_out(const Params& p, Rows rows, int row) {
  if (!EVERY_ROW && row + 1 < rows.end) return 0;
  const int slot = in<int>(p.slot_out)[row];
  return slot < 0 || slot >= p.slots ? 0 : slot;
}

}  // namespace fw
