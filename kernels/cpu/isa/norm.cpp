// RMS norms; each row alone.
#include "norm.h"

#include "ops.h"

namespace flatwake {
namespace FW_ISA {

void rms_norm(const fw_rms_norm_params& p, Worker& w) {
  const int64_t live = live_rows(p.live, p.rows), width = p.width;
  with_float(p.dtype, [&](auto kind) {
    using T = decltype(kind);
    for (int64_t begin, end; w.take(0, live, grain_of(width), begin, end);) {
      for (int64_t r = begin; r < end; ++r) {
        const T* x = at<const T>(p.x) + r * width;
        scale_row(x, at<T>(p.y) + r * width, at<const float>(p.weight), width,
                  inverse_rms(x, width, p.eps), p.weight_offset);
      }
    }
  });
}

void add_rms_norm(const fw_add_rms_norm_params& p, Worker& w) {
  const int64_t live = live_rows(p.live, p.rows), width = p.width;
  with_float(p.dtype, [&](auto kind) {
    using T = decltype(kind);
    for (int64_t begin, end; w.take(0, live, grain_of(width), begin, end);) {
      for (int64_t r = begin; r < end; ++r) {
        const T* x = at<const T>(p.x) + r * width;
        T* residual = at<T>(p.residual) + r * width;
        for (int64_t i = 0; i < width; i += W) {
          const int64_t n = width - i;
          store_upto(residual + i, load_upto(residual + i, n) + load_upto(x + i, n), n);
        }
        scale_row(residual, at<T>(p.y) + r * width, at<const float>(p.weight), width,
                  inverse_rms(residual, width, p.eps), p.weight_offset);
      }
    }
  });
}

void gated_rms_norm(const fw_gated_rms_norm_params& p, Worker& w) {
  const int64_t live = live_rows(p.live, p.rows), width = p.width;
  with_float(p.dtype, [&](auto kind) {
    using T = decltype(kind);
    for (int64_t begin, end; w.take(0, live * p.heads, grain_of(2 * width), begin, end);) {
      for (int64_t item = begin; item < end; ++item) {
        const int64_t r = item / p.heads, head = item % p.heads;
        const T* x = at<const T>(p.x) + item * width;
        const T* gate = at<const T>(p.gate) + r * p.gate_stride + p.gate_offset + head * width;
        T* y = at<T>(p.y) + item * width;
        const float scale = inverse_rms(x, width, p.eps);
        for (int64_t i = 0; i < width; i += W) {
          const int64_t n = width - i;
          const vf weight = load_upto(at<const float>(p.weight) + i, n);
          const vf normal = load_upto(x + i, n) * scale * weight;
          store_upto(y + i, normal * silu(load_upto(gate + i, n)), n);
        }
      }
    }
  });
}

void output_gate(const fw_output_gate_params& p, Worker& w) {
  const int64_t live = live_rows(p.live, p.rows), width = p.width;
  with_float(p.dtype, [&](auto kind) {
    using T = decltype(kind);
    for (int64_t begin, end; w.take(0, live, grain_of(width), begin, end);) {
      for (int64_t r = begin; r < end; ++r) {
        const T* x = at<const T>(p.x) + r * width;
        const T* gate = at<const T>(p.gate) + r * p.gate_stride + p.gate_offset;
        T* y = at<T>(p.y) + r * width;
        for (int64_t i = 0; i < width; i += W) {
          const int64_t n = width - i;
          store_upto(y + i, load_upto(x + i, n) * sigmoid(load_upto(gate + i, n)), n);
        }
      }
    }
  });
}

}  // namespace FW_ISA
}  // namespace flatwake
