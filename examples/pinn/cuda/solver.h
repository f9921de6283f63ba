/*
 * One network on a device, behind interface.h: its memory, and the order of the launches. Layer l's input is an array of
 * (units + 1) rows of columns (columns.h); the extra row makes the bias's gradient a part of the weights' product.
 */
#ifndef PINN_CUDA_SOLVER_H
#define PINN_CUDA_SOLVER_H

#include "cuda/interface.h"

pinn_cuda *pinn_cuda_create(const pinn_cuda_config *config, char *why, size_t size);
void pinn_cuda_destroy(pinn_cuda *network);
const char *pinn_cuda_error(const pinn_cuda *network);
const char *pinn_cuda_device_name(const pinn_cuda *network);
void *pinn_cuda_stream(const pinn_cuda *network);
void *pinn_cuda_allocate(pinn_cuda *network, size_t size);
void pinn_cuda_release(pinn_cuda *network, void *memory);
bool pinn_cuda_upload(pinn_cuda *network, void *to, const void *from, size_t size);
bool pinn_cuda_download(pinn_cuda *network, void *to, const void *from, size_t size);
bool pinn_cuda_set_terms(pinn_cuda *network, const pinn_cuda_term *terms, int n_terms, int n_losses);
double *pinn_cuda_points(pinn_cuda *network, int slot, int term);
double *pinn_cuda_targets(pinn_cuda *network, int slot, int term);
bool pinn_cuda_gradients(pinn_cuda *network, int slot, const void *theta, void *const *gradients);
bool pinn_cuda_squares(pinn_cuda *network, double *squares);
bool pinn_cuda_set_grid(pinn_cuda *network, int64_t n, const double *x);
bool pinn_cuda_evaluate(pinn_cuda *network, const void *theta, double *value);

#endif // PINN_CUDA_SOLVER_H
