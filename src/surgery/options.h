/*
 * The table of options, see options.c.
 */
#ifndef SUT_SURGERY_OPTIONS_H
#define SUT_SURGERY_OPTIONS_H

#include "surgery/surgery.h"

typedef enum sut_option_kind { SUT_OPTION_REAL, SUT_OPTION_INTEGER, SUT_OPTION_FLAG, SUT_OPTION_ARRAY } sut_option_kind;

typedef struct sut_surgery_option_row {
    unsigned methods; /* bit k: method k reads it */
    const char *name;
    size_t offset; /* in sut_surgery_config; a double, an int, or (ARRAY) a pointer */
    sut_option_kind kind;
    double default_value, minimum, maximum;
    bool minimum_open, maximum_open;
    const char *const *choices; /* names of the values 0, 1, ..., then NULL; or NULL */
} sut_surgery_option_row;

extern const sut_surgery_option_row sut_surgery_options[];
extern const int sut_surgery_n_options;

/* Not for arrays. */
double sut_surgery_option_get(const sut_surgery_config *config, const sut_surgery_option_row *option);
void sut_surgery_option_put(sut_surgery_config *config, const sut_surgery_option_row *option, double value);

#endif /* SUT_SURGERY_OPTIONS_H */
