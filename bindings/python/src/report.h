/*
 * The library's reports as Python objects: one attribute per member, to_dict(), and a text for people. The members are
 * listed once (report.cpp); a report is a copy and stays as it is.
 */
#ifndef SUTURE_PYTHON_REPORT_H
#define SUTURE_PYTHON_REPORT_H

#include <nanobind/nanobind.h>

#include "suture/suture.h"

namespace suture_python
{

struct Report {
    sut_report r;
    Report()
    {
        sut_report_init(&r);
    }
};

struct ConeReport {
    sut_cone_report r;
    ConeReport()
    {
        sut_cone_report_init(&r);
    }
};

struct SurgeryReport {
    sut_surgery_report r;
    SurgeryReport()
    {
        sut_surgery_report_init(&r);
    }
};

void add_reports(nanobind::module_ &module);

} // namespace suture_python

#endif
