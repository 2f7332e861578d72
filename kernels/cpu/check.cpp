#include "check.h"

#include <string>

#include "error.h"
#include "layer.h"

namespace flatwake {

namespace {

// One call under examination. Failures read "call 3, linear: …".
class Examination {
 public:
  Examination(int32_t place, const char* op)
      : where_("call " + std::to_string(place) + ", " + op) {}

  [[noreturn]] void fail(const std::string& what, int32_t code = FW_INVALID) const {
    throw Failure(code, where_ + ": " + what);
  }

  void positive(const char* name, int64_t value) const {
    if (value <= 0) fail(std::string(name) + " is " + std::to_string(value) + ", wanted above 0");
  }

  void present(const char* name, uint64_t address) const {
    if (!address) fail(std::string(name) + " is missing");
  }

  void floats(const char* name, int32_t dtype) const {
    if (dtype != FW_F32 && dtype != FW_F16 && dtype != FW_BF16)
      fail(std::string(name) + " is type " + std::to_string(dtype) + ", wanted F32, F16 or BF16",
           FW_UNSUPPORTED);
  }

  const Layer& layer(const char* name, uint64_t handle, int64_t rows, int64_t columns) const {
    present(name, handle);
    const auto& layer = *reinterpret_cast<const Layer*>(handle);
    if (layer.columns != columns || (rows && layer.rows != rows))
      fail(std::string(name) + " is a layer of " + std::to_string(layer.rows) + " x " +
           std::to_string(layer.columns) + ", wanted " + (rows ? std::to_string(rows) : "any") +
           " x " + std::to_string(columns));
    return layer;
  }

 private:
  const std::string where_;
};

void check(const fw_embedding_params& p, const Examination& e) {
  e.floats("dtype", p.dtype);
  e.layer("table", p.table, 0, p.width);
}

void check(const fw_gather_rows_params& p, const Examination& e) { e.floats("dtype", p.dtype); }

void check(const fw_linear_params& p, const Examination& e) {
  e.positive("rows", p.rows);
  e.floats("dtype", p.dtype);
  e.floats("output_dtype", p.output_dtype);
  e.layer("weight", p.weight, p.outputs, p.inputs);
}

void check(const fw_gate_up_silu_params& p, const Examination& e) {
  e.positive("rows", p.rows);
  e.floats("dtype", p.dtype);
  e.layer("weight", p.weight, 2 * int64_t(p.outputs), p.inputs);
}

void check(const fw_rms_norm_params& p, const Examination& e) {
  e.floats("dtype", p.dtype);
  e.positive("width", p.width);
}

void check(const fw_add_rms_norm_params& p, const Examination& e) {
  e.floats("dtype", p.dtype);
  e.positive("width", p.width);
}

void check(const fw_gated_rms_norm_params& p, const Examination& e) {
  e.floats("dtype", p.dtype);
  e.positive("width", p.width);
  if (p.gate_offset < 0 || p.gate_offset + int64_t(p.heads) * p.width > p.gate_stride)
    e.fail("gate_offset lets the gate leave its row");
}

void check(const fw_qk_norm_rope_write_params& p, const Examination& e) {
  e.floats("dtype", p.dtype);
  e.floats("kv_dtype", p.kv_dtype);
  e.positive("context", p.context);
  e.positive("sequences", p.sequences);
  e.positive("table_blocks", p.table_blocks);
  if (p.rotary_half < 0 || 2 * int64_t(p.rotary_half) > p.head_dim)
    e.fail("rotary_half is " + std::to_string(p.rotary_half) + ", head_dim " +
           std::to_string(p.head_dim));
  if (p.pairing != 0 && p.pairing != 1) e.fail("pairing is neither 0 nor 1");
  const int64_t kv = int64_t(p.kv_heads) * p.head_dim;
  const bool inside = p.q_offset >= 0 && p.k_offset >= 0 && p.v_offset >= 0 &&
                      p.q_offset + int64_t(p.heads) * p.head_dim <= p.stride &&
                      p.k_offset + kv <= p.stride && p.v_offset + kv <= p.stride;
  if (!inside) e.fail("q, k or v leaves the projection's row of " + std::to_string(p.stride));
}

template <class Params>
void check_heads(const Params& p, const Examination& e) {
  e.floats("dtype", p.dtype);
  e.floats("kv_dtype", p.kv_dtype);
  e.positive("kv_heads", p.kv_heads);
  e.positive("blocks", p.blocks);
  if (p.heads % p.kv_heads)
    e.fail(std::to_string(p.heads) + " heads do not share " + std::to_string(p.kv_heads) +
           " KV heads evenly");
}

template <class Params>
void check_splits(const Params& p, const Examination& e) {
  if (p.split_positions <= 0 || p.split_positions % FW_BLOCK_TOKENS)
    e.fail("split_positions is " + std::to_string(p.split_positions) + ", wanted whole blocks of " +
           std::to_string(FW_BLOCK_TOKENS));
  if (p.splits < 1 || p.splits > FW_MAX_SPLITS)
    e.fail("splits is " + std::to_string(p.splits) + ", wanted 1 to " +
           std::to_string(FW_MAX_SPLITS));
}

void check(const fw_attention_decode_params& p, const Examination& e) {
  check_heads(p, e);
  check_splits(p, e);
}

void check(const fw_attention_combine_params& p, const Examination& e) {
  e.floats("dtype", p.dtype);
  check_splits(p, e);
}

void check(const fw_attention_prefill_params& p, const Examination& e) { check_heads(p, e); }

void check(const fw_output_gate_params& p, const Examination& e) {
  e.floats("dtype", p.dtype);
  if (p.gate_offset < 0 || p.gate_offset + int64_t(p.width) > p.gate_stride)
    e.fail("gate_offset lets the gate leave its row");
}

template <class Params>
void check_conv(const Params& p, const Examination& e) {
  e.floats("dtype", p.dtype);
  e.positive("slots", p.slots);
  e.positive("taps", p.taps);
  if (p.history != p.taps - 1) e.fail("history is not taps - 1");
  if (p.offset < 0 || p.offset + int64_t(p.channels) > p.stride)
    e.fail("offset lets the channels leave their row");
}

void check(const fw_conv_step_params& p, const Examination& e) { check_conv(p, e); }
void check(const fw_conv_chunk_params& p, const Examination& e) { check_conv(p, e); }

template <class Params>
void check_gdn(const Params& p, const Examination& e) {
  e.floats("dtype", p.dtype);
  e.positive("slots", p.slots);
  e.positive("k_heads", p.k_heads);
  if (p.v_heads % p.k_heads)
    e.fail(std::to_string(p.v_heads) + " V heads do not share " + std::to_string(p.k_heads) +
           " K heads evenly");
  if (p.channels != 2 * int64_t(p.k_heads) * p.key_dim + int64_t(p.v_heads) * p.value_dim)
    e.fail("channels is not 2 k_heads key_dim + v_heads value_dim");
  if (p.a_offset < 0 || p.b_offset < 0 || p.a_offset + int64_t(p.v_heads) > p.ab_stride ||
      p.b_offset + int64_t(p.v_heads) > p.ab_stride)
    e.fail("a or b leaves its row");
}

void check(const fw_gdn_step_params& p, const Examination& e) { check_gdn(p, e); }
void check(const fw_gdn_chunk_params& p, const Examination& e) { check_gdn(p, e); }
void check(const fw_slot_copy_params& p, const Examination& e) { e.positive("slots", p.slots); }
void check(const fw_slot_zero_params& p, const Examination& e) { e.positive("slots", p.slots); }

void check_live(int64_t live, int64_t vocabulary, const Examination& e) {
  if (live < 1 || live > vocabulary)
    e.fail("vocabulary_live is " + std::to_string(live) + ", wanted 1 to " +
           std::to_string(vocabulary));
}

void check(const fw_sample_params& p, const Examination& e) {
  check_live(p.vocabulary_live, p.vocabulary, e);
  if (p.mask && 32 * int64_t(p.mask_words) < p.vocabulary_live)
    e.fail("mask_words do not hold vocabulary_live bits");
}

void check(const fw_logprobs_params& p, const Examination& e) {
  check_live(p.vocabulary_live, p.vocabulary, e);
}

void check(const fw_all_reduce_params& p, const Examination& e) { e.floats("dtype", p.dtype); }

template <class Params>
void examine(const fw_call& call, int32_t place, const char* name) {
  const Examination e(place, name);
  if (call.size != int64_t(sizeof(Params)))
    e.fail("parameters have " + std::to_string(call.size) + " bytes, wanted " +
           std::to_string(sizeof(Params)));
  e.present("params", call.params);
  check(*reinterpret_cast<const Params*>(call.params), e);
}

}  // namespace

void check_call(const Kernels& kernels, const fw_call& call, int32_t place) {
  if (call.op < 0 || call.op >= FW_OP_COUNT || !kernels.run[call.op])
    throw Failure(FW_UNSUPPORTED, "call " + std::to_string(place) + ": op " +
                                      std::to_string(call.op) + " is not in this library");
  switch (call.op) {
#define FW_EXAMINE(NUMBER, name) \
  case FW_OP_##NUMBER: return examine<fw_##name##_params>(call, place, #name);
    FW_EXAMINE(EMBEDDING, embedding)
    FW_EXAMINE(GATHER_ROWS, gather_rows)
    FW_EXAMINE(LINEAR, linear)
    FW_EXAMINE(GATE_UP_SILU, gate_up_silu)
    FW_EXAMINE(RMS_NORM, rms_norm)
    FW_EXAMINE(ADD_RMS_NORM, add_rms_norm)
    FW_EXAMINE(GATED_RMS_NORM, gated_rms_norm)
    FW_EXAMINE(QK_NORM_ROPE_WRITE, qk_norm_rope_write)
    FW_EXAMINE(ATTENTION_DECODE, attention_decode)
    FW_EXAMINE(ATTENTION_COMBINE, attention_combine)
    FW_EXAMINE(ATTENTION_PREFILL, attention_prefill)
    FW_EXAMINE(OUTPUT_GATE, output_gate)
    FW_EXAMINE(CONV_STEP, conv_step)
    FW_EXAMINE(CONV_CHUNK, conv_chunk)
    FW_EXAMINE(GDN_STEP, gdn_step)
    FW_EXAMINE(GDN_CHUNK, gdn_chunk)
    FW_EXAMINE(SLOT_COPY, slot_copy)
    FW_EXAMINE(SLOT_ZERO, slot_zero)
    FW_EXAMINE(SAMPLE, sample)
    FW_EXAMINE(LOGPROBS, logprobs)
    FW_EXAMINE(ALL_REDUCE, all_reduce)
#undef FW_EXAMINE
    default: break;
  }
}

}  // namespace flatwake
