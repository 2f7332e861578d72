#include "runtime/lowering.h"

#include <algorithm>

namespace fw::runtime {

namespace {

struct Entry {
  void (*lower)(Lowering&, const fw_call&);
  int64_t size;
};

template <typename Params>
Entry as() {
  return {[](Lowering& to, const fw_call& call) { lower(to, *parameters<Params>(call)); }, sizeof(Params)};
}

Entry entry_of(int op) {
  switch (op) {
    case FW_OP_EMBEDDING: return as<fw_embedding_params>();
    case FW_OP_GATHER_ROWS: return as<fw_gather_rows_params>();
    case FW_OP_LINEAR: return as<fw_linear_params>();
    case FW_OP_GATE_UP_SILU: return as<fw_gate_up_silu_params>();
    case FW_OP_RMS_NORM: return as<fw_rms_norm_params>();
    case FW_OP_ADD_RMS_NORM: return as<fw_add_rms_norm_params>();
    case FW_OP_GATED_RMS_NORM: return as<fw_gated_rms_norm_params>();
    case FW_OP_QK_NORM_ROPE_WRITE: return as<fw_qk_norm_rope_write_params>();
    case FW_OP_ATTENTION_DECODE: return as<fw_attention_decode_params>();
    case FW_OP_ATTENTION_COMBINE: return as<fw_attention_combine_params>();
    case FW_OP_ATTENTION_PREFILL: return as<fw_attention_prefill_params>();
    case FW_OP_OUTPUT_GATE: return as<fw_output_gate_params>();
    case FW_OP_CONV_STEP: return as<fw_conv_step_params>();
    case FW_OP_CONV_CHUNK: return as<fw_conv_chunk_params>();
    case FW_OP_GDN_STEP: return as<fw_gdn_step_params>();
    case FW_OP_GDN_CHUNK: return as<fw_gdn_chunk_params>();
    case FW_OP_SLOT_COPY: return as<fw_slot_copy_params>();
    case FW_OP_SLOT_ZERO: return as<fw_slot_zero_params>();
    case FW_OP_SAMPLE: return as<fw_sample_params>();
    case FW_OP_LOGPROBS: return as<fw_logprobs_params>();
    default: return {nullptr, 0};
  }
}

void check(const fw_call& call) {
  const Entry entry = entry_of(call.op);
  if (!entry.lower)
    throw Error(FW_UNSUPPORTED, text("op %d is not built for this device", call.op));
  if (call.size != entry.size || !call.params)
    throw Error(FW_INVALID, text("op %d has %lld bytes of parameters, not %lld", call.op,
                                 (long long)call.size, (long long)entry.size));
}

}  // namespace

bool lowers(int op) { return entry_of(op).lower != nullptr; }

void Lowering::add(const fw_call* calls, int count) {
  prefill = std::any_of(calls, calls + count, [](const fw_call& call) {
    return call.op == FW_OP_ATTENTION_PREFILL || call.op == FW_OP_GDN_CHUNK || call.op == FW_OP_CONV_CHUNK;
  });
  std::for_each(calls, calls + count, check);
  for (int i = 0; i < count;) {
    const int together = device().fuse ? lower_together(*this, calls + i, count - i) : 0;
    i += together;
    if (together) continue;
    entry_of(calls[i].op).lower(*this, calls[i]);
    done(1);
    i++;
  }
}

const char* suffix(int dtype) {
  switch (dtype) {
    case FW_F32: return "f32";
    case FW_F16: return "f16";
    case FW_BF16: return "bf16";
    default: throw Error(FW_UNSUPPORTED, text("type %d is not one that kernels compute in", dtype));
  }
}

void refuse(const char* op, const std::string& what) {
  throw Error(FW_UNSUPPORTED, std::string(op) + ": " + what);
}

}  // namespace fw::runtime
