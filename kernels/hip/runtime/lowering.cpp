#include "runtime/lowering.h"

#include <algorithm>

namespace fw::runtime {

namespace {

template <typename Params>
void lower_call(Lowering& to, const fw_call& call) {
  if (call.size != (int64_t)sizeof(Params) || !call.params)
    throw Error(FW_INVALID, text("op %d has %lld bytes of parameters, not %zu", call.op,
                                 (long long)call.size, sizeof(Params)));
  Params parameters;
  std::memcpy(&parameters, reinterpret_cast<const void*>(call.params), sizeof parameters);
  lower(to, parameters);
}

using Function = void (*)(Lowering&, const fw_call&);

Function function_of(int op) {
  switch (op) {
    case FW_OP_EMBEDDING: return lower_call<fw_embedding_params>;
    case FW_OP_GATHER_ROWS: return lower_call<fw_gather_rows_params>;
    case FW_OP_LINEAR: return lower_call<fw_linear_params>;
    case FW_OP_GATE_UP_SILU: return lower_call<fw_gate_up_silu_params>;
    case FW_OP_RMS_NORM: return lower_call<fw_rms_norm_params>;
    case FW_OP_ADD_RMS_NORM: return lower_call<fw_add_rms_norm_params>;
    case FW_OP_GATED_RMS_NORM: return lower_call<fw_gated_rms_norm_params>;
    case FW_OP_QK_NORM_ROPE_WRITE: return lower_call<fw_qk_norm_rope_write_params>;
    case FW_OP_ATTENTION_DECODE: return lower_call<fw_attention_decode_params>;
    case FW_OP_ATTENTION_COMBINE: return lower_call<fw_attention_combine_params>;
    case FW_OP_ATTENTION_PREFILL: return lower_call<fw_attention_prefill_params>;
    case FW_OP_OUTPUT_GATE: return lower_call<fw_output_gate_params>;
    case FW_OP_CONV_STEP: return lower_call<fw_conv_step_params>;
    case FW_OP_CONV_CHUNK: return lower_call<fw_conv_chunk_params>;
    case FW_OP_GDN_STEP: return lower_call<fw_gdn_step_params>;
    case FW_OP_GDN_CHUNK: return lower_call<fw_gdn_chunk_params>;
    case FW_OP_SLOT_COPY: return lower_call<fw_slot_copy_params>;
    case FW_OP_SLOT_ZERO: return lower_call<fw_slot_zero_params>;
    case FW_OP_SAMPLE: return lower_call<fw_sample_params>;
    case FW_OP_LOGPROBS: return lower_call<fw_logprobs_params>;
    default: return nullptr;
  }
}

}  // namespace

bool lowers(int op) { return function_of(op) != nullptr; }

void Lowering::add(const fw_call* calls, int count) {
  prefill = std::any_of(calls, calls + count, [](const fw_call& call) {
    return call.op == FW_OP_ATTENTION_PREFILL || call.op == FW_OP_GDN_CHUNK || call.op == FW_OP_CONV_CHUNK;
  });
  for (int i = 0; i < count; i++) {
    const Function function = function_of(calls[i].op);
    if (!function)
      throw Error(FW_UNSUPPORTED, text("op %d is not built for this device", calls[i].op));
    function(*this, calls[i]);
    ends.push_back((int)launches.size());
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
