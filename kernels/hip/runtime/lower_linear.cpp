// linear and gate_up_silu.
#include "runtime/lowering.h"

namespace fw::runtime {

namespace {

constexpr int LARGEST_TILE = 64;  // of rows of x, on matrix units
constexpr int WAVES_WANTED = 16;  // on each compute unit, so that memory latency is hidden

// A family of kernels: weight rows that a wave takes at once, columns that it takes at a time (0: all
// waves of a block share their rows), the tiles of rows of x that are built, and a block's threads.
struct Family {
  const char* name;
  int weight_rows, columns, smallest_tile, largest_tile, block;
};

// By a layer's types and weight rows alone. A block that has a unit for itself is a larger one.
Family family_of(const DeviceFacts& device, int weight_dtype, int x_dtype, int weight_rows) {
  if (!device.matrix_units || weight_dtype != x_dtype || x_dtype == FW_F32)
    return {"", 4, device.wave * 8, 1, 8, FW_LINEAR_BLOCK};
  constexpr int ROWS = 1 << FW_PANEL_BITS;
  if (blocks(weight_rows, ROWS) > device.compute_units)
    return {"_matrix", ROWS, 0, 8, LARGEST_TILE, FW_LINEAR_BLOCK};
  return {"_few_matrix", ROWS, 0, 8, LARGEST_TILE, FW_LINEAR_BLOCK_FEW};
}

// Waves that share a weight row's columns: more where few rows would leave the device idle. By the
// shape alone, never by the number of rows of x, which must not change a row's sums.
int split_of(const DeviceFacts& device, const Family& family, int weight_rows, int columns) {
  const int waves = family.block / device.wave;
  if (!family.columns) return waves;
  const int64_t groups = blocks(weight_rows, family.weight_rows);
  int split = 1;
  while (split < waves && groups * split < (int64_t)device.compute_units * WAVES_WANTED &&
         columns >= split * 2 * family.columns)
    split *= 2;
  return split;
}

// No decode step has more rows than the largest tile: more are a prompt's.
bool is_gemm(const Lowering& to, int rows) { return to.prefill || rows > LARGEST_TILE; }

// Whether taller tiles are done sooner: a unit has two blocks at once, and a turn of all units takes as
// long as a tile has rows. Only a launch's time follows from it, never a sum.
bool takes_tall_tiles(const DeviceFacts& device, int weight_rows, int rows) {
  if (device.gemm_threads != FW_GEMM_BLOCK_ASYNC) return false;
  const auto time = [&](int tile) {
    const int64_t tiles = (int64_t)blocks(weight_rows, tile) * blocks(rows, 128);
    return (int64_t)blocks(tiles, 2 * device.compute_units) * tile;
  };
  return time(FW_GEMM_ROWS_TALL) < time(FW_GEMM_ROWS);
}

int row_tile(const Family& family, int rows) {
  int tile = family.smallest_tile;
  while (tile < rows && tile < family.largest_tile) tile *= 2;
  return tile;
}

struct Rows {
  uint64_t x;
  int rows, inputs, dtype;
};

// The type of x that a product with such weights is built for.
int built_type(int weight_dtype, int x_dtype) {
  return weight_dtype == x_dtype ? x_dtype : FW_F32;
}

// x with whole steps of columns and in the type that is built; copied where it is not so yet.
uint64_t ready_rows(Lowering& to, const Rows& rows, int stride, int dtype) {
  if (stride == rows.inputs && dtype == rows.dtype) return rows.x;
  const uint64_t ready = to.workspace((int64_t)rows.rows * stride * 4);
  to.launch("pad_rows", {blocks(stride, 256), rows.rows, 1}, 256,
            FwPadParams{rows.x, ready, rows.rows, rows.inputs, stride, rows.dtype, dtype, 0});
  return ready;
}

void lower_product(Lowering& to, const char* op, const Weights* weights, const Rows& rows,
                   FwLinearParams p, int weight_rows, const Around& around) {
  if (!weights || weights->matrix().columns != rows.inputs || weights->matrix().rows != weight_rows)
    throw Error(FW_INVALID, text("%s: the layer isn't [%d, %d]", op, weight_rows, rows.inputs));
  p.weight = weights->matrix();
  p.x_stride = padded_columns(rows.inputs);
  suffix(rows.dtype);
  const int x_dtype = built_type(p.weight.dtype, rows.dtype);
  p.x = ready_rows(to, rows, p.x_stride, x_dtype);
  p.rows = rows.rows;
  const Family family = family_of(to.device(), p.weight.dtype, x_dtype, weight_rows);
  p.split = split_of(to.device(), family, weight_rows, rows.inputs);
  const int tile = row_tile(family, rows.rows), waves = family.block / to.device().wave;
  // A gated output takes two weight rows.
  const int outputs = waves / p.split * family.weight_rows / (weight_rows / p.outputs);
  const std::string types = *family.name ? suffix(x_dtype)
                                         : text("%s_%s", suffix(p.weight.dtype), suffix(x_dtype));
  if (*family.name && is_gemm(to, rows.rows)) {
    const int tiles = blocks(weight_rows, FW_GEMM_ROWS);
    const bool few = (int64_t)tiles * blocks(rows.rows, 128) < to.device().compute_units;
    const bool tall = !few && takes_tall_tiles(to.device(), weight_rows, rows.rows);
    const int tokens = few ? 64 : 128;
    // Neighbours share their weights.
    to.launch(text("%s%s_gemm_%s_%d", op, tall ? "_tall" : "", suffix(x_dtype), tokens),
              {blocks(rows.rows, tokens), tall ? blocks(weight_rows, FW_GEMM_ROWS_TALL) : tiles, 1},
              to.device().gemm_threads, p);
    return;
  }
  const Grid grid{blocks(p.outputs, outputs), blocks(rows.rows, tile), 1};
  const char* also = "";
  if (const auto* norm = around.before) {
    p.squares = around.squares;
    p.eps = norm->eps;
    also = around.conv ? "_conv_scaled" : "_scaled";
  }
  if (const auto* norm = around.after) {
    p.squares = around.squares;
    p.norm = norm->weight;
    p.norm_offset = norm->weight_offset;
    p.weighed = norm->y;
    also = "_weighed";
  }
  const std::string kernel = text("%s%s%s_%s_%d", op, also, family.name, types.c_str(), tile);
  if (around.conv) to.launch(kernel, grid, family.block, FwProjectionParams{p, *around.conv});
  else to.launch(kernel, grid, family.block, p);
}

template <typename Params>
bool is_step(const Lowering& to, const Params& p) {
  const auto* weights = reinterpret_cast<const Weights*>(p.weight);
  return to.device().matrix_units && weights && weights->matrix().dtype == FW_BF16 &&
         p.dtype == FW_BF16 && padded_columns(p.inputs) == p.inputs && !is_gemm(to, p.rows);
}

}  // namespace

bool takes_norm_before(const Lowering& to, const fw_linear_params& p) { return is_step(to, p); }
bool takes_norm_before(const Lowering& to, const fw_gate_up_silu_params& p) { return is_step(to, p); }
bool takes_norm_after(const Lowering& to, const fw_linear_params& p) {
  return is_step(to, p) && p.output_dtype == FW_BF16 && p.outputs % FW_NORM_PART == 0;
}

// A block has whole channels and all rows.
bool takes_conv(const Lowering& to, const fw_linear_params& p, const fw_conv_step_params& conv) {
  return is_step(to, p) && p.output_dtype == FW_BF16 && conv.dtype == FW_BF16 &&
         conv.taps >= 2 && conv.taps <= FW_CONV_TAPS_FEW &&
         conv.history == conv.taps - 1 && conv.offset == 0 && conv.channels % 16 == 0 &&
         conv.channels <= p.outputs && conv.stride == p.outputs;
}

void lower(Lowering& to, const fw_linear_params& p) { lower(to, p, {}); }
void lower(Lowering& to, const fw_gate_up_silu_params& p) { lower(to, p, {}); }

void lower(Lowering& to, const fw_linear_params& p, const Around& around) {
  FwLinearParams product{};
  product.y = p.y;
  product.bias = p.bias;
  product.residual = p.residual;
  product.live = p.live;
  product.outputs = p.outputs;
  product.output_dtype = p.output_dtype;
  suffix(p.output_dtype);
  lower_product(to, "linear", reinterpret_cast<const Weights*>(p.weight),
                {p.x, p.rows, p.inputs, p.dtype}, product, p.outputs, around);
}

void lower(Lowering& to, const fw_gate_up_silu_params& p, const Around& around) {
  FwLinearParams product{};
  product.y = p.y;
  product.live = p.live;
  product.outputs = p.outputs;
  product.output_dtype = p.dtype;
  lower_product(to, "gate_up_silu", reinterpret_cast<const Weights*>(p.weight),
                {p.x, p.rows, p.inputs, p.dtype}, product, 2 * p.outputs, around);
}

}  // namespace fw::runtime
