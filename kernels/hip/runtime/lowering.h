// From recorded calls to kernel launches: done once, when a plan is made.
#pragma once

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "parameters.h"
#include "runtime/context.h"
#include "runtime/weights.h"

namespace fw::runtime {

class Lowering {
 public:
  explicit Lowering(Context& context) : context_(context) {}

  // Lower `count` calls in order.
  void add(const fw_call* calls, int count);

  std::vector<Launch> launches;
  std::vector<int> ends;  // launches of calls 0 … i
  // The next `count` calls are lowered: the first by what has been launched, the others in it.
  void done(int count) { ends.insert(ends.end(), count, (int)launches.size()); }
  std::vector<std::shared_ptr<Region>> kept;

  // --- For the functions that lower an op ---
  const DeviceFacts& device() const { return context_.facts(); }
  // Whether the plan reads a chunk of a prompt. A row's bits are the same in every such plan, and in
  // every other one.
  bool prefill = false;
  template <typename Params>
  void launch(const std::string& kernel, Grid grid, int threads, const Params& parameters) {
    static_assert(sizeof(Params) <= PARAMETER_BYTES, "a launch holds its parameters");
    if (grid.x < 1 || grid.y < 1 || grid.z < 1) return;
    Launch launch{context_.driver().kernel(kernel), grid, threads, (int)sizeof(Params), {}};
    std::memcpy(launch.parameters, &parameters, sizeof parameters);
    launches.push_back(launch);
  }
  uint64_t workspace(int64_t bytes) {
    kept.push_back(context_.workspace(bytes));
    return kept.back()->address();
  }

 private:
  Context& context_;
};

bool lowers(int op);

// A call's parameters, whose size add() has checked.
template <typename Params>
const Params* parameters(const fw_call& call) {
  return reinterpret_cast<const Params*>(call.params);
}

// Lower some of the first calls by fewer launches than calls: how many, or 0. What only the next of
// them reads need not be written.
int lower_together(Lowering& to, const fw_call* calls, int left);

inline int blocks(int64_t work, int each) { return (int)((work + each - 1) / each); }
// f32, f16 or bf16, as in the kernels' names.
const char* suffix(int dtype);
[[noreturn]] void refuse(const char* op, const std::string& what);

// Each raises Error where the parameters are not what the kernels can do.
void lower(Lowering& to, const fw_embedding_params& p);
void lower(Lowering& to, const fw_gather_rows_params& p);
void lower(Lowering& to, const fw_linear_params& p);
void lower(Lowering& to, const fw_gate_up_silu_params& p);
void lower(Lowering& to, const fw_rms_norm_params& p);
void lower(Lowering& to, const fw_add_rms_norm_params& p);
void lower(Lowering& to, const fw_gated_rms_norm_params& p);
void lower(Lowering& to, const fw_qk_norm_rope_write_params& p);
void lower(Lowering& to, const fw_attention_decode_params& p);
void lower(Lowering& to, const fw_attention_combine_params& p);
void lower(Lowering& to, const fw_attention_prefill_params& p);
void lower(Lowering& to, const fw_output_gate_params& p);
void lower(Lowering& to, const fw_conv_step_params& p);
void lower(Lowering& to, const fw_conv_chunk_params& p);
void lower(Lowering& to, const fw_gdn_step_params& p);
void lower(Lowering& to, const fw_gdn_chunk_params& p);
void lower(Lowering& to, const fw_slot_copy_params& p);
void lower(Lowering& to, const fw_slot_zero_params& p);
void lower(Lowering& to, const fw_sample_params& p);
void lower(Lowering& to, const fw_logprobs_params& p);


// --- What a launch may do beside its own op ---
// A norm is shared by the products before and after it, which pass its squares on; what a product
// gives may be convolved.
struct Around {
  const fw_rms_norm_params *before = nullptr, *after = nullptr;
  const fw_conv_step_params* conv = nullptr;
  uint64_t squares = 0;
};
bool takes_norm_before(const Lowering& to, const fw_linear_params& p);
bool takes_norm_before(const Lowering& to, const fw_gate_up_silu_params& p);
bool takes_norm_after(const Lowering& to, const fw_linear_params& p);
bool takes_conv(const Lowering& to, const fw_linear_params& p, const fw_conv_step_params& conv);
void lower(Lowering& to, const fw_linear_params& p, const Around& around);
void lower(Lowering& to, const fw_gate_up_silu_params& p, const Around& around);
void lower(Lowering& to, const fw_attention_combine_params& p, const fw_output_gate_params* gate);
// A block has whole heads.
bool takes_head_norm(const fw_gdn_step_params& p);
void lower(Lowering& to, const fw_gdn_step_params& p, const fw_gated_rms_norm_params* norm);

}  // namespace fw::runtime
