// SPAN rows of a delta net that meet a state at once, on matrix units: gdn_matrix_rows makes what
// gdn_matrix multiplies.
//
// With S the state before them and u[j] = value[j] - decay[j] Sᵀk[j], the rows' outputs are
// y = decay Sᵀq + gives u, and the state after them is decay S + Σ k[i] (brings u)[i], with
// matrices of SPAN × SPAN that follow from keys, queries and gates alone (the WY form).
//
// Units take bfloat16. Keys and queries are that as they come, so their norms are part of what they
// are multiplied by later; what is float is the sum of PARTS bfloat16 numbers, of which three have all
// of a float's bits. So products are as exact as a float's.
//
// Rows, and keys, stand in pairs of tiles by their slots (matrix_tile.h).
#pragma once

#include "matrix_tile.h"
#include "slots.h"

// A wave of WMMA's would have twice the state, which registers don't hold beside the rest.
#if defined(FW_MATRIX) && !defined(FW_WMMA)
#define FW_GDN_MATRIX 1
namespace fw {

constexpr int SPAN = FW_GDN_SPAN, PARTS = 3;
static_assert(SPAN == MATRIX_COLUMNS, "a group's rows are a pair of a unit's, and its columns");
constexpr int PAIRS = FW_GDN_KEYS / MATRIX_COLUMNS, KEY_TILES = 2 * PAIRS;

// Of a K head's group: tiles of rows × keys, [2][PAIRS], for keys and for queries, and of keys × rows.
constexpr int KEYS_AT = 0, QUERIES_AT = 2 * PAIRS * TILE, TURNED_AT = 2 * QUERIES_AT;
constexpr int SHARED = TURNED_AT + KEY_TILES * TILE;
// Of a V head's: tiles [parts][2] of both matrices, whose rows stand as a pair does. What y gives is
// rounded to bfloat16: two parts do. Then floats: for each row the factors of S · key and of S · query,
// and what the state decays by.
constexpr int GIVES_PARTS = 2, BRINGS_AT = GIVES_PARTS * 2 * TILE, FACTORS_AT = BRINGS_AT + PARTS * 2 * TILE;
constexpr int FACTORS = 2 * SPAN + 1, OWN = FACTORS_AT + (FACTORS + 3) / 4;
static_assert(SHARED * 16 == FW_GDN_SHARED_BYTES && OWN * 16 == FW_GDN_OWN_BYTES, "as laid out");

// The first group of a sequence whose rows begin at `first`: no two sequences have one in common.
DEVICE int first_group(int first, int sequence) { return first / SPAN + sequence; }

// A value as the bfloat16 number that it is cut to, and what that leaves.
DEVICE float cut(float value) { return as_float(as_uint(value) & 0xffff0000u); }
DEVICE float remainder(float value) { return value - cut(value); }

}  // namespace fw
#endif
