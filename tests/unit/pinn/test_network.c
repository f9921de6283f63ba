/*
 * The network's derivatives in the inputs and its reverse sweep, against finite differences, for every set of kernels and
 * for shapes that leave rows, columns, lanes and blocks over.
 *
 * Differences are of fourth order in double, so their error is h^4 times a fifth or sixth derivative (of order 1 to 100
 * here) plus rounding over h or h^2: below 1e-9 for first derivatives (h = 1e-3), 1e-6 for second ones (h = 1e-2).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "kernels.h"

#include <math.h>
#include <string.h>

static const net_shape shapes[] = {{1, 5, 1, 1},  {2, 8, 2, 1}, {3, 7, 3, 2},
                                   {4, 11, 2, 5}, {5, 6, 2, 3}, {2, 50, 5, 1}};

enum {
    N_SHAPES = sizeof shapes / sizeof shapes[0],
    POINTS = 29,
    STRIDE = 40,
    ROWS = NET_MAX_OUTPUTS * NET_MAX_CHANNELS
};

static const double kappa[NET_MAX_INPUTS] = {0.7, -0.4, 1.3, 0, 0.25};

typedef struct fixture {
    const net_kernels *kernels;
    net_shape shape;
    double *theta;
    void *typed_theta, *packed;
    net_tile *tile;
    double x[NET_MAX_INPUTS * STRIDE];
} fixture;

static void set_theta(fixture *f)
{
    net_store(f->kernels->real, f->typed_theta, 0, f->theta, net_parameters(&f->shape));
    f->kernels->pack(&f->shape, f->typed_theta, f->packed);
}

static fixture make(const net_kernels *kernels, const net_shape *shape)
{
    fixture f = {.kernels = kernels, .shape = *shape};
    const size_t n = net_parameters(shape);
    f.theta = random_numbers(11, n, shape->width > 20 ? 0.3 : 0.9);
    f.typed_theta = typed(kernels, f.theta, n);
    f.packed = aligned_alloc(NET_LINE, (kernels->packed_size(shape) + NET_LINE - 1) / NET_LINE * NET_LINE);
    f.tile = net_tile_create(shape, shape->inputs + 2);
    assert_true(f.theta && f.typed_theta && f.packed && f.tile);
    set_theta(&f);
    double *x = random_numbers(12, NET_MAX_INPUTS * STRIDE, 1);
    assert_non_null(x);
    memcpy(f.x, x, sizeof f.x);
    free(x);
    return f;
}

static void destroy(fixture *f)
{
    free(f->theta);
    free(f->typed_theta);
    free(f->packed);
    net_tile_destroy(f->tile);
}

static void forward(fixture *f, int channels, const double *x, int count, double *values)
{
    f->tile->channels = channels;
    f->kernels->put_points(&f->shape, f->tile, x, count, STRIDE);
    f->kernels->forward(&f->shape, kappa, f->typed_theta, f->packed, f->tile);
    f->kernels->get_output(&f->shape, f->tile, values, count, STRIDE);
}

/* Gradient of sum_row,k adjoint[row][k] value[row][k]. */
static void reverse(fixture *f, const double *adjoint, int count, double *gradient)
{
    f->kernels->put_adjoint(&f->shape, f->tile, adjoint, count, STRIDE);
    memset(gradient, 0, net_parameters(&f->shape) * sizeof *gradient);
    f->kernels->reverse(&f->shape, kappa, f->packed, f->tile, gradient);
}

static void assert_near(double found, double expected, double allowed)
{
    if (!(fabs(found - expected) <= allowed))
        fail_msg("%.12g instead of %.12g, allowed error %.3g", found, expected, allowed);
}

static double largest(const double *x, size_t n)
{
    double size = 0;
    for (size_t i = 0; i < n; i++)
        size = fmax(size, fabs(x[i]));
    return size;
}

/* Values at x + h e_i of the value channel alone. */
static void shifted(fixture *f, int input, double h, double *values)
{
    double x[NET_MAX_INPUTS * STRIDE];
    memcpy(x, f->x, sizeof x);
    for (int k = 0; k < POINTS; k++)
        x[input * STRIDE + k] += h;
    forward(f, 1, x, POINTS, values);
}

static void derivatives_in_the_inputs(void **state)
{
    (void)state;
    static double values[ROWS * STRIDE], second[NET_MAX_OUTPUTS * STRIDE], at[4][NET_MAX_OUTPUTS * STRIDE],
        centre[NET_MAX_OUTPUTS * STRIDE];
    const net_kernels *kernels;
    for (int s = 0; s < N_SHAPES; s++)
        for (int i = 0; (kernels = kernels_at(i)) != NULL; i++) {
            if (kernels->real != NET_F64)
                continue;
            fixture f = make(kernels, &shapes[s]);
            const int channels = f.shape.inputs + 2;
            forward(&f, channels, f.x, POINTS, values);
            forward(&f, 1, f.x, POINTS, centre);
            memset(second, 0, sizeof second);
            for (int input = 0; input < f.shape.inputs; input++)
                for (int order = 1; order <= 2; order++) {
                    const double h = order == 1 ? 1e-3 : 1e-2;
                    for (int side = 0; side < 4; side++)
                        shifted(&f, input, h * (side < 2 ? side - 2 : side - 1), at[side]);
                    for (int o = 0; o < f.shape.outputs; o++)
                        for (int k = 0; k < POINTS; k++) {
                            const double m2 = at[0][o * STRIDE + k], m1 = at[1][o * STRIDE + k],
                                         p1 = at[2][o * STRIDE + k], p2 = at[3][o * STRIDE + k],
                                         c = centre[o * STRIDE + k];
                            if (order == 1)
                                assert_near(values[(o * channels + 1 + input) * STRIDE + k],
                                            (m2 - 8 * m1 + 8 * p1 - p2) / (12 * h), 1e-8);
                            else
                                second[o * STRIDE + k] +=
                                    kappa[input] * (-m2 + 16 * m1 - 30 * c + 16 * p1 - p2) / (12 * h * h);
                        }
                }
            for (int o = 0; o < f.shape.outputs; o++)
                for (int k = 0; k < POINTS; k++) {
                    assert_near(values[o * channels * STRIDE + k], centre[o * STRIDE + k], 1e-14);
                    assert_near(values[(o * channels + channels - 1) * STRIDE + k], second[o * STRIDE + k], 1e-5);
                }
            destroy(&f);
        }
}

static double objective(fixture *f, int channels, const double *weights)
{
    static double values[ROWS * STRIDE];
    double sum = 0;
    forward(f, channels, f->x, POINTS, values);
    for (int row = 0; row < f->shape.outputs * channels; row++)
        for (int k = 0; k < POINTS; k++)
            sum += weights[row * STRIDE + k] * values[row * STRIDE + k];
    return sum;
}

static void gradient_in_the_parameters(void **state)
{
    (void)state;
    static double values[ROWS * STRIDE];
    double *weights = random_numbers(13, ROWS * STRIDE, 1);
    const net_kernels *kernels;
    for (int s = 0; s < N_SHAPES; s++)
        for (int i = 0; (kernels = kernels_at(i)) != NULL; i++)
            for (int all = 0; all < 2; all++) {
                if (kernels->real != NET_F64)
                    continue;
                fixture f = make(kernels, &shapes[s]);
                const int channels = all ? f.shape.inputs + 2 : 1;
                const size_t n = net_parameters(&f.shape), stride = n > 1000 ? 131 : 1;
                double *gradient = malloc(n * sizeof *gradient);
                assert_non_null(gradient);
                forward(&f, channels, f.x, POINTS, values);
                reverse(&f, weights, POINTS, gradient);
                const double size = largest(gradient, n), h = 1e-3;
                for (size_t j = 0; j < n; j += stride) {
                    const double theta = f.theta[j];
                    double at[4];
                    for (int side = 0; side < 4; side++) {
                        f.theta[j] = theta + h * (side < 2 ? side - 2 : side - 1);
                        set_theta(&f);
                        at[side] = objective(&f, channels, weights);
                    }
                    f.theta[j] = theta;
                    assert_near(gradient[j], (at[0] - 8 * at[1] + 8 * at[2] - at[3]) / (12 * h), 1e-8 * size);
                }
                free(gradient);
                destroy(&f);
            }
    free(weights);
}

/* f64 kernels differ in the order of sums alone, f32 ones by rounding to 24 bits. */
static void kernels_agree(void **state)
{
    (void)state;
    static double values[ROWS * STRIDE], reference[ROWS * STRIDE];
    double *weights = random_numbers(13, ROWS * STRIDE, 1);
    for (int s = 0; s < N_SHAPES; s++) {
        const size_t n = net_parameters(&shapes[s]);
        double *expected = malloc(n * sizeof *expected), *gradient = malloc(n * sizeof *gradient);
        assert_true(expected && gradient);
        fixture base = make(net_kernels_find(NET_F64, "baseline"), &shapes[s]);
        const int channels = base.shape.inputs + 2;
        const size_t rows = (size_t)(base.shape.outputs * channels);
        forward(&base, channels, base.x, POINTS, reference);
        reverse(&base, weights, POINTS, expected);
        const double value_size = largest(reference, rows * STRIDE), size = largest(expected, n);
        const net_kernels *kernels;
        for (int i = 0; (kernels = kernels_at(i)) != NULL; i++) {
            fixture f = make(kernels, &shapes[s]);
            const double tolerance = kernels->real == NET_F64 ? 1e-13 : 2e-5;
            forward(&f, channels, f.x, POINTS, values);
            reverse(&f, weights, POINTS, gradient);
            for (size_t row = 0; row < rows; row++)
                for (int k = 0; k < POINTS; k++)
                    assert_near(values[row * STRIDE + (size_t)k], reference[row * STRIDE + (size_t)k],
                                tolerance * value_size);
            for (size_t j = 0; j < n; j++)
                assert_near(gradient[j], expected[j], tolerance * size);
            destroy(&f);
        }
        destroy(&base);
        free(expected);
        free(gradient);
    }
    free(weights);
}

/* The lanes past the last point repeat it and must not count: a tile of k points is k tiles of one point. */
static void tiles_add_up(void **state)
{
    (void)state;
    static double values[ROWS * STRIDE];
    double *weights = random_numbers(13, ROWS * STRIDE, 1);
    const net_kernels *kernels;
    for (int i = 0; (kernels = kernels_at(i)) != NULL; i++) {
        fixture f = make(kernels, &shapes[2]);
        const int channels = f.shape.inputs + 2, full = NET_TILE_BLOCKS * kernels->lanes;
        const int count = full < STRIDE ? full : STRIDE;
        const size_t n = net_parameters(&f.shape);
        double *whole = malloc(n * sizeof *whole), *sum = calloc(n, sizeof *sum), *one = malloc(n * sizeof *one);
        assert_true(whole && sum && one);
        forward(&f, channels, f.x, count, values);
        reverse(&f, weights, count, whole);
        for (int k = 0; k < count; k++) {
            forward(&f, channels, f.x + k, 1, values);
            reverse(&f, weights + k, 1, one);
            for (size_t j = 0; j < n; j++)
                sum[j] += one[j];
        }
        for (size_t j = 0; j < n; j++)
            assert_near(sum[j], whole[j], (kernels->real == NET_F64 ? 1e-13 : 1e-5) * largest(whole, n));
        free(whole);
        free(sum);
        free(one);
        destroy(&f);
    }
    free(weights);
}

/* One unit of weight 1: the network is tanh. Distance to the C library's in units of the last place of the result. */
static void tanh_is_accurate(void **state)
{
    (void)state;
    const net_shape shape = {1, 1, 1, 1};
    const net_kernels *kernels;
    for (int i = 0; (kernels = kernels_at(i)) != NULL; i++) {
        fixture f = make(kernels, &shape);
        f.theta[0] = f.theta[2] = 1; /* weights; biases 0 */
        f.theta[1] = f.theta[3] = 0;
        set_theta(&f);
        const bool f32 = kernels->real == NET_F32;
        double x[STRIDE], y[STRIDE];
        for (int j = 0; j < 4000; j++) {
            for (int k = 0; k < POINTS; k++) {
                /* Magnitudes from 1e-12 to 40, both signs. */
                const double u = pinn_uniform(1, (uint64_t)(j * POINTS + k));
                x[k] = (k % 2 ? -1 : 1) * exp(-27.6 + 31.3 * u);
                x[k] = f32 ? (double)(float)x[k] : x[k];
            }
            forward(&f, 1, x, POINTS, y);
            for (int k = 0; k < POINTS; k++) {
                const long double exact = tanhl((long double)x[k]);
                const double near = fabs((double)exact);
                const double ulp = f32 ? (double)(nextafterf((float)near, 2) - (float)near) : nextafter(near, 2) - near;
                if (!(fabsl((long double)y[k] - exact) <= 4 * (long double)ulp) || fabs(y[k]) > 1)
                    fail_msg("%s, %s: tanh(%.17g) = %.17g", f32 ? "f32" : "f64", kernels->isa, x[k], y[k]);
            }
        }
        const double special[] = {0, INFINITY, -INFINITY, NAN, 1e-40, 9.02, 19.07, -1e30};
        memcpy(x, special, sizeof special);
        forward(&f, 1, x, 8, y);
        assert_true(y[0] == 0 && y[1] == 1 && y[2] == -1 && isnan(y[3]) && y[7] == -1);
        assert_near(y[4], 1e-40, 1e-44);
        assert_near(y[5], tanh(9.02), 1e-6);
        assert_near(y[6], 1, 1e-15);
        destroy(&f);
    }
}

static void names_of_instruction_sets(void **state)
{
    (void)state;
    assert_non_null(net_kernels_find(NET_F32, "baseline"));
    assert_null(net_kernels_find(NET_F32, "mmx"));
    assert_ptr_equal(net_kernels_find(NET_F64, NULL), net_kernels_find(NET_F64, net_kernels_find(NET_F64, NULL)->isa));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(derivatives_in_the_inputs),
        cmocka_unit_test(gradient_in_the_parameters),
        cmocka_unit_test(kernels_agree),
        cmocka_unit_test(tiles_add_up),
        cmocka_unit_test(tanh_is_accurate),
        cmocka_unit_test(names_of_instruction_sets),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
