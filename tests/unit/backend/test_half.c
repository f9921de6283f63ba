/*
 * Conversions of bfloat16 and binary16, bit for bit against a reference that knows nothing of tricks with exponents: it
 * decodes by the definition of the format, and rounds by looking for the nearest value.
 */
#include "support/step.h"

#include "backend/half.h"

typedef struct format {
    const char *name;
    int exponent_bits, mantissa_bits;
    float (*from)(uint16_t);
    uint16_t (*to)(float);
} format;

static const format formats[] = {{"bf16", 8, 7, sut_from_bf16, sut_to_bf16}, {"f16", 5, 10, sut_from_f16, sut_to_f16}};

/* By the definition: sign, biased exponent, mantissa; denormals, infinities, NaN. */
static double decode(const format *f, uint16_t bits)
{
    const int bias = (1 << (f->exponent_bits - 1)) - 1, top = (1 << f->exponent_bits) - 1;
    const int exponent = bits >> f->mantissa_bits & top, mantissa = bits & ((1 << f->mantissa_bits) - 1);
    const double sign = bits >> 15 ? -1 : 1;
    if (exponent == top)
        return mantissa ? NAN : sign * INFINITY;
    if (exponent == 0)
        return sign * ldexp(mantissa, 1 - bias - f->mantissa_bits);
    return sign * ldexp(mantissa + (1 << f->mantissa_bits), exponent - bias - f->mantissa_bits);
}

/* Nearest, ties to the even pattern. Patterns of one sign are ordered like their values; the first pattern past the
 * largest finite one stands for the power of two that would come next. */
static uint16_t encode(const format *f, float x)
{
    const int infinity = ((1 << f->exponent_bits) - 1) << f->mantissa_bits;
    const double beyond = 2 * decode(f, (uint16_t)(infinity - (1 << f->mantissa_bits)));
    const double magnitude = fabs((double)x);
    const uint16_t sign = signbit(x) ? 0x8000 : 0;
    if (magnitude >= beyond)
        return (uint16_t)(sign | infinity);
    int low = 0, high = infinity; /* value(low) <= magnitude < value(high) */
    while (high - low > 1) {
        const int middle = (low + high) / 2;
        if (decode(f, (uint16_t)middle) <= magnitude)
            low = middle;
        else
            high = middle;
    }
    const double below = magnitude - decode(f, (uint16_t)low);
    const double above = (high == infinity ? beyond : decode(f, (uint16_t)high)) - magnitude;
    const int nearest = below < above ? low : above < below ? high : low % 2 ? high : low;
    return (uint16_t)(sign | nearest);
}

static void compare(const format *f, float x)
{
    const uint16_t got = f->to(x), expected = encode(f, x);
    if (got != expected)
        fail_msg("%s: %a (bits %08x) becomes %04x, expected %04x", f->name, (double)x, sut_f32_to_bits(x), got,
                 expected);
}

static void every_pattern(void **state)
{
    (void)state;
    for (int k = 0; k < 2; ++k)
        for (int bits = 0; bits < 65536; ++bits) {
            const format *const f = &formats[k];
            const float x = f->from((uint16_t)bits);
            const double expected = decode(f, (uint16_t)bits);
            if (isnan(expected)) {
                assert_true(isnan(x));
                assert_true(isnan(f->from(f->to(x)))); /* stays NaN */
                assert_int_equal(f->to(x) >> 15, bits >> 15);
                continue;
            }
            if ((double)x != expected || (signbit(x) != 0) != (bits >> 15))
                fail_msg("%s: %04x is %a, expected %a", f->name, (unsigned)bits, (double)x, expected);
            assert_int_equal(f->to(x), bits); /* and back */
        }
}

/* Between every two neighbours: the middle (a tie), and the floats right beside it. */
static void every_tie(void **state)
{
    (void)state;
    for (int k = 0; k < 2; ++k) {
        const format *const f = &formats[k];
        const int infinity = ((1 << f->exponent_bits) - 1) << f->mantissa_bits;
        for (int bits = 0; bits < infinity; ++bits) {
            const double low = decode(f, (uint16_t)bits);
            const double high = bits + 1 == infinity ? 2 * decode(f, (uint16_t)(infinity - (1 << f->mantissa_bits)))
                                                     : decode(f, (uint16_t)(bits + 1));
            const float middle = (float)(0.5 * (low + high)); /* exact where f32 has room for it */
            const float places[] = {middle, nextafterf(middle, 0), nextafterf(middle, INFINITY)};
            for (int p = 0; p < 3; ++p) {
                compare(f, places[p]);
                compare(f, -places[p]);
            }
        }
    }
}

static void many_floats(void **state)
{
    (void)state;
    test_random r = {21};
    const float special[] = {0.0f,         -0.0f,           INFINITY, -INFINITY,       0x1p-149f,  -0x1p-149f,
                             0x1p-126f,    0x1.fffffep127f, 65504.0f, 65519.0f,        65519.996f, 65520.0f,
                             65536.0f,     0x1p-24f,        0x1p-25f, 0x1.000002p-25f, 0x1p-14f,   0x1p-15f,
                             0x1.ffcp-15f, 0x1.fffp-15f,    1.0f,     0x1.008p0f,      0x1.018p0f, 0x1.01p0f};
    for (int k = 0; k < 2; ++k) {
        for (size_t i = 0; i < sizeof special / sizeof *special; ++i)
            compare(&formats[k], special[i]);
        for (int i = 0; i < STEP_ROUNDS(400000, 40000); ++i) {
            const float x = sut_bits_to_f32((uint32_t)(test_uniform(&r) * 4294967296.0));
            if (isnan(x))
                assert_true(isnan(formats[k].from(formats[k].to(x))));
            else
                compare(&formats[k], x);
        }
        /* Signalling and other payloads of NaN. */
        for (uint32_t payload = 1; payload < 0x800000u; payload = payload * 2 + 1) {
            assert_true(isnan(formats[k].from(formats[k].to(sut_bits_to_f32(0x7F800000u | payload)))));
            assert_true(isnan(formats[k].from(formats[k].to(sut_bits_to_f32(0xFF800000u | payload)))));
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_pattern),
        cmocka_unit_test(every_tie),
        cmocka_unit_test(many_floats),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
