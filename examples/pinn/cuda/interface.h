/*
 * What suture-pinn finds in libsuture_pinn_cuda: losses and gradients of a step, and the network's values, computed on an
 * NVIDIA GPU. The program opens the library at run time (../device.c) and hands it points; everything random, the scores and
 * the files stay where they are.
 *
 * One object is one network on the device that is current when it is made. It has a stream of its own, on which everything
 * below is queued; a CUDA context of libsuture is given the same stream, so that a step follows its gradients without waiting.
 * Functions that return bool say with false that something failed: error() has the sentence, and nothing that follows works.
 * One thread at a time.
 */
#ifndef PINN_CUDA_INTERFACE_H
#define PINN_CUDA_INTERFACE_H

#include "network.h"

#include <stdint.h>

#define PINN_CUDA_VERSION 1 /* of this interface */
#define PINN_CUDA_ENTRY pinn_cuda_library_1

enum {
    PINN_CUDA_TERMS = 3,
    PINN_CUDA_SLOTS = 2 /* sets of points: one is drawn while the other is at work */
};

typedef struct pinn_cuda pinn_cuda;

typedef struct pinn_cuda_config {
    const char *problem; /* whose residual; by name */
    net_shape shape;
    net_real real;
    double kappa[NET_MAX_INPUTS];
} pinn_cuda_config;

/* A set of points, see pinn_term in problem.h. */
typedef struct pinn_cuda_term {
    int n_points;
    bool derivatives; /* residuals of the problem, from all channels; else value - target for each output */
    int loss;         /* to which it belongs; -1: none */
    double scale;     /* weight of a squared residual in that loss */
} pinn_cuda_term;

typedef struct pinn_cuda_library {
    int version;
    const char *suture; /* sut_version() of the build */

    /* NULL: `why` says what is missing. `config` is copied. */
    pinn_cuda *(*create)(const pinn_cuda_config *config, char *why, size_t size);
    void (*destroy)(pinn_cuda *network);
    const char *(*error)(const pinn_cuda *network);       /* "" while nothing has failed */
    const char *(*device_name)(const pinn_cuda *network); /* for people */
    void *(*stream)(const pinn_cuda *network);            /* a cudaStream_t */

    /* Device memory, zeroed; copies wait. */
    void *(*allocate)(pinn_cuda *network, size_t size);
    void (*release)(pinn_cuda *network, void *memory);
    bool (*upload)(pinn_cuda *network, void *to, const void *from, size_t size);
    bool (*download)(pinn_cuda *network, void *to, const void *from, size_t size);

    /*
     * The terms of a step, up to PINN_CUDA_TERMS, and n_losses rows of gradients; may be called again.
     * points, targets: host memory of a slot, to be filled before `gradients`: [input][point] of a term, and of one without
     * derivatives [output][point].
     */
    bool (*set_terms)(pinn_cuda *network, const pinn_cuda_term *terms, int n_terms, int n_losses);
    double *(*points)(pinn_cuda *network, int slot, int term);
    double *(*targets)(pinn_cuda *network, int slot, int term);

    /*
     * Queues losses and gradients of the slot's points. theta: parameters in device memory; gradients: n_losses rows in device
     * memory, of the network's type. `squares` then waits for the sums of squared residuals of each term, which are ready
     * before the gradients are; the slot may be filled again after it.
     */
    bool (*gradients)(pinn_cuda *network, int slot, const void *theta, void *const *gradients);
    bool (*squares)(pinn_cuda *network, double *squares);

    /* The grid of an evaluation, x[input * n + k]; copied. Then its values, value[output * n + k]; theta in host memory. */
    bool (*set_grid)(pinn_cuda *network, int64_t n, const double *x);
    bool (*evaluate)(pinn_cuda *network, const void *theta, double *value);
} pinn_cuda_library;

typedef const pinn_cuda_library *(*pinn_cuda_entry)(void);

#endif
