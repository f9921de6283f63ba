// The same library from C++17: the projection of (-1, 1) onto the cone of the gradient (1, 0) is (0, 1).
#include <suture/suture.h>

#include <cstdio>

int main()
{
    const double g[2] = {1, 0}, u[2] = {-1, 1};
    double p[2] = {9, 9};
    const void *grads[1] = {g};
    sut_context *ctx = nullptr;
    sut_status status = sut_context_create(&ctx, nullptr);
    if (status == SUT_OK)
        status = sut_cone_project(ctx, nullptr, grads, 1, 2, SUT_DTYPE_F64, u, nullptr, p, nullptr);
    if (status != SUT_OK)
        std::printf("%s: %s\n", sut_status_string(status), sut_context_last_error(ctx));
    sut_context_destroy(ctx);
    std::printf("suture %s: p = (%g, %g)\n", sut_version(), p[0], p[1]);
    return status != SUT_OK || p[0] != 0 || p[1] != 1;
}
