/* Stands in for OpenBLAS where the library is built without it: what sut_capabilities() asks. */
char *openblas_get_config(void);
char *openblas_get_corename(void);

char *openblas_get_config(void)
{
    return "none";
}

char *openblas_get_corename(void)
{
    return "none";
}
