/*
 * State files, format 1: what is in them. One list of pieces per tensor serves saving and loading alike.
 *
 * A safetensors file. Metadata, in this order: `suture.checksum`, the format number, method, counts and seed, the settings
 * (settings.h), `suture.group.<k>.<name>` for each hyper-parameter of each group, then the caller's own texts. Tensors:
 *
 *     suture.state.layout.<tensor>   I64 [2 + n_dims]: group, dtype (sut_dtype), shape
 *     suture.state.step.<tensor>     I64 []: steps of this tensor
 *     suture.state.<slot>.<tensor>   F32 or F64, of the tensor's shape
 *     suture.state.mu_prod.<tensor>  F64 []: nadam only
 *     suture.param.<tensor>          the parameter itself, unless it was left out
 *     suture.master.<tensor>         F32: master copy of a bf16 or f16 parameter, likewise
 *     suture.surgery.kept_weights    F64 [m]
 *     <name>                         the caller's own tensors
 *
 * The checksum is a CRC-64 over the whole file, its own 16 digits taken as zeros. It is the first thing in the header, so
 * that its place is known before anything is parsed. Arrays that the caller lends for each call (preference, order) are not
 * in the file.
 */
#ifndef SUT_CORE_CHECKPOINT_H
#define SUT_CORE_CHECKPOINT_H

#include "optim/optimizer.h"
#include "quant/safetensors.h"

#define SUT_CHECKSUM_DIGITS 16
#define SUT_CHECKSUM_PREFIX "{\"__metadata__\":{\"suture.checksum\":\""
/* Place of the digits in the file. */
#define SUT_CHECKSUM_AT (8 + sizeof SUT_CHECKSUM_PREFIX - 1)

#define SUT_MAX_PIECES 9

/* The layout of one tensor as it is kept in the file. */
typedef struct sut_tensor_layout {
    int64_t size; /* numbers that are used: 2 + n_dims */
    int64_t number[2 + SUT_MAX_DIMS];
} sut_tensor_layout;

typedef enum sut_piece_kind { SUT_PIECE_LAYOUT, SUT_PIECE_STEP, SUT_PIECE_STATE, SUT_PIECE_PARAMETER } sut_piece_kind;

/* One thing that a state file keeps about one tensor. */
typedef struct sut_piece {
    sut_piece_kind kind;
    const char *prefix; /* of its name: prefix, slot (unless NULL) and ".", name of the tensor */
    const char *slot;
    sut_file_dtype dtype;
    int n_dims;
    const int64_t *shape;
    void *data;   /* in the optimizer; of the layout: in `layout` */
    bool is_host; /* else memory of the back end */
} sut_piece;

/* Fill in `layout` and the pieces of a tensor; the number of pieces. */
int sut_checkpoint_pieces(sut_optimizer *opt, int64_t tensor, bool parameters, sut_tensor_layout *layout,
                          sut_piece pieces[SUT_MAX_PIECES]);

/* Longest name of a piece, its end included; optimizers take tensor names of at most 1000 bytes. */
#define SUT_PIECE_NAME_MAX 1064
void sut_piece_name(const sut_optimizer *opt, int64_t tensor, const sut_piece *piece, char name[SUT_PIECE_NAME_MAX]);

/* A complete configuration from the caller's; everything in it checked that can be checked without a file. */
sut_status sut_checkpoint_config_read(sut_context *ctx, const sut_checkpoint_config *given, bool saving,
                                      sut_checkpoint_config *complete);

#endif /* SUT_CORE_CHECKPOINT_H */
