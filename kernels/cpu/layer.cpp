#include "layer.h"

#include <string>

#include "context.h"
#include "error.h"
#include "number.h"

namespace flatwake {

namespace {

struct FormatInfo {
  int32_t format;
  const char* name;
  int block;
  int block_bytes;
};

constexpr FormatInfo FORMATS[] = {
    {FW_F32, "F32", 1, 4},        {FW_F16, "F16", 1, 2},        {FW_BF16, "BF16", 1, 2},
    {FW_Q4_0, "Q4_0", 32, 18},    {FW_Q4_1, "Q4_1", 32, 20},    {FW_Q8_0, "Q8_0", 32, 34},
    {FW_Q4_K, "Q4_K", 256, 144},  {FW_Q5_K, "Q5_K", 256, 176},  {FW_Q6_K, "Q6_K", 256, 210},
};

const FormatInfo& format_info(int32_t format) {
  for (const auto& info : FORMATS)
    if (info.format == format) return info;
  throw Failure(FW_UNSUPPORTED, "weight format " + std::to_string(format) + " is unknown");
}

int64_t scale_bytes(Scales scales, int64_t columns) {
  switch (scales) {
    case Scales::NONE: return 0;
    case Scales::D: return columns / BLOCK_COLUMNS * 32;
    case Scales::DM: return columns / BLOCK_COLUMNS * 64;
    case Scales::SUPER: return columns / SUPER_COLUMNS * 320;
    case Scales::SIXTH: return columns / SUPER_COLUMNS * 288;
  }
  return 0;
}

// One row's blocks of the file's format, spread into a tile.
class RowPacker {
 public:
  RowPacker(const Tiling& tiling, int32_t format, int64_t columns, uint8_t* tile, int row)
      : tiling_(tiling), format_(format), columns_(columns), tile_(tile), row_(row) {}

  void pack(const uint8_t* source) const {
    if (tiling_.element) return pack_floats(source);
    const FormatInfo& info = format_info(format_);
    const int64_t blocks = columns_ / info.block;
    for (int64_t b = 0; b < blocks; ++b, source += info.block_bytes) {
      switch (format_) {
        case FW_Q4_0: pack_q4(source + 2, b); copy_half(source, b * 32); break;
        case FW_Q4_1:
          pack_q4(source + 4, b);
          copy_half(source, b * 64);
          copy_half(source + 2, b * 64 + 32);
          break;
        case FW_Q8_0: pack_q8(source, b); break;
        case FW_Q4_K:
        case FW_Q5_K: pack_k(source, b); break;
        case FW_Q6_K: pack_q6(source, b); break;
        default: break;
      }
    }
  }

 private:
  void pack_floats(const uint8_t* source) const {
    const int size = tiling_.element;
    for (int64_t c = 0; c < columns_; ++c)
      memcpy(tile_ + (c * TILE_ROWS + row_) * size, source + c * size, size_t(size));
  }

  // Quants of block `b`, stored unsigned.
  void put(int64_t b, const uint8_t (&quants)[BLOCK_COLUMNS]) const {
    if (tiling_.nibbles) {
      uint8_t* block = tile_ + b * 256;
      for (int g = 0; g < 4; ++g)
        for (int j = 0; j < 4; ++j)
          block[64 * g + 4 * row_ + j] = uint8_t(quants[8 * g + j] | quants[8 * g + 4 + j] << 4);
    } else {
      uint8_t* block = tile_ + b * 512;
      for (int g = 0; g < 8; ++g) memcpy(block + 64 * g + 4 * row_, quants + 4 * g, 4);
    }
  }

  uint8_t* scales(int64_t offset) const { return tile_ + tiling_.quants + offset; }
  void copy_half(const uint8_t* source, int64_t offset) const {
    memcpy(scales(offset) + 2 * row_, source, 2);
  }

  // Four bytes at a time: byte i of the file has the quants of columns i and i + 16.
  void pack_q4(const uint8_t* packed, int64_t b) const {
    constexpr uint32_t LOW = 0x0f0f0f0f;
    uint8_t* block = tile_ + b * 256 + 4 * row_;
    for (int g = 0; g < 4; ++g) {
      const uint32_t first = word(packed + 8 * (g % 2)), second = word(packed + 8 * (g % 2) + 4);
      const uint32_t quants = g < 2 ? (first & LOW) | (second & LOW) << 4
                                    : (first >> 4 & LOW) | (second & ~LOW);
      memcpy(block + 64 * g, &quants, 4);
    }
  }

  void pack_q8(const uint8_t* source, int64_t b) const {
    uint8_t* block = tile_ + b * 512 + 4 * row_;
    for (int g = 0; g < 8; ++g) {
      const uint32_t quants = word(source + 2 + 4 * g) ^ 0x80808080;
      memcpy(block + 64 * g, &quants, 4);
    }
    copy_half(source, b * 32);
  }

  static uint32_t word(const uint8_t* bytes) {
    uint32_t value;
    memcpy(&value, bytes, 4);
    return value;
  }

  void pack_k(const uint8_t* source, int64_t super) const {
    const bool fifth = format_ == FW_Q5_K;
    const int64_t at = super * 320;
    copy_half(source, at);
    copy_half(source + 2, at + 32);
    const uint8_t* packed = source + 4;
    for (int s = 0; s < 8; ++s) {
      uint8_t scale, minimum;
      if (s < 4) {
        scale = packed[s] & 63;
        minimum = packed[4 + s] & 63;
      } else {
        scale = uint8_t((packed[4 + s] & 15) | packed[s - 4] >> 6 << 4);
        minimum = uint8_t(packed[4 + s] >> 4 | packed[s] >> 6 << 4);
      }
      *scales(at + 64 + 16 * s + row_) = scale;
      *scales(at + 192 + 16 * s + row_) = minimum;
    }
    const uint8_t* high = source + 16;
    const uint8_t* low = source + (fifth ? 48 : 16);
    for (int s = 0; s < 8; ++s) {
      uint8_t quants[BLOCK_COLUMNS];
      for (int i = 0; i < 32; ++i) {
        quants[i] = low[32 * (s / 2) + i] >> (s % 2 * 4) & 15;
        if (fifth) quants[i] |= uint8_t((high[i] >> s & 1) << 4);
      }
      put(super * 8 + s, quants);
    }
  }

  void pack_q6(const uint8_t* source, int64_t super) const {
    const int64_t at = super * 288;
    copy_half(source + 208, at);
    for (int s = 0; s < 16; ++s) *scales(at + 32 + 16 * s + row_) = source[192 + s];
    for (int s = 0; s < 8; ++s) {
      const int half = s / 4, quarter = s % 4;
      const uint8_t* low = source + 64 * half + 32 * (quarter % 2);
      const uint8_t* high = source + 128 + 32 * half;
      uint8_t quants[BLOCK_COLUMNS];
      for (int i = 0; i < 32; ++i)
        quants[i] = uint8_t((low[i] >> (quarter / 2 * 4) & 15) | (high[i] >> 2 * quarter & 3) << 4);
      put(super * 8 + s, quants);
    }
  }

  const Tiling& tiling_;
  const int32_t format_;
  const int64_t columns_;
  uint8_t* const tile_;
  const int row_;
};

void check_view(const fw_weight_view& view, int64_t columns) {
  const FormatInfo& info = format_info(view.format);
  const std::string name = info.name;
  if (view.rows <= 0 || view.columns <= 0 || !view.data)
    throw Failure(FW_INVALID, "a " + name + " weight has no rows, no columns or no data");
  if (view.columns != columns)
    throw Failure(FW_INVALID, "a layer's segments have " + std::to_string(columns) + " and " +
                                  std::to_string(view.columns) + " columns");
  if (view.columns % info.block)
    throw Failure(FW_INVALID, std::to_string(view.columns) + " columns do not fill " + name +
                                  " blocks of " + std::to_string(info.block));
  const int64_t least = view.columns / info.block * info.block_bytes;
  if (view.row_bytes < least)
    throw Failure(FW_INVALID, "a " + name + " row of " + std::to_string(view.columns) +
                                  " columns has " + std::to_string(view.row_bytes) +
                                  " bytes, at least " + std::to_string(least) + " are needed");
  const auto* order = reinterpret_cast<const int32_t*>(view.permutation);
  for (int64_t r = 0; order && r < view.rows; ++r)
    if (order[r] < 0 || order[r] >= view.rows)
      throw Failure(FW_INVALID, "permutation[" + std::to_string(r) + "] is " +
                                    std::to_string(order[r]) + " of " +
                                    std::to_string(view.rows) + " rows");
}

}  // namespace

Tiling tiling_of(int32_t format, int64_t columns) {
  Tiling t{};
  switch (format) {
    case FW_F32: t.element = 4; break;
    case FW_F16:
    case FW_BF16: t.element = 2; break;
    case FW_Q4_0: t = {true, Scales::D, 8, 0, 0, 0}; break;
    case FW_Q4_1: t = {true, Scales::DM, 0, 0, 0, 0}; break;
    case FW_Q8_0: t = {false, Scales::D, 128, 0, 0, 0}; break;
    case FW_Q4_K: t = {true, Scales::SUPER, 0, 0, 0, 0}; break;
    case FW_Q5_K: t = {false, Scales::SUPER, 0, 0, 0, 0}; break;
    case FW_Q6_K: t = {false, Scales::SIXTH, 32, 0, 0, 0}; break;
    default: format_info(format);
  }
  const int64_t column = t.element ? TILE_ROWS * t.element : TILE_ROWS / (t.nibbles ? 2 : 1);
  t.quants = columns * column;
  t.bytes = (t.quants + scale_bytes(t.scales, columns) + 63) / 64 * 64;
  return t;
}

Layer::Layer(Context& context, const fw_weight_view* views, int32_t count, int32_t activations)
    : context_(context) {
  if (count <= 0) throw Failure(FW_INVALID, "a layer needs at least one view");
  columns = views[0].columns;
  for (int32_t i = 0; i < count; ++i) {
    check_view(views[i], columns);
    Segment s{};
    s.format = views[i].format;
    s.tiling = tiling_of(s.format, columns);
    s.integer = activations == FW_ACTIVATIONS_INT8 && !s.tiling.element;
    s.rows = views[i].rows;
    s.first_row = rows;
    s.tiles = (s.rows + TILE_ROWS - 1) / TILE_ROWS;
    s.first_tile = tiles;
    rows += s.rows;
    tiles += s.tiles;
    (s.integer ? any_integer : any_float) = true;
    bytes_ += s.tiles * s.tiling.bytes;
    segments.push_back(s);
  }
  address_ = context_.memory().allocate_weights(bytes_);
  auto* next = reinterpret_cast<uint8_t*>(address_);
  for (int32_t i = 0; i < count; ++i) {
    Segment& s = segments[size_t(i)];
    uint8_t* data = next;
    s.data = data;
    next += s.tiles * s.tiling.bytes;
    const auto* order = reinterpret_cast<const int32_t*>(views[i].permutation);
    const auto* source = reinterpret_cast<const uint8_t*>(views[i].data);
    context_.parallel(s.tiles, [&](int64_t tile) {
      const int64_t first = tile * TILE_ROWS;
      for (int64_t r = first; r < first + TILE_ROWS && r < s.rows; ++r) {
        const int64_t from = order ? order[r] : r;
        RowPacker(s.tiling, s.format, columns, data + tile * s.tiling.bytes, int(r - first))
            .pack(source + from * views[i].row_bytes);
      }
    });
  }
}

Layer::~Layer() {
  context_.team().settle();
  context_.memory().release_weights(address_);
}

fw_linear_info Layer::info() const {
  fw_linear_info info{};
  info.bytes = bytes_;
  info.own = bytes_;
  return info;
}

namespace {

float half_at(const uint8_t* scales, int64_t offset, int row) {
  Half half;
  memcpy(&half, scales + offset + 2 * row, 2);
  return widen(half);
}

int quant_at(const Segment& s, const uint8_t* tile, int64_t column, int row) {
  const int64_t b = column / BLOCK_COLUMNS;
  const int c = int(column % BLOCK_COLUMNS);
  if (!s.tiling.nibbles) return tile[b * 512 + 64 * (c / 4) + 4 * row + c % 4];
  const uint8_t pair = tile[b * 256 + 64 * (c / 8) + 4 * row + c % 4];
  return c % 8 < 4 ? pair & 15 : pair >> 4;
}

float float_at(const Segment& s, const uint8_t* tile, int64_t column, int row) {
  const uint8_t* at = tile + (column * TILE_ROWS + row) * s.tiling.element;
  if (s.format == FW_F32) {
    float value;
    memcpy(&value, at, 4);
    return value;
  }
  uint16_t bits;
  memcpy(&bits, at, 2);
  return s.format == FW_F16 ? widen(Half{bits}) : widen(Bfloat{bits});
}

// value = scale · quant + offset, for the 16 columns from `column`.
void scale_at(const Segment& s, const uint8_t* tile, int64_t column, int row, float& scale,
              float& offset) {
  const uint8_t* scales = tile + s.tiling.quants;
  const int64_t b = column / BLOCK_COLUMNS, super = column / SUPER_COLUMNS;
  const int sub = int(column % SUPER_COLUMNS / BLOCK_COLUMNS);
  scale = 1;
  offset = 0;
  switch (s.tiling.scales) {
    case Scales::D: scale = half_at(scales, b * 32, row); break;
    case Scales::DM:
      scale = half_at(scales, b * 64, row);
      offset = half_at(scales, b * 64 + 32, row);
      break;
    case Scales::SUPER: {
      const int64_t at = super * 320;
      scale = half_at(scales, at, row) * float(scales[at + 64 + 16 * sub + row]);
      offset = -(half_at(scales, at + 32, row) * float(scales[at + 192 + 16 * sub + row]));
      break;
    }
    case Scales::SIXTH: {
      const int64_t at = super * 288;
      const int sixteenth = int(column % SUPER_COLUMNS / 16);
      const auto factor = int8_t(scales[at + 32 + 16 * sixteenth + row]);
      scale = half_at(scales, at, row) * float(factor);
      break;
    }
    case Scales::NONE: break;
  }
}

}  // namespace

void read_row(const Layer& layer, int64_t row, float* out) {
  size_t index = 0;
  while (row >= layer.segments[index].first_row + layer.segments[index].rows) ++index;
  const Segment& s = layer.segments[index];
  const uint8_t* tile = s.tile((row - s.first_row) / TILE_ROWS);
  const int lane = int((row - s.first_row) % TILE_ROWS);
  if (s.tiling.element) {
    for (int64_t c = 0; c < layer.columns; ++c) out[c] = float_at(s, tile, c, lane);
    return;
  }
  for (int64_t first = 0; first < layer.columns; first += 16) {
    float scale, offset;
    scale_at(s, tile, first, lane, scale, offset);
    for (int64_t c = first; c < first + 16; ++c)
      out[c] = scale * float(quant_at(s, tile, c, lane) - s.tiling.zero) + offset;
  }
}

}  // namespace flatwake
