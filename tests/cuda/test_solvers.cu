/*
 * The m x m solvers on the device against the same source compiled for the CPU: every multiplier and weight, bit for bit, for
 * matrices of full and of deficient rank, rows of very different lengths, rows that are zero, and 1 to 64 losses.
 */
#include "check.h"
#include "exec.h"
#include "random.h"

#include "kernels/device.cuh"
#include "surgery/hull.h"

#include <cmath>
#include <vector>

namespace
{

__global__ void nnqp_kernel(const double *K, const double *b, int m, double *lambda, double *s, double *work,
                            int *rounds)
{
    *rounds = sut_nnqp_solve(K, b, nullptr, m, lambda, s, work, true);
}

__global__ void hull_kernel(const double *S, int m, double *w, double *work, int *rounds)
{
    *rounds = sut_hull(S, m, w, work);
}

/* One thread. */
template <class... P> void launch(void (*kernel)(P...), P... values)
{
    void *arguments[] = {&values...};
    CUDA(cudaLaunchKernel(kernel, dim3(1), dim3(1), arguments, 0, nullptr));
}

/* K = X X^T and b = X u of m rows in `rank` dimensions, opposed rows among them. */
void problem(int m, int kind, random_numbers *r, std::vector<double> *K, std::vector<double> *b)
{
    const int rank = kind == 1 ? (m + 1) / 2 : m + 3;
    std::vector<double> x((size_t)(m * rank)), u((size_t)rank);
    for (double &value : u)
        value = r->normal();
    for (int i = 0; i < m; ++i) {
        const double length = kind == 2 ? std::pow(10.0, 12 * r->uniform() - 6) : kind == 3 && i % 3 == 1 ? 0 : 1;
        for (int k = 0; k < rank; ++k) {
            double *const at = &x[(size_t)(i * rank + k)];
            *at = kind == 4 && i % 2 == 1 ? -at[-rank] * (1 + 1e-9 * r->normal()) : length * r->normal();
        }
    }
    K->assign((size_t)(m * m), 0);
    b->assign((size_t)m, 0);
    for (int i = 0; i < m; ++i) {
        for (int k = 0; k < rank; ++k)
            (*b)[(size_t)i] += x[(size_t)(i * rank + k)] * u[(size_t)k];
        for (int j = 0; j < m; ++j)
            for (int k = 0; k < rank; ++k)
                (*K)[(size_t)(i * m + j)] += x[(size_t)(i * rank + k)] * x[(size_t)(j * rank + k)];
    }
}

/* An array of doubles in device memory. */
struct device_numbers {
    double *at;
    explicit device_numbers(const std::vector<double> &from)
    {
        void *p = nullptr;
        CUDA(cudaMalloc(&p, from.size() * sizeof(double)));
        at = static_cast<double *>(p);
        CUDA(cudaMemcpy(at, from.data(), from.size() * sizeof(double), cudaMemcpyHostToDevice));
    }
    ~device_numbers()
    {
        CUDA(cudaFree(at));
    }
    std::vector<double> fetch(int n) const
    {
        std::vector<double> out((size_t)n);
        CUDA(cudaMemcpy(out.data(), at, out.size() * sizeof(double), cudaMemcpyDeviceToHost));
        return out;
    }
};

bool same(const std::vector<double> &x, const std::vector<double> &y)
{
    return memcmp(x.data(), y.data(), x.size() * sizeof(double)) == 0;
}

int rounds_of(const int *rounds)
{
    int value = 0;
    CUDA(cudaMemcpy(&value, rounds, sizeof value, cudaMemcpyDeviceToHost));
    return value;
}

void compare(int m, int kind, random_numbers *r, int *rounds)
{
    const size_t n = (size_t)m;
    std::vector<double> K, b, lambda(n), s(n), w(n), work(SUT_HULL_WORK(m));
    problem(m, kind, r, &K, &b);
    const device_numbers on_K(K), on_b(b), on_lambda(lambda), on_s(s), on_w(w), on_work(work);

    const int expected = sut_nnqp_solve(K.data(), b.data(), nullptr, m, lambda.data(), s.data(), work.data(), true);
    launch(nnqp_kernel, static_cast<const double *>(on_K.at), static_cast<const double *>(on_b.at), m,
           static_cast<double *>(on_lambda.at), static_cast<double *>(on_s.at), static_cast<double *>(on_work.at),
           rounds);
    CUDA(cudaDeviceSynchronize());
    CHECK(rounds_of(rounds) == expected && expected >= 0, "m = %d, kind %d: %d rounds, the CPU's %d", m, kind,
          rounds_of(rounds), expected);
    CHECK(same(on_lambda.fetch(m), lambda) && same(on_s.fetch(m), s), "m = %d, kind %d: multipliers differ", m, kind);

    const int hull = sut_hull(K.data(), m, w.data(), work.data());
    launch(hull_kernel, static_cast<const double *>(on_K.at), m, static_cast<double *>(on_w.at),
           static_cast<double *>(on_work.at), rounds);
    CUDA(cudaDeviceSynchronize());
    CHECK(rounds_of(rounds) == hull && hull >= 0, "m = %d, kind %d: %d rounds, the CPU's %d", m, kind,
          rounds_of(rounds), hull);
    CHECK(same(on_w.fetch(m), w), "m = %d, kind %d: weights differ", m, kind);
}

} // namespace

int main()
{
    random_numbers r(11);
    void *rounds = nullptr;
    CUDA(cudaMalloc(&rounds, sizeof(int)));
    for (int m = 1; m <= 10; ++m)
        for (int kind = 0; kind < 5; ++kind)
            for (int round = 0; round < 20; ++round)
                compare(m, kind, &r, static_cast<int *>(rounds));
    for (int kind = 0; kind < 5; ++kind)
        compare(SUT_MAX_LOSSES, kind, &r, static_cast<int *>(rounds));
    CUDA(cudaFree(rounds));
    CHECK(exec::allocations() == 0, "%d allocations left", exec::allocations());
    return check::finish("solvers");
}
