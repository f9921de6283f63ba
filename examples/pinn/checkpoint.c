/*
 * Checkpoints: the library's state file with three things of ours in it, the configuration as a text, the kept parameters
 * and the progress counters as tensors. There is no time in it: the same run gives the same bytes.
 */
#include "run.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define CONFIGURATION "pinn.configuration"
#define KERNELS "kernels" /* the instruction set or "cuda", beside the options in the configuration */

enum { N_PROGRESS = sizeof(pinn_progress) / sizeof(double) };

static void describe(pinn_run *run, sut_checkpoint_config *config, sut_extra_tensor tensors[2], sut_extra_text *text)
{
    tensors[0] = (sut_extra_tensor){.name = "pinn.kept",
                                    .dtype = run->kernels->real == NET_F32 ? SUT_DTYPE_F32 : SUT_DTYPE_F64,
                                    .n_dims = 1,
                                    .shape = {(int64_t)run->n_parameters},
                                    .data = run->best};
    tensors[1] = (sut_extra_tensor){
        .name = "pinn.progress", .dtype = SUT_DTYPE_F64, .n_dims = 1, .shape = {N_PROGRESS}, .data = &run->progress};
    text->key = CONFIGURATION;
    sut_checkpoint_config_init(config);
    config->tensors = tensors;
    config->n_tensors = 2;
    config->texts = text;
    config->n_texts = 1;
    config->restore_settings = 0; /* the configuration is the one owner of all settings */
}

int pinn_checkpoint_save(pinn_run *run)
{
    char path[PINN_PATH];
    /* The rows up to here are on the disk before the checkpoint is. */
    const int error = pinn_history_flush(run);
    if (error)
        return error;
    if (!pinn_path(run, PINN_CHECKPOINT, path))
        return PINN_EXIT_FAILURE;
    json_t *const configuration = pinn_options_configuration(run->options);
    json_object_set_new(configuration, KERNELS, json_string(pinn_run_kernels(run)));
    char *const dump = json_dumps(configuration, JSON_COMPACT | JSON_REAL_PRECISION(17));
    json_decref(configuration);
    if (!dump)
        return pinn_error(PINN_EXIT_FAILURE, "out of memory");
    sut_checkpoint_config config;
    sut_extra_tensor tensors[2];
    sut_extra_text text = {.value = dump};
    describe(run, &config, tensors, &text);
    const sut_status status = sut_optimizer_save(run->optimizer, path, &config);
    free(dump);
    if (status != SUT_OK)
        return pinn_error(PINN_EXIT_FAILURE, "%s", sut_context_last_error(run->context));
    return 0;
}

/*
 * The configuration has to be known before there is an optimizer to load into, so it is read from the header of the
 * safetensors file (8 bytes of length, then JSON) here; damage is found by the library when it loads the rest.
 */
int pinn_checkpoint_configuration(const char *file, json_t **configuration_out)
{
    enum { LARGEST_HEADER = 1 << 24 };
    *configuration_out = NULL;
    FILE *const f = fopen(file, "rb");
    if (!f)
        return pinn_error(PINN_EXIT_FAILURE, "--resume %s: %s", file, strerror(errno));
    unsigned char length_bytes[8];
    uint64_t length = 0;
    char *header = NULL;
    if (fread(length_bytes, 1, 8, f) == 8) {
        for (int i = 7; i >= 0; i--)
            length = length << 8 | length_bytes[i];
        header = length > 0 && length <= LARGEST_HEADER ? malloc((size_t)length) : NULL;
    }
    json_t *root = NULL;
    if (header && fread(header, 1, (size_t)length, f) == length)
        root = json_loadb(header, (size_t)length, JSON_REJECT_DUPLICATES, NULL);
    fclose(f);
    free(header);
    const char *text = json_string_value(json_object_get(json_object_get(root, "__metadata__"), CONFIGURATION));
    json_t *const configuration = text ? json_loads(text, JSON_REJECT_DUPLICATES, NULL) : NULL;
    json_decref(root);
    if (!json_is_object(configuration)) {
        json_decref(configuration);
        return pinn_error(PINN_EXIT_FAILURE, "--resume %s: not a checkpoint of suture-pinn, or a damaged one", file);
    }
    *configuration_out = configuration;
    return 0;
}

int pinn_checkpoint_load(pinn_run *run, const char *file, const json_t *configuration)
{
    sut_checkpoint_config config;
    sut_extra_tensor tensors[2];
    sut_extra_text text = {.value = NULL};
    describe(run, &config, tensors, &text);
    const sut_status status = sut_optimizer_load(run->optimizer, file, &config);
    if (status != SUT_OK) /* a sound file that does not fit is one to which other settings were given */
        return pinn_error(status == SUT_ERROR_MISMATCH ? PINN_EXIT_USAGE : PINN_EXIT_FAILURE, "--resume %s: %s", file,
                          sut_context_last_error(run->context));
    run->steps = sut_optimizer_steps(run->optimizer);
    if (run->steps > run->options->steps)
        return pinn_error(PINN_EXIT_USAGE,
                          "--steps %" PRId64 ": the run in %s has %" PRId64
                          " steps behind it; it cannot become shorter",
                          run->options->steps, file, run->steps);
    const char *const kernels = json_string_value(json_object_get(configuration, KERNELS));
    if (kernels && strcmp(kernels, pinn_run_kernels(run)) != 0)
        pinn_error(0, "%s kernels instead of the checkpoint's %s: results differ by rounding errors",
                   pinn_run_kernels(run), kernels);
    return 0;
}
