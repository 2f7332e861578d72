// float16 and bfloat16 on the host, half to even, without an instruction that a CPU may lack.
#pragma once

#include <cstdint>

namespace fw {

float half_to_float(uint16_t bits);
uint16_t float_to_half(float value);
uint16_t float_to_bf16(float value);

}  // namespace fw
