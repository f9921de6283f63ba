/* The nearest name to a misspelt one. */
#include "options.h"

#include <stdio.h>
#include <string.h>

/* Levenshtein 1966: insertions, deletions and substitutions that make b of a. */
static int distance(const char *a, const char *b)
{
    enum { LONGEST = 64 };
    const int n = (int)strlen(a), m = (int)strlen(b);
    if (n >= LONGEST || m >= LONGEST)
        return LONGEST;
    int row[LONGEST];
    for (int j = 0; j <= m; j++)
        row[j] = j;
    for (int i = 1; i <= n; i++) {
        int diagonal = row[0];
        row[0] = i;
        for (int j = 1; j <= m; j++) {
            const int substitute = diagonal + (a[i - 1] != b[j - 1]);
            diagonal = row[j];
            const int shift = (row[j] < row[j - 1] ? row[j] : row[j - 1]) + 1;
            row[j] = substitute < shift ? substitute : shift;
        }
    }
    return row[m];
}

void pinn_suggest(const char *word, const char *const *names, int n_names)
{
    int best = -1, best_distance = 0;
    for (int i = 0; i < n_names; i++) {
        const int d = distance(word, names[i]);
        if (best < 0 || d < best_distance)
            best = i, best_distance = d;
    }
    const int length = (int)strlen(word);
    if (best >= 0 && best_distance <= (length < 6 ? 2 : length / 3)) {
        fprintf(stderr, "; did you mean %s?\n", names[best]);
        return;
    }
    fprintf(stderr, "; known are");
    for (int i = 0; i < n_names; i++)
        fprintf(stderr, "%s %s", i ? "," : "", names[i]);
    fprintf(stderr, "\n");
}
