/*
 * sum, mean, fixed: weights that do not look at the gradients.
 */
#include "surgery/surgery.h"

SUT_PORTABLE sut_status sut_surgery_sum(const sut_surgery_problem *problem, sut_surgery_output *out)
{
    for (int i = 0; i < problem->m; ++i)
        out->weights[i] = 1.0;
    return SUT_OK;
}

SUT_PORTABLE sut_status sut_surgery_mean(const sut_surgery_problem *problem, sut_surgery_output *out)
{
    for (int i = 0; i < problem->m; ++i)
        out->weights[i] = 1.0 / problem->m;
    return SUT_OK;
}

SUT_PORTABLE sut_status sut_surgery_fixed(const sut_surgery_problem *problem, sut_surgery_output *out)
{
    for (int i = 0; i < problem->m; ++i)
        out->weights[i] = problem->config->preference[i];
    return SUT_OK;
}
