#include "runtime/weights.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "runtime/dequantise.h"
#include "runtime/half.h"

namespace fw::runtime {

namespace {

constexpr int64_t STAGING_BYTES = 16 << 20;
constexpr float LARGEST_HALF = 65504;

int64_t rounded_up(int64_t rows, int64_t panel) { return (rows + panel - 1) / panel * panel; }

int element_bytes(int dtype) { return dtype == FW_F32 ? 4 : 2; }

// The type that holds all views: their own where they agree on a plain one.
int storage_type(const fw_weight_view* views, int count) {
  const int first = views[0].format;
  const bool alike = std::all_of(views, views + count, [&](auto& v) { return v.format == first; });
  return alike && format_of(first).block == 1 ? first : FW_F16;
}

const uint8_t* row_of(const fw_weight_view& view, int64_t row) {
  if (view.permutation) row = reinterpret_cast<const int32_t*>(view.permutation)[row];
  return reinterpret_cast<const uint8_t*>(view.data) + row * view.row_bytes;
}

// False when a finite value is too large for the type.
bool narrow_row(const float* values, int64_t columns, int dtype, uint8_t* to) {
  for (int64_t i = 0; i < columns; i++) {
    if (dtype == FW_F32) {
      std::memcpy(to + 4 * i, values + i, 4);
      continue;
    }
    if (dtype == FW_F16 && std::isfinite(values[i]) && std::fabs(values[i]) > LARGEST_HALF)
      return false;
    const uint16_t bits = dtype == FW_F16 ? float_to_half(values[i]) : float_to_bf16(values[i]);
    std::memcpy(to + 2 * i, &bits, 2);
  }
  return true;
}

}  // namespace

Weights::Weights(Context& context, const fw_weight_view* views, int count) : context_(context) {
  check(views, count);
  matrix_.dtype = storage_type(views, count);
  matrix_.stride = padded_columns(matrix_.columns);
  const bool by_panels = context.facts().matrix_units && matrix_.dtype != FW_F32;
  matrix_.panel_bits = by_panels ? FW_PANEL_BITS : 0;
  const int64_t row_bytes = matrix_.stride * element_bytes(matrix_.dtype), bytes = matrix_.rows * row_bytes;
  region_ = std::make_unique<Region>(context, rounded_up(matrix_.rows, int64_t(1) << matrix_.panel_bits) * row_bytes);
  matrix_.data = region_->address();
  if (!upload(views, count)) {
    matrix_.dtype = FW_BF16;
    upload(views, count);
  }
  int64_t in_file = 0;
  for (int i = 0; i < count; i++) {
    const Format format = format_of(views[i].format);
    in_file += views[i].rows * (views[i].columns / format.block * format.bytes);
  }
  info_ = {bytes, std::max<int64_t>(bytes - in_file, 0), bytes};
}

bool Weights::quantised(const fw_weight_view* views, int count) {
  return std::any_of(views, views + count, [](auto& v) { return format_of(v.format).block > 1; });
}

void Weights::check(const fw_weight_view* views, int count) {
  if (count < 1) throw Error(FW_INVALID, "a linear layer needs at least one view of weights");
  int64_t rows = 0;
  for (int i = 0; i < count; i++) {
    const fw_weight_view& view = views[i];
    const Format format = format_of(view.format);
    if (!format.block)
      throw Error(FW_UNSUPPORTED, text("weights of format %d are not known here", view.format));
    if (view.columns != views[0].columns || view.columns < 1 || view.columns % format.block ||
        view.rows < 0 || view.row_bytes < view.columns / format.block * format.bytes)
      throw Error(FW_INVALID,
                  text("view %d: %lld rows of %lld columns in %lld bytes don't fit format %d and "
                       "the first view's %lld columns",
                       i, (long long)view.rows, (long long)view.columns, (long long)view.row_bytes,
                       view.format, (long long)views[0].columns));
    rows += view.rows;
  }
  if (rows < 1 || rows > INT32_MAX || views[0].columns > INT32_MAX - 8)
    throw Error(FW_UNSUPPORTED, text("a layer of %lld rows is too large", (long long)rows));
  matrix_.rows = (int32_t)rows;
  matrix_.columns = (int32_t)views[0].columns;
}

bool Weights::upload(const fw_weight_view* views, int count) {
  const int size = element_bytes(matrix_.dtype), piece = FW_PANEL_COLUMNS * size;
  const int64_t row_bytes = matrix_.stride * size, panel = int64_t(1) << matrix_.panel_bits;
  const int64_t most = std::max<int64_t>(STAGING_BYTES / (row_bytes * panel), 1) * panel;
  std::vector<uint8_t> staging(std::min<int64_t>(most, rounded_up(matrix_.rows, panel)) * row_bytes);
  std::vector<uint8_t> line(row_bytes);
  std::vector<float> values(matrix_.columns);
  auto* target = static_cast<uint8_t*>(region_->data());
  int64_t staged = 0;
  const auto flush = [&] {
    const int64_t bytes = rounded_up(staged, panel) * row_bytes;
    context_.driver().copy(target, staging.data(), bytes, FW_COPY_TO_DEVICE);
    context_.driver().synchronise();  // before the staging is filled again
    context_.stamp();
    target += bytes;
    staged = 0;
  };
  for (int i = 0; i < count; i++)
    for (int64_t r = 0; r < views[i].rows; r++) {
      const uint8_t* row = row_of(views[i], r);
      if (views[i].format == matrix_.dtype) {
        std::memcpy(line.data(), row, matrix_.columns * size);
      } else {
        widen_row(views[i].format, row, matrix_.columns, values.data());
        if (!narrow_row(values.data(), matrix_.columns, matrix_.dtype, line.data())) return false;
      }
      uint8_t* place = staging.data() + staged / panel * panel * row_bytes + staged % panel * piece;
      for (int64_t at = 0; at < row_bytes; at += piece, place += panel * piece)
        std::memcpy(place, line.data() + at, piece);
      if (++staged == most) flush();
    }
  if (staged) flush();
  return true;
}

}  // namespace fw::runtime
