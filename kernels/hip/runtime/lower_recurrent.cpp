// Ops that keep state in slots.
#include "runtime/lowering.h"

namespace fw::runtime {

namespace {

template <typename Params>
void lower_conv(Lowering& to, const char* op, const Params& p, int runs) {
  if (p.taps < 2 || p.taps > FW_CONV_TAPS || p.history != p.taps - 1)
    refuse(op, text("%d taps with a history of %d are not built: 2 to %d taps are", p.taps,
                    p.history, FW_CONV_TAPS));
  to.launch(std::string(op) + "_" + suffix(p.dtype), {blocks(p.channels, 256), p.sequences, runs},
            256, p);
}

template <typename Params>
void check_gdn(const char* op, const Params& p) {
  if (p.key_dim < 8 || p.key_dim > FW_GDN_KEYS || p.key_dim % 8)
    refuse(op, text("key_dim %d is not built: multiples of 8 up to %d are", p.key_dim, FW_GDN_KEYS));
  if (p.k_heads < 1 || p.v_heads % p.k_heads ||
      p.channels != 2 * p.k_heads * p.key_dim + p.v_heads * p.value_dim)
    throw Error(FW_INVALID, text("%s: %d channels are not those of %d K and %d V heads", op,
                                 p.channels, p.k_heads, p.v_heads));
}

}  // namespace

void lower(Lowering& to, const fw_conv_step_params& p) { lower_conv(to, "conv_step", p, 1); }
void lower(Lowering& to, const fw_conv_chunk_params& p) {
  lower_conv(to, "conv_chunk", p, blocks(p.rows, FW_CONV_RUN));
  lower_conv(to, "conv_keep", p, 1);
}
void lower(Lowering& to, const fw_gdn_step_params& p) { lower(to, p, nullptr); }

bool takes_head_norm(const fw_gdn_step_params& p) { return p.value_dim <= FW_GDN_VALUES; }

void lower(Lowering& to, const fw_gdn_step_params& p, const fw_gated_rms_norm_params* norm) {
  check_gdn("gdn_step", p);
  if (p.value_dim < 4 || p.value_dim % 4)
    refuse("gdn_step", text("value_dim %d is not built: multiples of 4 are", p.value_dim));
  FwGdnStepParams params{p, {}};
  if (norm) params.norm = *norm;
  to.launch(text("gdn_step_%s", suffix(p.dtype)),
            {blocks(p.value_dim, FW_GDN_VALUES), p.v_heads, p.sequences},
            FW_GDN_HOLDERS + to.device().wave, params);
}

// Where it is built: not for WMMA (gdn_matrix.h). Rows are whole pieces of 16 bytes, as a head's keys are.
bool takes_matrix(const DeviceFacts& device, const fw_gdn_chunk_params& p) {
  return device.matrix_units && device.architecture.rfind("gfx1", 0) != 0 && p.dtype == FW_BF16 &&
         p.channels % 8 == 0;
}

void lower_matrix(Lowering& to, const fw_gdn_chunk_params& p) {
  const int64_t groups = p.rows / FW_GDN_SPAN + 2 * p.sequences;  // a sequence's last may be of fewer rows
  const int64_t shared = p.k_heads * groups * FW_GDN_SHARED_BYTES;
  const uint64_t at = to.workspace(shared + p.v_heads * groups * FW_GDN_OWN_BYTES);
  const FwGdnMatrixParams params{p, at, at + shared, (int)groups, 0};
  to.launch("gdn_matrix_rows_bf16", {blocks(p.rows, FW_GDN_SPAN), p.k_heads, p.sequences},
            FW_GDN_ROWS_BLOCK, params);
  to.launch("gdn_matrix_bf16", {blocks(p.value_dim, FW_GDN_MATRIX_COLUMNS), p.v_heads, p.sequences},
            FW_GDN_MATRIX_BLOCK, params);
}

void lower(Lowering& to, const fw_gdn_chunk_params& p) {
  check_gdn("gdn_chunk", p);
  if (takes_matrix(to.device(), p)) return lower_matrix(to, p);
  // A sequence's last group may be of fewer rows; batches of four groups read beyond their last.
  const int64_t groups = p.rows / FW_GDN_GROUP + 2 * p.sequences + 4;
  const int64_t rows = p.k_heads * groups * FW_GDN_GROUP * FW_GDN_KEYS * 4;
  const uint64_t at = to.workspace(2 * rows + p.v_heads * groups * FW_GDN_FACTS * 4);
  const FwGdnChunkParams params{p, at, at + rows, at + 2 * rows, (int)groups, 0};
  const int waves = 256 / to.device().wave;
  to.launch(text("gdn_rows_%s", suffix(p.dtype)),
            {blocks(blocks(p.rows, FW_GDN_GROUP), waves), p.k_heads, p.sequences}, 256, params);
  to.launch(text("gdn_chunk_%s", suffix(p.dtype)),
            {blocks(p.value_dim, FW_GDN_COLUMNS), p.v_heads, p.sequences}, 4 * FW_GDN_COLUMNS, params);
}

void lower(Lowering& to, const fw_slot_copy_params& p) {
  if (p.count > 0) to.launch("slot_copy", {blocks(p.slot_words, 256), 1, 1}, 256, p);
}

void lower(Lowering& to, const fw_slot_zero_params& p) {
  to.launch("slot_zero", {blocks(p.slot_words, 256), p.count, 1}, 256, p);
}

}  // namespace fw::runtime
