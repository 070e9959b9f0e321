"""The surveys' numeric cases: their names differ, and small ones of each file run. Times themselves are not tested."""

import numpy as np
import pytest

import penstock as tf
from benchmarks.op_cases import arrays, images, linalg, numbers, random

FILES = [arrays, images, linalg, numbers, random]
SMALL = [
    (arrays, "gather of 10 rows"),
    (images, "fractional_max_pool small"),
    (linalg, "qr 1 of 3 x 3"),
    (linalg, "matrix_square_root 1 of 3 x 3"),
    (numbers, "pow int64 1000"),
    (numbers, "cumsum int32 1000"),
    (random, "random_uniform 10"),
    (random, "random_shuffle 1000"),
]


def test_no_name_comes_twice():
    assert len(set().union(*(f.CASES for f in FILES))) == sum(len(f.CASES) for f in FILES)


@pytest.mark.parametrize(("file", "name"), SMALL)
def test_a_case_runs(file, name):
    with tf.Graph().as_default():
        results = file.CASES[name](tf)()
    for result in results if isinstance(results, list) else [results]:
        assert np.asarray(result).size
