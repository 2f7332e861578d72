// Parameters of kernels that differ from their op's own; shared by launch code and kernels.
#pragma once

#include "flatwake/ops.h"

// A prepared layer: rows of `stride` elements, padded with zeros to a multiple of FW_PANEL_COLUMNS.
// Panels of 2^panel_bits rows lie together, FW_PANEL_COLUMNS of each row in turn; 0: row after row.
struct FwMatrix {
  uint64_t data;
  int64_t stride;
  int32_t rows;
  int32_t columns;
  int32_t dtype;
  int32_t panel_bits;
};

struct FwEmbeddingParams {
  FwMatrix table;
  fw_embedding_params op;
};

// linear and gate_up_silu. `x_stride` and the weight's stride are multiples of 32 and padded with
// zeros; `split` waves share an output's columns: a function of the shape alone.
//
// An RMSNorm between two products is shared by them. The first also writes its outputs times the
// norm's weights, `weighed`, and of every FW_NORM_PART outputs the sum of squares, `squares` [rows,
// outputs ÷ FW_NORM_PART]; the second's x is `weighed`, and `squares` scales what it gives.
struct FwLinearParams {
  FwMatrix weight;
  uint64_t x, y, bias, residual, live, norm, weighed, squares;
  int32_t rows, x_stride, outputs, output_dtype, split;
  float eps, norm_offset;
  int32_t reserved;
};

// A linear layer whose first outputs are a convolution's input.
struct FwProjectionParams {
  FwLinearParams linear;
  fw_conv_step_params conv;
};

// attention_combine, and output_gate on what it gives where `gate` isn't 0.
struct FwCombineParams {
  fw_attention_combine_params op;
  uint64_t gate;
  int32_t gate_stride, gate_offset;
};

// y[r, i] = x[r, i] for i < width, 0 up to `stride`, in another type.
struct FwPadParams {
  uint64_t x, y;
  int32_t rows, width, stride, dtype, y_dtype, reserved;
};

// attention_decode's fields with y 0, or attention_prefill's, which needs no partials.
struct FwAttentionParams {
  uint64_t q, kv, partial, partial_ml, y, row_length, first_row, row_count, block_table;
  int32_t rows, heads, kv_heads, head_dim, blocks, sequences, table_blocks, splits;
  int32_t split_positions, dtype;
  float scale;
  int32_t reserved;
};

// sample's two kernels: `scaled` [sequences, stride] holds the logits that remain, divided by the
// temperature, -∞ from the vocabulary's end to `stride`, a multiple of FW_SAMPLE_PART; `best` and
// `best_id` [sequences, parts] the largest of each part.
struct FwSampleParams {
  fw_sample_params op;
  uint64_t scaled, best, best_id;
  int32_t parts, stride;
};

// gdn_step, and gated_rms_norm of what it gives where `norm.y` isn't 0.
struct FwGdnStepParams {
  fw_gdn_step_params op;
  fw_gated_rms_norm_params norm;
};

// gdn_chunk's two kernels share the normed rows, in groups of FW_GDN_GROUP: `keys` and `queries`
// [k_heads, groups, FW_GDN_GROUP, FW_GDN_KEYS], and `facts` [v_heads, groups, FW_GDN_FACTS], all float.
struct FwGdnChunkParams {
  fw_gdn_chunk_params op;
  uint64_t keys, queries, facts;
  int32_t groups, reserved;
};

// The same on matrix units, in groups of FW_GDN_SPAN: `shared` [k_heads, groups] has what all of a K
// head's V heads take of the rows, and `own` [v_heads, groups] what each one's gates make of them
// (gdn_matrix.h).
struct FwGdnMatrixParams {
  fw_gdn_chunk_params op;
  uint64_t shared, own;
  int32_t groups, reserved;
};

struct FwReadParams {
  uint64_t data, found;
  int64_t bytes;
  int32_t blocks, reserved;
};

#define FW_MAX_HEAD_DIM 256
#define FW_NORM_PART 16 /* outputs of a block of linear_matrix */
#define FW_SAMPLE_PART 4096
#define FW_HEAD_KEPT 128 /* elements of a head that a wave keeps for its gated norm */
#define FW_GDN_VALUES 128 /* columns of a block of gdn_step */
#define FW_GDN_HOLDERS 256 /* threads that hold them; there is one wave more */
#define FW_GDN_COLUMNS 32 /* of a block of gdn_chunk */
#define FW_GDN_KEYS 128 /* the largest key_dim */
#define FW_GDN_GROUP 4  /* rows that meet a state together */
#define FW_GDN_FACTS 24 /* what a group's rows do to the state and to one another */
#define FW_GDN_SPAN 32  /* the same where matrix units take them */
#define FW_GDN_MATRIX_BLOCK 128 /* threads of gdn_matrix */
#define FW_GDN_MATRIX_COLUMNS 32 /* the fewest of such a block */
#define FW_GDN_ROWS_BLOCK 128 /* threads of gdn_matrix_rows */
#define FW_GDN_SHARED_BYTES 24576 /* of a K head's group for gdn_matrix */
#define FW_GDN_OWN_BYTES 10512    /* of a V head's */
#define FW_CONV_RUN 16  /* rows of a chunk that a thread of conv_chunk takes */
#define FW_CONV_TAPS 8  /* the most taps */
#define FW_CONV_TAPS_FEW 4 /* of models at hand: leaner code, and what a product does as well */
#define FW_PANEL_BITS 4 /* of a panel's rows, where matrix units take them */
#define FW_PANEL_COLUMNS 32 /* a matrix unit's step */
#define FW_LINEAR_BLOCK 256
#define FW_LINEAR_BLOCK_FEW 512 /* of a layer with no more panels than the device has units */
#define FW_GEMM_ROWS 128 /* of weights, in a tile of a prompt's product */
#define FW_GEMM_ROWS_TALL 160 /* where LDS is filled without registers, if fewer turns of blocks do it then */
#define FW_GEMM_BLOCK 256 /* threads of such a product */
#define FW_GEMM_BLOCK_ASYNC 128 /* where LDS is filled without registers: each wave has more of the tile */
#define FW_ATTENTION_TOKENS 64 /* the fewest that a block of attention_matrix takes */
