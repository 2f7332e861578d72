#include "table.h"

#include "ops.h"

namespace flatwake {
namespace FW_ISA {

namespace {

template <class Params, void (*OP)(const Params&, Worker&)>
void run(const void* params, Worker& worker) {
  OP(*static_cast<const Params*>(params), worker);
}

template <class Params, Needs (*NEEDS)(const Params&)>
Needs needs(const void* params) {
  return NEEDS(*static_cast<const Params*>(params));
}

Kernels make() {
  Kernels k{};
#define FW_TEXT(name) #name
#define FW_NAME(name) FW_TEXT(name)
  k.name = FW_NAME(FW_ISA);
  k.multiply = multiply;
#define FW_RUN(NUMBER, op) k.run[FW_OP_##NUMBER] = run<fw_##op##_params, op>;
  FW_RUN(EMBEDDING, embedding)
  FW_RUN(GATHER_ROWS, gather_rows)
  FW_RUN(LINEAR, linear)
  FW_RUN(GATE_UP_SILU, gate_up_silu)
  FW_RUN(RMS_NORM, rms_norm)
  FW_RUN(ADD_RMS_NORM, add_rms_norm)
  FW_RUN(GATED_RMS_NORM, gated_rms_norm)
  FW_RUN(QK_NORM_ROPE_WRITE, qk_norm_rope_write)
  FW_RUN(ATTENTION_DECODE, attention_decode)
  FW_RUN(ATTENTION_COMBINE, attention_combine)
  FW_RUN(ATTENTION_PREFILL, attention_prefill)
  FW_RUN(OUTPUT_GATE, output_gate)
  FW_RUN(CONV_STEP, conv_step)
  FW_RUN(CONV_CHUNK, conv_chunk)
  FW_RUN(GDN_STEP, gdn_step)
  FW_RUN(GDN_CHUNK, gdn_chunk)
  FW_RUN(SLOT_COPY, slot_copy)
  FW_RUN(SLOT_ZERO, slot_zero)
  FW_RUN(SAMPLE, sample)
  FW_RUN(LOGPROBS, logprobs)
  FW_RUN(ALL_REDUCE, all_reduce)
#undef FW_RUN
#define FW_NEEDS(NUMBER, op) k.needs[FW_OP_##NUMBER] = needs<fw_##op##_params, op##_needs>;
  FW_NEEDS(EMBEDDING, embedding)
  FW_NEEDS(LINEAR, linear)
  FW_NEEDS(GATE_UP_SILU, gate_up_silu)
  FW_NEEDS(QK_NORM_ROPE_WRITE, qk_norm_rope_write)
  FW_NEEDS(ATTENTION_DECODE, attention_decode)
  FW_NEEDS(ATTENTION_PREFILL, attention_prefill)
  FW_NEEDS(CONV_STEP, conv_step)
  FW_NEEDS(CONV_CHUNK, conv_chunk)
  FW_NEEDS(GDN_STEP, gdn_step)
  FW_NEEDS(GDN_CHUNK, gdn_chunk)
  FW_NEEDS(SAMPLE, sample)
  FW_NEEDS(LOGPROBS, logprobs)
#undef FW_NEEDS
  return k;
}

}  // namespace

const Kernels& kernels() {
  static const Kernels table = make();
  return table;
}

}  // namespace FW_ISA
}  // namespace flatwake
