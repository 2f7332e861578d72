// GROUP rows of a delta net that meet a state at once, as gdn_rows makes them and gdn_chunk takes them.
//
// They meet the state as it was before them, in one pass, and it takes all of them in a second one. What
// they do to one another is linear in their values, by matrices of GROUP × GROUP that follow from their
// keys, queries and gates alone. Sums don't depend on where a prompt was cut: chunks begin at multiples
// of GROUP.
#pragma once

#include "slots.h"

namespace fw {

constexpr int GROUP = FW_GDN_GROUP, PAIRS = GROUP * (GROUP - 1) / 2, TRIANGLE = GROUP * (GROUP + 1) / 2;
constexpr int PIECES = FW_GDN_KEYS / 4;  // of four keys
constexpr int FACTS = FW_GDN_FACTS / 4;  // of four floats
static_assert(FW_GDN_FACTS == GROUP + 2 * TRIANGLE, "a Group's floats");

// Of row i and, in a triangle, row j up to it: what the state before the group has decayed by at row i;
// what u[j] = value[j] - decay[j] · (state · key[j]) gives to y[i], and by key[i] to the state after all.
struct Group {
  float decay[GROUP], gives[TRIANGLE], brings[TRIANGLE];
};
DEVICE constexpr int of_triangle(int i, int j) { return i * (i + 1) / 2 + j; }
DEVICE constexpr int of_pair(int i, int later) { return i * (2 * GROUP - 1 - i) / 2 + later - i - 1; }

// The first group of a sequence whose rows begin at `first`: no two sequences have one in common.
DEVICE int first_group(int first, int sequence) { return first / GROUP + sequence; }
DEVICE size_t place_of_group(const FwGdnChunkParams& p, int head, int group) {
  return (size_t)head * p.groups + group;
}

}  // namespace fw
