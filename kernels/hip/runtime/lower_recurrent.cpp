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
void lower_gdn(Lowering& to, const char* op, const Params& p, int threads) {
  if (p.key_dim < 8 || p.key_dim > FW_GDN_KEYS || p.key_dim % 8)
    refuse(op, text("key_dim %d is not built: multiples of 8 up to %d are", p.key_dim, FW_GDN_KEYS));
  if (p.k_heads < 1 || p.v_heads % p.k_heads ||
      p.channels != 2 * p.k_heads * p.key_dim + p.v_heads * p.value_dim)
    throw Error(FW_INVALID, text("%s: %d channels are not those of %d K and %d V heads", op,
                                 p.channels, p.k_heads, p.v_heads));
  to.launch(std::string(op) + "_" + suffix(p.dtype),
            {blocks(p.value_dim, FW_GDN_COLUMNS), p.v_heads, p.sequences}, threads, p);
}

}  // namespace

void lower(Lowering& to, const fw_conv_step_params& p) { lower_conv(to, "conv_step", p, 1); }
void lower(Lowering& to, const fw_conv_chunk_params& p) {
  lower_conv(to, "conv_chunk", p, blocks(p.rows, FW_CONV_RUN));
  lower_conv(to, "conv_keep", p, 1);
}
void lower(Lowering& to, const fw_gdn_step_params& p) { lower_gdn(to, "gdn_step", p, 256); }
void lower(Lowering& to, const fw_gdn_chunk_params& p) { lower_gdn(to, "gdn_chunk", p, 4 * FW_GDN_COLUMNS); }

void lower(Lowering& to, const fw_slot_copy_params& p) {
  if (p.count > 0) to.launch("slot_copy", {blocks(p.slot_words, 256), 1, 1}, 256, p);
}

void lower(Lowering& to, const fw_slot_zero_params& p) {
  to.launch("slot_zero", {blocks(p.slot_words, 256), p.count, 1}, 256, p);
}

}  // namespace fw::runtime
