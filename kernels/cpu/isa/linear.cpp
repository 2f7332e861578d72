// Linear layers: panels of activations times tiles of weights.
#include "dot.h"
#include "ops.h"

namespace flatwake {
namespace FW_ISA {

namespace {

// Panels that one item of work takes through a tile, so that many threads share a chunk's rows.
constexpr int64_t GROUP = 8;

// One segment's kernels over all panels.
class Multiplier {
 public:
  Multiplier(const Segment& segment, int64_t columns, const Panels& panels, Worker& w)
      : segment_(segment), columns_(columns), panels_(panels), dots_(dots_for(segment)),
        floats_(dots_of<Floats<float>>()), wide_(reinterpret_cast<float*>(w.own)) {}

  // use(row, values of 16 outputs) for the rows of panels [begin, end) and one tile.
  template <class Use>
  void run(int64_t tile, int64_t begin, int64_t end, const Use& use) const {
    const uint8_t* data = segment_.tile(tile);
    const Dots* dots = &dots_;
    if (dots_.widen && end - begin > 1) {
      dots_.widen(data, segment_.tiling, columns_, wide_);
      data = reinterpret_cast<const uint8_t*>(wide_);
      dots = &floats_;
    }
    for (int64_t i = begin; i < end; ++i) {
      const Panel panel = panels_.panel(i);
      alignas(64) float out[PANEL * TILE_ROWS];
      dots->by_rows[panel.rows - 1](data, segment_.tiling, columns_, panel, out);
      for (int r = 0; r < panel.rows; ++r) use(i * PANEL + r, out + r * TILE_ROWS);
    }
  }

 private:
  const Segment& segment_;
  const int64_t columns_;
  const Panels& panels_;
  const Dots dots_, floats_;
  float* const wide_;
};

// Items of work: groups of panels by tiles, a tile's groups one after another.
class Items {
 public:
  Items(int64_t tiles, int64_t panels, const Worker& w)
      : panels_(panels), groups_((panels + GROUP - 1) / GROUP), total(tiles * groups_),
        parts(w.count), grain(most(1, total / (int64_t(w.count) * 16))) {}

  int64_t tile(int64_t item) const { return item / groups_; }
  int64_t begin(int64_t item) const { return item % groups_ * GROUP; }
  int64_t end(int64_t item) const { return least(begin(item) + GROUP, panels_); }

 private:
  const int64_t panels_, groups_;

 public:
  const int64_t total, parts, grain;
};

Needs layer_needs(const Layer& layer, int64_t rows) {
  const Panels panels(nullptr, rows, layer.columns, layer.any_integer, layer.any_float);
  const bool widens = layer.any_float && rows > PANEL;
  return {panels.bytes(), widens ? layer.columns * TILE_ROWS * 4 : 0};
}

Panels gathered(const Layer& layer, uint64_t x, int32_t dtype, int64_t rows, Worker& w) {
  const Panels panels(w.shared, rows, layer.columns, layer.any_integer, layer.any_float);
  with_float(dtype, [&](auto kind) { panels.gather(at<const decltype(kind)>(x), w); });
  return panels;
}

// use(row, first output, values, count) for every row and every tile of the layer.
template <class Use>
void multiply(const Layer& layer, const Panels& panels, Worker& w, const Use& use) {
  const Items items(layer.tiles, panels.count(), w);
  size_t index = 0;
  for (int64_t begin, end; w.take(1, items.total, items.grain, begin, end, items.parts);) {
    for (int64_t item = begin; item < end;) {
      const int64_t tile = items.tile(item);
      while (tile >= layer.segments[index].first_tile + layer.segments[index].tiles) ++index;
      const Segment& s = layer.segments[index];
      const Multiplier multiplier(s, layer.columns, panels, w);
      for (; item < end && items.tile(item) < s.first_tile + s.tiles; ++item) {
        const int64_t inside = items.tile(item) - s.first_tile;
        const int64_t first = s.first_row + inside * TILE_ROWS;
        const int64_t count = least(TILE_ROWS, s.rows - inside * TILE_ROWS);
        multiplier.run(inside, items.begin(item), items.end(item),
                       [&](int64_t row, const float* values) { use(row, first, values, count); });
      }
    }
  }
}

// gate and up are segments of their own and of one size: their tiles pair up.
bool paired(const Layer& layer, int64_t outputs) {
  return layer.segments.size() == 2 && layer.segments[0].rows == outputs;
}

template <class T>
void multiply_pairs(const fw_gate_up_silu_params& p, const Layer& layer, const Panels& panels,
                    Worker& w) {
  const Segment &gate = layer.segments[0], &up = layer.segments[1];
  const Multiplier gates(gate, layer.columns, panels, w), ups(up, layer.columns, panels, w);
  const Items items(gate.tiles, panels.count(), w);
  for (int64_t begin, end; w.take(1, items.total, items.grain, begin, end, items.parts);) {
    for (int64_t item = begin; item < end; ++item) {
      const int64_t tile = items.tile(item), first = tile * TILE_ROWS;
      const int64_t count = least(TILE_ROWS, p.outputs - first);
      const int64_t begin_row = items.begin(item) * PANEL;
      alignas(64) float halves[GROUP * PANEL][TILE_ROWS];
      gates.run(tile, items.begin(item), items.end(item), [&](int64_t row, const float* values) {
        memcpy(halves[row - begin_row], values, sizeof halves[0]);
      });
      ups.run(tile, items.begin(item), items.end(item), [&](int64_t row, const float* values) {
        T* y = at<T>(p.y) + row * p.outputs + first;
        for (int64_t i = 0; i < count; i += W)
          store_upto(y + i, silu(load(halves[row - begin_row] + i)) * load(values + i), count - i);
      });
    }
  }
}

// Both halves into scratch, then row by row.
template <class T>
void multiply_whole(const fw_gate_up_silu_params& p, const Layer& layer, const Panels& panels,
                    int64_t live, Worker& w) {
  const int64_t outputs = p.outputs;
  auto* both = reinterpret_cast<float*>(w.shared + panels.bytes());
  multiply(layer, panels, w, [&](int64_t row, int64_t first, const float* values, int64_t count) {
    memcpy(both + row * 2 * outputs + first, values, size_t(count) * 4);
  });
  w.wait(1);
  for (int64_t begin, end; w.take(2, live, 1, begin, end);) {
    for (int64_t r = begin; r < end; ++r) {
      const float *gate = both + r * 2 * outputs, *up = gate + outputs;
      T* y = at<T>(p.y) + r * outputs;
      for (int64_t i = 0; i < outputs; i += W) {
        const int64_t n = outputs - i;
        store_upto(y + i, silu(load_upto(gate + i, n)) * load_upto(up + i, n), n);
      }
    }
  }
}

}  // namespace

Needs linear_needs(const fw_linear_params& p) {
  return layer_needs(*at<const Layer>(p.weight), p.rows);
}

void linear(const fw_linear_params& p, Worker& w) {
  const auto& layer = *at<const Layer>(p.weight);
  const int64_t live = live_rows(p.live, p.rows), outputs = p.outputs;
  if (!live) return;
  const Panels panels = gathered(layer, p.x, p.dtype, live, w);
  with_float(p.output_dtype, [&](auto kind) {
    using T = decltype(kind);
    const float* bias = at<const float>(p.bias);
    const T* residual = at<const T>(p.residual);
    multiply(layer, panels, w, [&](int64_t row, int64_t first, const float* values, int64_t count) {
      const int64_t place = row * outputs + first;
      for (int64_t i = 0; i < count; i += W) {
        const int64_t n = count - i;
        vf value = load(values + i);
        if (bias) value += load_upto(bias + first + i, n);
        if (residual) value += load_upto(residual + place + i, n);
        store_upto(at<T>(p.y) + place + i, value, n);
      }
    });
  });
}

Needs gate_up_silu_needs(const fw_gate_up_silu_params& p) {
  const auto& layer = *at<const Layer>(p.weight);
  Needs needs = layer_needs(layer, p.rows);
  if (!paired(layer, p.outputs)) needs.shared += int64_t(p.rows) * 2 * p.outputs * 4;
  return needs;
}

void gate_up_silu(const fw_gate_up_silu_params& p, Worker& w) {
  const auto& layer = *at<const Layer>(p.weight);
  const int64_t live = live_rows(p.live, p.rows);
  if (!live) return;
  const Panels panels = gathered(layer, p.x, p.dtype, live, w);
  with_float(p.dtype, [&](auto kind) {
    using T = decltype(kind);
    if (paired(layer, p.outputs))
      multiply_pairs<T>(p, layer, panels, w);
    else
      multiply_whole<T>(p, layer, panels, live, w);
  });
}

}  // namespace FW_ISA
}  // namespace flatwake
