// Linear layers on the device.
#pragma once

#include <memory>

#include "parameters.h"
#include "runtime/context.h"

namespace fw::runtime {

// Rows of weights and of what they multiply are padded with zeros to a matrix unit's step.
inline int padded_columns(int columns) {
  return (columns + FW_PANEL_COLUMNS - 1) / FW_PANEL_COLUMNS * FW_PANEL_COLUMNS;
}

// Rows of all views in one plain type, each padded with zeros; by panels where matrix units take 16
// rows at once, so that what they read next lies next.
//
// Plain weights of one type stay what they are. Quantised ones become float16, which keeps three
// bits more than bfloat16, unless a value is too large for it.
class Weights {
 public:
  Weights(Context& context, const fw_weight_view* views, int count);
  static bool quantised(const fw_weight_view* views, int count);
  const FwMatrix& matrix() const { return matrix_; }
  fw_linear_info info() const { return info_; }

 private:
  Context& context_;
  FwMatrix matrix_{};
  fw_linear_info info_{};
  std::unique_ptr<Region> region_;

  void check(const fw_weight_view* views, int count);
  bool upload(const fw_weight_view* views, int count);
};

}  // namespace fw::runtime
