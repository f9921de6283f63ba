/* The generator of section 1.1. Its orders are also held against the golden file. */
#include "support/surgery.h"
#include "surgery/draws.h"

static void known_draws(void **state)
{
    (void)state;
    /* SplitMix64 with state 0: the first outputs of the published generator. */
    sut_draws draws = sut_draws_begin(0, 0);
    assert_true(sut_draw(&draws) == UINT64_C(0xE220A8397B1DCDAF));
    assert_true(sut_draw(&draws) == UINT64_C(0x6E789E6AA1B965F4));
    assert_true(sut_draw(&draws) == UINT64_C(0x06C45D188009454F));
}

static void integers_below_a_bound(void **state)
{
    (void)state;
    sut_draws draws = sut_draws_begin(7, 1);
    int seen[5] = {0};
    for (int k = 0; k < 5000; ++k) {
        const uint64_t x = sut_draw_below(&draws, 5);
        assert_true(x < 5);
        ++seen[x];
    }
    for (int k = 0; k < 5; ++k)
        assert_true(seen[k] > 850 && seen[k] < 1150); /* 1000 +- 5 sigma */
    assert_true(sut_draw_below(&draws, 1) == 0);
}

static void orders_are_permutations(void **state)
{
    (void)state;
    int first[SUT_MAX_LOSSES] = {0};
    for (int m = 1; m <= SUT_MAX_LOSSES; ++m) {
        sut_draws draws = sut_draws_begin(3, (uint64_t)m);
        int order[SUT_MAX_LOSSES];
        uint64_t seen = 0;
        sut_draw_order(&draws, m, order);
        for (int k = 0; k < m; ++k) {
            assert_true(order[k] >= 0 && order[k] < m);
            seen |= (uint64_t)1 << order[k];
        }
        assert_true(seen == (m == 64 ? UINT64_MAX : ((uint64_t)1 << m) - 1));
    }
    /* Every position sees every entry. */
    sut_draws draws = sut_draws_begin(3, 0);
    for (int k = 0; k < 600; ++k) {
        int order[6];
        sut_draw_order(&draws, 6, order);
        ++first[order[0]];
    }
    for (int k = 0; k < 6; ++k)
        assert_true(first[k] > 50 && first[k] < 150);
}

static void seed_and_counter_matter(void **state)
{
    (void)state;
    sut_draws a = sut_draws_begin(1, 0), b = sut_draws_begin(2, 0), c = sut_draws_begin(1, 1),
              again = sut_draws_begin(1, 0);
    const uint64_t x = sut_draw(&a);
    assert_true(x != sut_draw(&b) && x != sut_draw(&c) && x == sut_draw(&again));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_draws),
        cmocka_unit_test(integers_below_a_bound),
        cmocka_unit_test(orders_are_permutations),
        cmocka_unit_test(seed_and_counter_matter),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
