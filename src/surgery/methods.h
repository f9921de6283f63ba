/*
 * The list of methods. The table (names, validation, documentation) and the switch that calls a method, on the host and on a
 * GPU, are made of it; a test holds it against the enum.
 */
#ifndef SUT_SURGERY_METHODS_H
#define SUT_SURGERY_METHODS_H

/* clang-format off */
/* ROW(enumerator, name, function, degree, sum_like, keeps_weights, uses_preference, needs_losses_hint, source), see
 * sut_surgery_row. */
#define SUT_SURGERY_METHODS(ROW) \
    ROW(SUT_SURGERY_SUM, "sum", sut_surgery_sum, 1, true, true, false, false, "") \
    ROW(SUT_SURGERY_MEAN, "mean", sut_surgery_mean, 1, false, true, false, false, "") \
    ROW(SUT_SURGERY_FIXED, "fixed", sut_surgery_fixed, 1, true, true, true, false, "") \
    ROW(SUT_SURGERY_CONFIG, "config", sut_surgery_config_solve, 1, true, false, true, false, \
        "Liu, Chu, Thuerey 2024, arXiv 2408.11104") \
    ROW(SUT_SURGERY_PCGRAD, "pcgrad", sut_surgery_pcgrad, 1, true, false, false, false, \
        "Yu et al. 2020, arXiv 2001.06782") \
    ROW(SUT_SURGERY_CAGRAD, "cagrad", sut_surgery_cagrad, 1, false, false, false, false, \
        "Liu, Liu, Jin, Stone, Liu 2021, arXiv 2110.14048") \
    ROW(SUT_SURGERY_IMTLG, "imtlg", sut_surgery_imtlg, 1, false, false, false, false, \
        "Liu et al. 2021, ICLR, OpenReview IMPnRXEWpvr") \
    ROW(SUT_SURGERY_ALIGNED_MTL, "aligned_mtl", sut_surgery_aligned_mtl, 1, false, false, true, false, \
        "Senushkin et al. 2023, arXiv 2305.19000") \
    ROW(SUT_SURGERY_UPGRAD, "upgrad", sut_surgery_upgrad, 1, false, false, true, false, \
        "Quinton, Rey 2024, arXiv 2406.16232") \
    ROW(SUT_SURGERY_DUALPROJ, "dualproj", sut_surgery_dualproj, 1, false, false, true, false, \
        "Lopez-Paz, Ranzato 2017, arXiv 1706.08840") \
    ROW(SUT_SURGERY_MGDA, "mgda", sut_surgery_mgda, 1, false, false, false, true, \
        "Desideri 2012; Sener, Koltun 2018, arXiv 1810.04650") \
    ROW(SUT_SURGERY_NASH, "nash", sut_surgery_nash, 0, false, false, false, false, \
        "Navon et al. 2022, arXiv 2202.01017") \
    ROW(SUT_SURGERY_SDMGRAD, "sdmgrad", sut_surgery_sdmgrad, 1, false, false, false, false, \
        "Xiao, Ban, Ji 2023, arXiv 2305.18409")
/* clang-format on */

#endif /* SUT_SURGERY_METHODS_H */
