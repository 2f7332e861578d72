// Ops on rows alone: embedding, gather_rows, norms, output_gate.
#include "runtime/lowering.h"

namespace fw::runtime {

void lower(Lowering& to, const fw_embedding_params& p) {
  const auto* table = reinterpret_cast<const Weights*>(p.table);
  if (!table || table->matrix().columns != p.width)
    throw Error(FW_INVALID, text("embedding: the table has another width than %d", p.width));
  to.launch("embedding", {blocks(p.width, 256), p.rows, 1}, 256,
            FwEmbeddingParams{table->matrix(), p});
}

void lower(Lowering& to, const fw_gather_rows_params& p) {
  const bool wide = p.dtype == FW_F32 || p.dtype == FW_I32;
  to.launch(wide ? "gather_rows_32" : "gather_rows_16", {blocks(p.width, 256), p.count, 1}, 256, p);
}

void lower(Lowering& to, const fw_rms_norm_params& p) {
  to.launch(std::string("rms_norm_") + suffix(p.dtype), {p.rows, 1, 1}, 256, p);
}

void lower(Lowering& to, const fw_add_rms_norm_params& p) {
  to.launch(std::string("add_rms_norm_") + suffix(p.dtype), {p.rows, 1, 1}, 256, p);
}

void lower(Lowering& to, const fw_gated_rms_norm_params& p) {
  const int waves = 256 / to.device().wave;
  to.launch(std::string("gated_rms_norm_") + suffix(p.dtype), {blocks(p.heads, waves), p.rows, 1},
            256, p);
}

void lower(Lowering& to, const fw_output_gate_params& p) {
  suffix(p.dtype);
  to.launch("output_gate", {blocks(p.width, 256), p.rows, 1}, 256, p);
}

}  // namespace fw::runtime
