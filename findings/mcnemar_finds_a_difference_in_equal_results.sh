#!/usr/bin/env bash
# McNemar's test compares two methods on the same tasks by the tasks that only one of them solves. Without such a task
# there is no difference, and the exact test of statsmodels says p = 1. The one by chi-square (exact=False) computes
# (|0 - 0| - 1)^2 / 0 with its continuity correction, which is infinite: p = 0, the strongest evidence that there is.
# Without the correction it is NaN. One such task gives p = 1.
# Who is hurt: whoever lets the size of the table choose between both tests, or always takes exact=False: two methods
# with the same results, as two runs of one deterministic policy, differ significantly.
# Way around: exact=True, which is the default.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -qq statsmodels==0.15.0 scipy==1.17.1 numpy==2.4.6

"$folder/venv/bin/python" -I - <<'PYTHON'
import math
import sys
import warnings

import statsmodels
from statsmodels.stats.contingency_tables import mcnemar

warnings.simplefilter("ignore")
print(f"statsmodels {statsmodels.__version__}")


def p_value(only_first, only_second, **options):
    return float(mcnemar([[400, only_first], [only_second, 100]], **options).pvalue)


exact, corrected = p_value(0, 0), p_value(0, 0, exact=False)
plain, one = p_value(0, 0, exact=False, correction=False), p_value(1, 0, exact=False)
print("Expected: two methods that solve the same 400 of 500 tasks have p = 1.")
print(f"Seen: {exact} exact, {corrected} by chi-square, {plain} without its correction; with one task more, {one}.")
if (exact, corrected, one) != (1.0, 0.0, 1.0) or not math.isnan(plain):
    sys.exit("The behaviour is gone.")
PYTHON
