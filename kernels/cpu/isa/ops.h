// The ops of one instruction set. Each is run by every thread of the team at once.
#ifndef FLATWAKE_CPU_ISA_OPS_H
#define FLATWAKE_CPU_ISA_OPS_H

#include "flatwake/ops.h"
#include "worker.h"

namespace flatwake {
namespace FW_ISA {

// Items of `elements` cheap elements each that make a grain: a few microseconds of work.
inline int64_t grain_of(int64_t elements) {
  constexpr int64_t GRAIN = 8192;
  return elements < GRAIN ? GRAIN / (elements > 0 ? elements : 1) : 1;
}

void embedding(const fw_embedding_params& p, Worker& w);
void gather_rows(const fw_gather_rows_params& p, Worker& w);
void linear(const fw_linear_params& p, Worker& w);
void gate_up_silu(const fw_gate_up_silu_params& p, Worker& w);
void rms_norm(const fw_rms_norm_params& p, Worker& w);
void add_rms_norm(const fw_add_rms_norm_params& p, Worker& w);
void gated_rms_norm(const fw_gated_rms_norm_params& p, Worker& w);
void qk_norm_rope_write(const fw_qk_norm_rope_write_params& p, Worker& w);
void attention_decode(const fw_attention_decode_params& p, Worker& w);
void attention_combine(const fw_attention_combine_params& p, Worker& w);
void attention_prefill(const fw_attention_prefill_params& p, Worker& w);
void output_gate(const fw_output_gate_params& p, Worker& w);
void conv_step(const fw_conv_step_params& p, Worker& w);
void conv_chunk(const fw_conv_chunk_params& p, Worker& w);
void gdn_step(const fw_gdn_step_params& p, Worker& w);
void gdn_chunk(const fw_gdn_chunk_params& p, Worker& w);
void slot_copy(const fw_slot_copy_params& p, Worker& w);
void slot_zero(const fw_slot_zero_params& p, Worker& w);
void sample(const fw_sample_params& p, Worker& w);
void logprobs(const fw_logprobs_params& p, Worker& w);
void all_reduce(const fw_all_reduce_params& p, Worker& w);

int64_t multiply(bool integers, int64_t loops);

Needs embedding_needs(const fw_embedding_params& p);
Needs linear_needs(const fw_linear_params& p);
Needs gate_up_silu_needs(const fw_gate_up_silu_params& p);
Needs qk_norm_rope_write_needs(const fw_qk_norm_rope_write_params& p);
Needs attention_decode_needs(const fw_attention_decode_params& p);
Needs attention_prefill_needs(const fw_attention_prefill_params& p);
Needs conv_step_needs(const fw_conv_step_params& p);
Needs conv_chunk_needs(const fw_conv_chunk_params& p);
Needs gdn_step_needs(const fw_gdn_step_params& p);
Needs gdn_chunk_needs(const fw_gdn_chunk_params& p);
Needs sample_needs(const fw_sample_params& p);
Needs logprobs_needs(const fw_logprobs_params& p);

}  // namespace FW_ISA
}  // namespace flatwake

#endif
