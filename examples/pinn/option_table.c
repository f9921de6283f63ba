/* The rows of the command line's options (see option_table.h). */
#include "option_table.h"

#include "suture/schedule.h"

#include <float.h>
#include <math.h>
#include <stddef.h>
#include <string.h>

static const char *optimizer_name(int i)
{
    return i < SUT_OPTIMIZER_COUNT ? sut_optimizer_method_name((sut_optimizer_method)i) : NULL;
}
static const char *surgery_name(int i)
{
    return i < SUT_SURGERY_COUNT ? sut_surgery_method_name((sut_surgery_method)i) : NULL;
}
static const char *schedule_name(int i)
{
    return i < SUT_SCHEDULE_COUNT ? sut_schedule_name((sut_schedule_kind)i) : NULL;
}
static const char *align_name(int i)
{
    return i == SUT_ALIGN_NONE ? "none" : i == SUT_ALIGN_GUA ? "gua" : NULL;
}
static const char *metric_name(int i)
{
    return i == SUT_METRIC_NATURAL ? "natural" : i == SUT_METRIC_EUCLIDEAN ? "euclidean" : NULL;
}
static const char *dtype_name(int i)
{
    return i == NET_F32 ? "f32" : i == NET_F64 ? "f64" : NULL;
}
static const char *preset_name(int i)
{
    return i == PINN_PRESET_PAPER ? "paper" : i == PINN_PRESET_QUICK ? "quick" : NULL;
}
static const char *backend_name(int i)
{
    return i >= 0 && i <= SUT_BACKEND_CUDA ? sut_backend_name((sut_backend)i) : NULL;
}
static const char *isa_name(int i)
{
    return i >= 0 && i <= SUT_ISA_AVX512 ? sut_isa_name((sut_isa)i) : NULL;
}

#define AT(member) offsetof(pinn_options, member)
#define MANY 9e15 /* every integer up to here is a double */

static const option_row table[] = {
    {"optimizer", "NAME", "update rule", OPTION_CHOICE, AT(optimizer), true, true, optimizer_name, 0, 0,
     SUT_OPTIMIZER_ADAM},
    {"surgery", "NAME", "how the losses' gradients become one", OPTION_CHOICE, AT(surgery), true, false, surgery_name,
     0, 0, SUT_SURGERY_CONFIG},
    {"align", "gua|none", "make every step conflict-free", OPTION_CHOICE, AT(align), true, false, align_name, 0, 0,
     SUT_ALIGN_GUA},
    {"losses", "2|3", "2: interior, boundary with initial; 3: each by itself", OPTION_INTEGER, AT(losses), true, true,
     NULL, 2, 3, 2},
    {"dtype", "f32|f64", "type of network and optimizer", OPTION_CHOICE, AT(dtype), true, true, dtype_name, 0, 0,
     NET_F32},
    {"preset", "quick|paper", "steps, points and rates: a minute's, or the published ones", OPTION_CHOICE, AT(preset),
     false, false, preset_name, 0, 0, PINN_PRESET_PAPER},
    {"steps", "N", "number of steps (default: the preset's)", OPTION_INTEGER, AT(steps), true, false, NULL, 1, 1e12,
     NAN},
    {"points", "N", "interior points of a step (default: the preset's)", OPTION_INTEGER, AT(points), true, false, NULL,
     1, 1e7, NAN},
    {"seed", "S", "of points and initial parameters", OPTION_INTEGER, AT(seed), true, true, NULL, 0, MANY, 0},
    {"lr", "X", "learning rate at the start (default: the preset's)", OPTION_REAL, AT(lr), true, false, NULL, 0,
     DBL_MAX, NAN},
    {"final-lr", "X", "learning rate at the end (default: the preset's; after --lr, in its ratio)", OPTION_REAL,
     AT(final_lr), true, false, NULL, 0, DBL_MAX, NAN},
    {"schedule", "NAME", "course of the rate: constant, linear, cosine, wsd", OPTION_CHOICE, AT(schedule), true, false,
     schedule_name, 0, 0, SUT_SCHEDULE_COSINE},
    {"warmup", "N", "steps of warm-up (default min(100, steps/100))", OPTION_INTEGER, AT(warmup), true, false, NULL, 0,
     1e12, NAN},
    {"rho-m", "X", "realignment of first moments (default: the problem's)", OPTION_REAL, AT(rho_m), true, false, NULL,
     0, 1, NAN},
    {"rho-v", "X", "realignment of second moments (default: the problem's)", OPTION_REAL, AT(rho_v), true, false, NULL,
     0, 1, NAN},
    {"conflict-tol", "X", "project when a cosine is below -X", OPTION_REAL, AT(conflict_tol), true, false, NULL, 0,
     0.999999, 1e-6},
    {"metric", "NAME", "metric of the projection: natural (the rule's own), euclidean", OPTION_CHOICE, AT(metric), true,
     false, metric_name, 0, 0, SUT_METRIC_NATURAL},
    {"fixed-points", NULL, "keep the first draw of points for the whole run", OPTION_FLAG, AT(fixed_points), true,
     false, NULL, 0, 0, 0},
    {"set", "NAME=VALUE", "hyper-parameter or surgery option; may be repeated", OPTION_SETTING, 0, true, false, NULL, 0,
     0, 0},
    {"out", "DIR", "where results go (default: suture-pinn-PROBLEM, or where the resumed checkpoint is)", OPTION_TEXT,
     AT(out), false, false, NULL, 0, 0, 0},
    {"resume", "FILE", "go on from a checkpoint", OPTION_TEXT, AT(resume), false, false, NULL, 0, 0, 0},
    {"threads", "N", "threads (default: one per processor); they never change a bit of the result", OPTION_INTEGER,
     AT(threads), false, false, NULL, 1, 1024, NAN},
    {"checkpoint-every", "N", "steps between checkpoints", OPTION_INTEGER, AT(checkpoint_every), false, false, NULL, 1,
     1e12, 500},
    {"log-every", "N", "steps between rows of history.csv", OPTION_INTEGER, AT(log_every), true, false, NULL, 1, 1e12,
     10},
    {"evaluate-every", "N", "steps between evaluations, by which the best parameters are kept", OPTION_INTEGER,
     AT(evaluate_every), true, false, NULL, 1, 1e12, 100},
    {"target-loss", "X", "stop when the sum of the losses is at most X (default: do not)", OPTION_REAL, AT(target_loss),
     false, false, NULL, 0, DBL_MAX, NAN},
    {"time-limit", "S", "stop after S seconds of this call (default: do not)", OPTION_REAL, AT(time_limit), false,
     false, NULL, 0, DBL_MAX, NAN},
    {"patience", "N", "stop after N steps without a better evaluation (default: do not)", OPTION_INTEGER, AT(patience),
     false, false, NULL, 1, 1e12, NAN},
    {"json", NULL, "print metrics.json on stdout, and nothing else there", OPTION_FLAG, AT(json), false, false, NULL, 0,
     0, 0},
    {"no-plots", NULL, "draw no pictures", OPTION_FLAG, AT(no_plots), false, false, NULL, 0, 0, 0},
    {"backend", "NAME", "where network and optimizer are computed: cpu; cuda, an NVIDIA GPU; auto, which is the CPU",
     OPTION_CHOICE, AT(backend), false, false, backend_name, 0, 0, SUT_BACKEND_AUTO},
    {"isa", "NAME", "instruction set: baseline, avx2, avx512, or auto: by the variable SUTURE_ISA, else the best",
     OPTION_CHOICE, AT(isa), false, false, isa_name, 0, 0, SUT_ISA_AUTO},
};

enum { N_ROWS = sizeof table / sizeof table[0] };
_Static_assert((int)N_ROWS <= (int)PINN_MAX_OPTIONS, "PINN_MAX_OPTIONS is too small");

int option_count(void)
{
    return N_ROWS;
}

const option_row *option_at(int index)
{
    return &table[index];
}

int option_find(const char *name)
{
    int i = 0;
    while (i < N_ROWS && strcmp(table[i].name, name) != 0)
        i++;
    return i;
}
