/**
 * @file checkpoint.h
 * State files. Format: safetensors (8-byte header length, JSON header, data), with a format number, the method, every
 * setting, the step counts and a checksum over the whole file in `__metadata__`.
 *
 * Files go from one back end to the other. Resuming gives the same bits as never having stopped. Files are written to a temporary name beside the target, flushed
 * to the disk and renamed: a crash at any moment leaves the old file or the new one, complete.
 */
#ifndef SUTURE_CHECKPOINT_H
#define SUTURE_CHECKPOINT_H

#include "suture/optimizer.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Format number written by this version; older ones are read, newer ones refused by name. */
#define SUT_CHECKPOINT_FORMAT 1

/** Something of the caller's own that is kept in the same file: a tensor (its parameters, a network, a log) ... */
typedef struct sut_extra_tensor {
    const char *name; /**< 1..200 bytes of UTF-8, not repeated; must not start with "suture." */
    sut_dtype dtype;
    int n_dims;
    int64_t shape[SUT_MAX_DIMS];
    void *data; /**< save: read. load: filled in. Host memory. */
} sut_extra_tensor;

/** ... or a short text (a configuration, a generator's state). */
typedef struct sut_extra_text {
    const char *key;   /**< UTF-8, not empty, not repeated; must not start with "suture." */
    const char *value; /**< save: UTF-8 text. load: set to a text that is lent until the next call on the context. */
} sut_extra_text;

/** What goes into a file beside the optimizer's state. */
typedef struct sut_checkpoint_config {
    size_t struct_size;
    int include_parameters;    /**< 1 (default): parameters are saved and restored too */
    sut_extra_tensor *tensors; /**< n_tensors of them, borrowed for the call. NULL (default): none. */
    int n_tensors;
    sut_extra_text *texts; /**< n_texts of them, likewise */
    int n_texts;
    /** load only. 1 (default): hyper-parameters, schedule and alignment come from the file; 0: those of the optimizer stay. */
    int restore_settings;
    /**
     * load only. 1: the parameters (and the extras) are taken from the file and nothing else; moments, step counts, settings
     * and seed stay. The file may then be of another method, number of losses or groups, and hold more tensors.
     * 0 (default): everything.
     */
    int only_parameters;
} sut_checkpoint_config;

SUT_API void sut_checkpoint_config_init_sized(sut_checkpoint_config *config, size_t struct_size);
static inline void sut_checkpoint_config_init(sut_checkpoint_config *config)
{
    sut_checkpoint_config_init_sized(config, sizeof *config);
}

/**
 * Save to a file.
 *
 * @param path    The directory must exist. An existing file is replaced atomically.
 * @param config  NULL: defaults.
 * @return SUT_OK; SUT_ERROR_IO (the text says which call failed on which file and why; an old file is as it was),
 *         SUT_ERROR_SEQUENCE between propose and apply, SUT_ERROR_OUT_OF_MEMORY, SUT_ERROR_INVALID_ARGUMENT.
 * Saving does not change the optimizer; the same state gives the same bytes.
 */
SUT_API sut_status sut_optimizer_save(sut_optimizer *opt, const char *path, const sut_checkpoint_config *config);

/**
 * Load from a file into an optimizer that was created with the same method, tensors (by name, shape, dtype) and m.
 *
 * Tensors are matched by name, in any order. Everything is read and checked before anything is changed.
 * Settings in the file (hyper-parameters of each group, alignment, schedule, surgery, and the seed of this optimizer) replace
 * those here unless `restore_settings` is 0; set_hyper and the like after the load have the last word. Arrays that the
 * caller lends (`preference`, `order`) are not in the file: those given at creation stay in use. Settings that shape the
 * state (momentum, amsgrad, centered) must have been given at creation.
 * Other optimizers and the context itself are not touched. With `only_parameters` the parameters alone are replaced.
 * Needs memory for the file beside the optimizer while it runs.
 * @return SUT_OK; SUT_ERROR_IO, SUT_ERROR_CORRUPT (not a safetensors file, damaged: the text names the field),
 *         SUT_ERROR_MISMATCH (a sound file that does not fit: the text names method, tensor, shape, dtype or what is
 *         missing), SUT_ERROR_OUT_OF_MEMORY, SUT_ERROR_SEQUENCE. The optimizer is then exactly as before.
 */
SUT_API sut_status sut_optimizer_load(sut_optimizer *opt, const char *path, const sut_checkpoint_config *config);

/**
 * The same to memory: the bytes are those of the file.
 * @param data_out  Given: release with sut_buffer_free(ctx, ...), ctx being that of the optimizer.
 */
SUT_API sut_status sut_optimizer_save_memory(sut_optimizer *opt, const sut_checkpoint_config *config, void **data_out,
                                             size_t *size_out);
/** Load from memory; `data` is borrowed for the call. */
SUT_API sut_status sut_optimizer_load_memory(sut_optimizer *opt, const void *data, size_t size,
                                             const sut_checkpoint_config *config);
/** Release a buffer given by the library; NULL is allowed. */
SUT_API void sut_buffer_free(sut_context *ctx, void *data);

#ifdef __cplusplus
}
#endif

#endif /* SUTURE_CHECKPOINT_H */
