// Prepared linear layers: rows in tiles of sixteen, weights as compact as in the file.
//
// A tile is all columns of sixteen rows. The quants of a block of 32 columns come first, for all
// blocks, then the scales of all blocks. One 64-byte vector holds four columns of each row, row by
// row, so that a four-way integer dot product adds up sixteen rows at once:
//
//   bytes    column 4g + j of row r of a block is byte 64 g + 4 r + j
//   nibbles  the same, columns 8g to 8g + 3 in the low halves, 8g + 4 to 8g + 7 in the high ones
//   floats   column c of row r is element 16 c + r
//
// Quants are stored unsigned, `zero` above their value: the sum of a block's activations times
// `zero` is what a dot product starts from. The last tile's missing rows are zero.
#ifndef FLATWAKE_CPU_LAYER_H
#define FLATWAKE_CPU_LAYER_H

#include <cstdint>
#include <memory>
#include <vector>

#include "flatwake/abi.h"

namespace flatwake {

class Context;

constexpr int TILE_ROWS = 16;
constexpr int BLOCK_COLUMNS = 32;
constexpr int SUPER_COLUMNS = 256;

enum class Scales {
  NONE,   // floats have none
  D,      // by block: half d[16]
  DM,     // by block: half d[16], half m[16]
  SUPER,  // by 256 columns: half d[16], half dmin[16], byte scale[8][16], byte minimum[8][16]
  SIXTH,  // by 256 columns: half d[16], int8 scale[16][16], for 16 columns each
};

struct Tiling {
  bool nibbles;
  Scales scales;
  int zero;          // what quants are stored above their value
  int element;       // bytes of a float weight; 0 for quants
  int64_t quants;    // bytes of a tile's quants, or of all its floats
  int64_t bytes;     // of a tile
};

// How a format's rows of `columns` are tiled. Throws Failure for what cannot be.
Tiling tiling_of(int32_t format, int64_t columns);

struct Segment {
  int32_t format;
  bool integer;  // activations are rounded to int8
  int64_t rows;
  int64_t first_row;
  int64_t tiles;
  int64_t first_tile;
  Tiling tiling;
  const uint8_t* data;

  const uint8_t* tile(int64_t index) const { return data + index * tiling.bytes; }
};

class Layer {
 public:
  Layer(Context& context, const fw_weight_view* views, int32_t count, int32_t activations);
  ~Layer();
  Layer(const Layer&) = delete;
  Layer& operator=(const Layer&) = delete;

  fw_linear_info info() const;

  int64_t rows = 0;
  int64_t columns = 0;
  int64_t tiles = 0;
  bool any_integer = false;
  bool any_float = false;
  std::vector<Segment> segments;

 private:
  Context& context_;
  int64_t bytes_ = 0;
  uint64_t address_ = 0;
};

// Row `row` of a layer in float32. Each value has the bits that the format's definition gives.
void read_row(const Layer& layer, int64_t row, float* out);

}  // namespace flatwake

#endif
