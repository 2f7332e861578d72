// Positions and KV: qk_norm_rope_write and attention.
#include "runtime/lowering.h"

namespace fw::runtime {

namespace {

// Lanes that hold a head, eight elements each.
int lanes_of(const char* op, int head_dim) {
  if (head_dim < 8 || head_dim > FW_MAX_HEAD_DIM || head_dim % 8)
    refuse(op, text("heads of %d are not built: multiples of 8 up to %d are", head_dim, FW_MAX_HEAD_DIM));
  return head_dim <= 64 ? 8 : head_dim <= 128 ? 16 : 32;
}

template <typename Params>
FwAttentionParams shared_fields(const char* op, const Params& p) {
  if (p.kv_heads < 1 || p.heads % p.kv_heads)
    throw Error(FW_INVALID, text("%s: %d heads are no multiple of %d KV heads", op, p.heads, p.kv_heads));
  FwAttentionParams a{};
  a.q = p.q;
  a.kv = p.kv;
  a.row_length = p.row_length;
  a.first_row = p.first_row;
  a.row_count = p.row_count;
  a.block_table = p.block_table;
  a.rows = p.rows;
  a.heads = p.heads;
  a.kv_heads = p.kv_heads;
  a.head_dim = p.head_dim;
  a.blocks = p.blocks;
  a.sequences = p.sequences;
  a.table_blocks = p.table_blocks;
  a.dtype = p.dtype;
  a.scale = p.scale;
  suffix(p.dtype);
  return a;
}

void launch_attention(Lowering& to, const char* op, const FwAttentionParams& p, int kv_dtype,
                      int across) {
  const int shared = p.heads / p.kv_heads, at_once = shared == 1 ? 1 : 4;
  const std::string kernel =
      text("attention_%s_%d_%d", suffix(kv_dtype), lanes_of(op, p.head_dim), at_once);
  to.launch(kernel, {p.kv_heads * blocks(shared, at_once), across, p.sequences}, 256, p);
}

}  // namespace

void lower(Lowering& to, const fw_qk_norm_rope_write_params& p) {
  if (2 * p.rotary_half > p.head_dim)
    throw Error(FW_INVALID, text("qk_norm_rope_write: %d rotary dims in a head of %d",
                                 2 * p.rotary_half, p.head_dim));
  if (p.head_dim > FW_MAX_HEAD_DIM)
    refuse("qk_norm_rope_write", text("heads of %d are not built: up to %d are", p.head_dim, FW_MAX_HEAD_DIM));
  suffix(p.kv_dtype);
  const int waves = 256 / to.device().wave;
  to.launch(std::string("qk_norm_rope_write_") + suffix(p.dtype),
            {blocks(p.heads + 2 * p.kv_heads, waves), p.rows, 1}, 256, p);
}

void lower(Lowering& to, const fw_attention_decode_params& p) {
  if (p.splits < 1 || p.splits > FW_MAX_SPLITS)
    throw Error(FW_INVALID, text("attention_decode: %d splits, at most %d", p.splits, FW_MAX_SPLITS));
  if (p.split_positions < 1 || p.split_positions % FW_BLOCK_TOKENS)
    throw Error(FW_INVALID, text("attention_decode: split_positions %d is no multiple of %d",
                                 p.split_positions, FW_BLOCK_TOKENS));
  FwAttentionParams a = shared_fields("attention_decode", p);
  a.partial = p.partial;
  a.partial_ml = p.partial_ml;
  a.splits = p.splits;
  a.split_positions = p.split_positions;
  launch_attention(to, "attention_decode", a, p.kv_dtype, p.splits);
}

void lower(Lowering& to, const fw_attention_prefill_params& p) {
  FwAttentionParams a = shared_fields("attention_prefill", p);
  a.y = p.y;
  if (to.device().matrix_units && p.kv_dtype == p.dtype && p.dtype != FW_F32 &&
      (p.head_dim == 64 || p.head_dim == 128 || p.head_dim == 256)) {
    const int64_t tokens = (int64_t)p.rows * (p.heads / p.kv_heads);
    to.launch(text("attention_matrix_%s_%d", suffix(p.dtype), p.head_dim),
              {p.kv_heads, blocks(tokens, FW_ATTENTION_TOKENS), p.sequences}, 256, a);
    return;
  }
  a.splits = 1;
  launch_attention(to, "attention_prefill", a, p.kv_dtype, p.rows);
}

void lower(Lowering& to, const fw_attention_combine_params& p) { lower(to, p, nullptr); }

void lower(Lowering& to, const fw_attention_combine_params& p, const fw_output_gate_params* gate) {
  suffix(p.dtype);
  FwCombineParams combine{p, 0, 0, 0};
  if (gate) combine = {p, gate->gate, gate->gate_stride, gate->gate_offset};
  lanes_of("attention_combine", p.head_dim);
  to.launch("attention_combine", {p.heads, p.rows, 1}, 256, combine);
}

}  // namespace fw::runtime
