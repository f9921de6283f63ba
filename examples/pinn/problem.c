/* The table of problems, and what they share: splits, network, initial parameters, evaluation grid. */
#include "problem.h"

#include <math.h>
#include <string.h>

extern const pinn_problem pinn_burgers;

static const pinn_problem *const problems[] = {&pinn_burgers};

enum { WIDTH = 50, HIDDEN = 5, STREAM_INITIALISE = 1 };

const pinn_problem *pinn_problem_at(int index)
{
    return index >= 0 && index < (int)(sizeof problems / sizeof problems[0]) ? problems[index] : NULL;
}

const pinn_problem *pinn_problem_find(const char *name)
{
    const pinn_problem *p;
    for (int i = 0; (p = pinn_problem_at(i)) != NULL; i++)
        if (!strcmp(p->name, name))
            return p;
    return NULL;
}

int pinn_problem_split(const pinn_problem *problem, int n_losses, pinn_loss *losses)
{
    if (n_losses == 2) {
        losses[0] = (pinn_loss){"interior", 1, {0}};
        losses[1] =
            problem->n_terms == 3 ? (pinn_loss){"boundary_initial", 2, {1, 2}} : (pinn_loss){"boundary", 1, {1}};
        return 2;
    }
    if (n_losses == 3 && problem->n_terms == 3) {
        for (int i = 0; i < 3; i++)
            losses[i] = (pinn_loss){problem->terms[i].name, 1, {i}};
        return 3;
    }
    return 0;
}

net_shape pinn_problem_shape(const pinn_problem *problem)
{
    return (net_shape){.inputs = problem->n_inputs, .width = WIDTH, .hidden = HIDDEN, .outputs = problem->n_outputs};
}

void pinn_initialise(const net_shape *shape, uint64_t seed, double *theta)
{
    const uint64_t stream = pinn_stream(seed, STREAM_INITIALISE, 0);
    uint64_t index = 0;
    for (int layer = 0; layer <= shape->hidden; layer++) {
        const int in = net_layer_inputs(shape, layer), out = net_layer_outputs(shape, layer);
        const double deviation = sqrt(2.0 / (in + out));
        for (int i = 0; i < in * out; i++, index += 2) {
            /* Box and Muller 1958; 1 - u is in (0, 1]. */
            const double radius = sqrt(-2 * log(1 - pinn_uniform(stream, index)));
            *theta++ = deviation * radius * cos(2 * M_PI * pinn_uniform(stream, index + 1));
        }
        for (int i = 0; i < out; i++)
            *theta++ = 0.001;
    }
}

int64_t pinn_grid_size(const pinn_problem *problem)
{
    int64_t size = 1;
    for (int i = 0; i < problem->n_inputs; i++)
        size *= problem->grid[i];
    return size;
}

static void position_of(const pinn_problem *problem, int64_t index, int *position)
{
    for (int i = problem->n_inputs - 1; i >= 0; i--) {
        position[i] = (int)(index % problem->grid[i]);
        index /= problem->grid[i];
    }
}

void pinn_grid_at(const pinn_problem *problem, int64_t index, double *x)
{
    int position[NET_MAX_INPUTS];
    position_of(problem, index, position);
    problem->grid_point(position, x);
}

bool pinn_grid_shown(const pinn_problem *problem, int64_t index)
{
    int position[NET_MAX_INPUTS];
    position_of(problem, index, position);
    for (int i = 0; i < problem->n_inputs; i++)
        if (i != problem->shown[0] && i != problem->shown[1] && position[i] != problem->shown_at[i])
            return false;
    return true;
}
