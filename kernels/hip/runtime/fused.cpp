// Calls that one launch does together.
//
// Where a result in between is then not written, a group is lowered together only if the plan itself
// shows that nobody else reads it: the next call that names its memory overwrites it in the same way.
// What a plan leaves in its buffers is the same either way.
#include "runtime/lowering.h"

namespace fw::runtime {

namespace {

// A call's parameters if it is of that kind.
template <typename Params>
const Params* call_at(const fw_call* calls, int left, int i, int op) {
  return i < left && calls[i].op == op ? parameters<Params>(calls[i]) : nullptr;
}

int64_t bytes_of(int64_t elements, int dtype) { return elements * (dtype == FW_F32 ? 4 : 2); }

struct Range {
  uint64_t first;
  int64_t bytes;
  bool meets(const Range& other) const {
    return first < other.first + other.bytes && other.first < first + bytes;
  }
};

// How many of the call's buffers begin in the range.
int mentions(const fw_call& call, const Range& range) {
  int found = 0;
#define FW_BUFFER(number, structure, field) \
  if (call.op == number)                    \
    found += parameters<structure>(call)->field - range.first < (uint64_t)range.bytes;
  FW_BUFFERS(FW_BUFFER)
#undef FW_BUFFER
  return found;
}

Range given_by(const fw_rms_norm_params& p) { return {p.y, bytes_of((int64_t)p.rows * p.width, p.dtype)}; }

// Whether only the call after calls[0], a norm, reads what it gives, and that once.
bool read_once(const fw_call* calls, int left) {
  const auto& norm = *parameters<fw_rms_norm_params>(calls[0]);
  const Range given = given_by(norm);
  if (left < 2 || mentions(calls[1], given) != 1) return false;
  for (int i = 2; i < left; i++) {
    if (!mentions(calls[i], given)) continue;
    const auto* again = call_at<fw_rms_norm_params>(calls, left, i, FW_OP_RMS_NORM);
    return again && again->y == norm.y && again->rows == norm.rows && again->width == norm.width &&
           again->dtype == norm.dtype && again->live == norm.live && mentions(calls[i], given) == 1;
  }
  return false;
}

// Whether the norm is of what the product gives. Blocks write its half while others read x.
bool follows(const fw_linear_params& product, const fw_rms_norm_params& norm) {
  return norm.x == product.y && norm.rows == product.rows && norm.width == product.outputs &&
         norm.dtype == product.output_dtype && norm.live == product.live &&
         !given_by(norm).meets({product.y, given_by(norm).bytes}) &&
         !given_by(norm).meets({product.x, bytes_of((int64_t)product.rows * product.inputs, product.dtype)});
}

template <typename Product>
bool follows(const fw_rms_norm_params& norm, const Product& product) {
  return product.x == norm.y && product.rows == norm.rows && product.inputs == norm.width &&
         product.dtype == norm.dtype && product.live == norm.live;
}

bool follows(const fw_linear_params& product, const fw_conv_step_params& conv) {
  const Range mixed{conv.y, bytes_of((int64_t)conv.rows * conv.channels, conv.dtype)};
  return conv.x == product.y && conv.rows == product.rows &&
         !mixed.meets({product.x, bytes_of((int64_t)product.rows * product.inputs, product.dtype)}) &&
         !mixed.meets({product.y, bytes_of((int64_t)product.rows * product.outputs, product.output_dtype)});
}

// A product, a norm of what it gives, and a product of that.
int lower_around_norm(Lowering& to, const fw_call* calls, int left) {
  const auto* first = call_at<fw_linear_params>(calls, left, 0, FW_OP_LINEAR);
  const auto* norm = call_at<fw_rms_norm_params>(calls, left, 1, FW_OP_RMS_NORM);
  if (!first || !norm || !takes_norm_after(to, *first) || !follows(*first, *norm) ||
      !read_once(calls + 1, left - 1))
    return 0;
  const auto* linear = call_at<fw_linear_params>(calls, left, 2, FW_OP_LINEAR);
  const auto* gate_up = call_at<fw_gate_up_silu_params>(calls, left, 2, FW_OP_GATE_UP_SILU);
  if (!(linear && takes_norm_before(to, *linear) && follows(*norm, *linear)) &&
      !(gate_up && takes_norm_before(to, *gate_up) && follows(*norm, *gate_up)))
    return 0;
  // The workspace is every launch's: these two come one right after the other.
  const uint64_t squares = to.workspace((int64_t)norm->rows * (norm->width / FW_NORM_PART) * 4);
  Around around;
  around.squares = squares;
  around.after = norm;
  lower(to, *first, around);
  to.done(2);
  around = {};
  around.squares = squares;
  around.before = norm;
  if (gate_up) {
    lower(to, *gate_up, around);
    to.done(1);
    return 3;
  }
  const auto* conv = call_at<fw_conv_step_params>(calls, left, 3, FW_OP_CONV_STEP);
  if (conv && takes_conv(to, *linear, *conv) && follows(*linear, *conv)) around.conv = conv;
  lower(to, *linear, around);
  to.done(around.conv ? 2 : 1);
  return around.conv ? 4 : 3;
}

int lower_gated(Lowering& to, const fw_call* calls, int left) {
  const auto* combine = call_at<fw_attention_combine_params>(calls, left, 0, FW_OP_ATTENTION_COMBINE);
  const auto* gate = call_at<fw_output_gate_params>(calls, left, 1, FW_OP_OUTPUT_GATE);
  if (!combine || !gate || gate->x != combine->y || gate->y != combine->y ||
      gate->rows != combine->rows || gate->width != combine->heads * combine->head_dim ||
      gate->dtype != combine->dtype)
    return 0;
  lower(to, *combine, gate);
  to.done(2);
  return 2;
}

// Heads are normed while others are still made: of nothing that is normed anything else is read.
int lower_normed(Lowering& to, const fw_call* calls, int left) {
  const auto* step = call_at<fw_gdn_step_params>(calls, left, 0, FW_OP_GDN_STEP);
  const auto* norm = call_at<fw_gated_rms_norm_params>(calls, left, 1, FW_OP_GATED_RMS_NORM);
  if (!step || !norm || !takes_head_norm(*step) || norm->x != step->y || norm->rows != step->rows ||
      norm->heads != step->v_heads || norm->width != step->value_dim || norm->dtype != step->dtype)
    return 0;
  const auto range = [&](uint64_t first, int width) {
    return Range{first, bytes_of((int64_t)step->rows * width, step->dtype)};
  };
  const int width = norm->heads * norm->width;
  const Range made = range(step->y, width), normed = range(norm->y, width);
  const Range gate = range(norm->gate, norm->gate_stride);
  if (made.meets(gate) || made.meets(normed) || normed.meets(gate) ||
      normed.meets(range(step->qkv, step->channels)) || normed.meets(range(step->ab, step->ab_stride)))
    return 0;
  lower(to, *step, norm);
  to.done(2);
  return 2;
}

}  // namespace

int lower_together(Lowering& to, const fw_call* calls, int left) {
  if (const int done = lower_around_norm(to, calls, left)) return done;
  if (const int done = lower_normed(to, calls, left)) return done;
  return lower_gated(to, calls, left);
}

}  // namespace fw::runtime
