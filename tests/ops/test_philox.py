"""The Philox generator and its distributions; expected values were recorded from TensorFlow 2.21's CPU kernels."""

import math
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from penstock.errors import InternalError, InvalidArgumentError
from penstock.ops import philox
from penstock.ops.kernels import libm32, samplers
from penstock.ops.kernels.gamma_derivative import digamma, gamma_sample_derivative
from penstock.ops.philox import BFLOAT16, Philox, PhiloxState


@pytest.fixture(autouse=True)
def quiet():
    """Kernels run with NumPy's warnings off."""
    with np.errstate(all="ignore"):
        yield


def bits(array):
    return [hex(v) for v in array.reshape(-1).view(f"u{array.itemsize}").tolist()]


def words(gen, n):
    x, y = gen.blocks(0, n)
    return np.stack([x[0], y[0], x[1], y[1]], axis=1)


# -- the generator ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("counter", "key", "expected"), [
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    ((0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344), (0xA4093822, 0x299F31D0), (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1)),
])  # fmt: skip
def test_known_answers_of_the_philox_paper(counter, key, expected):
    gen = Philox(key[0] | key[1] << 32, sum(c << 32 * i for i, c in enumerate(counter)))
    for n in (1, 50):
        assert tuple(words(gen, n)[0].tolist()) == expected


@pytest.mark.parametrize("counter", [0, 2**32 - 20, 2**64 - 20, 2**96 - 20, 2**128 - 20, 5 << 64], ids=hex)
@pytest.mark.parametrize("stride", [1, 3, 256])
def test_block_of_a_counter_does_not_depend_on_how_it_is_reached(counter, stride):
    gen = Philox(0x0123456789ABCDEF, counter)
    x, y = gen.blocks(0, 40, stride)
    one_by_one = [gen.skip(i * stride).blocks(0, 1) for i in range(40)]
    np.testing.assert_array_equal(x, np.concatenate([b[0] for b in one_by_one], axis=1))
    np.testing.assert_array_equal(y, np.concatenate([b[1] for b in one_by_one], axis=1))
    for expected, got in zip((x, y), gen.at(np.arange(40, dtype=np.uint64) * np.uint64(stride)), strict=True):
        np.testing.assert_array_equal(got, expected)


def test_state_hands_out_stretches_one_after_the_other():
    state = PhiloxState(7, 8)
    assert state.reserve(10).counter == 8 << 64
    assert state.reserve_words(5).counter == (8 << 64) + 10
    assert state.reserve_outputs(3).counter == (8 << 64) + 12
    assert state.reserve(0).counter == (8 << 64) + 12 + 3 * 256


def test_state_is_shared_by_threads_without_overlap():
    state, taken = PhiloxState(7, 8), []
    threads = [threading.Thread(target=lambda: taken.extend(state.reserve(1).counter for _ in range(500))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(taken) == [(8 << 64) + i for i in range(2000)]


def test_two_zero_seeds_mean_an_unpredictable_generator():
    assert PhiloxState().reserve(1).key != PhiloxState().reserve(1).key
    assert PhiloxState(0, 1).reserve(1).key == PhiloxState(0, 1).reserve(1).key == 0


def test_negative_seeds_are_two_s_complement():
    gen = Philox.from_seeds(-1, -2)
    assert gen.key == 2**64 - 1
    assert gen.counter == (2**64 - 2) << 64


def test_stateless_seed_is_scrambled_as_in_tensorflow():
    gen = Philox.from_stateless_seed(np.array([1, 2]))
    assert gen.key == 10413732777507651514
    assert gen.counter == 17830669156045600267 << 64


# -- uniform and normal -----------------------------------------------------------------------------------------------

RECORDED = {
    ("uniform", "float16"): [["0x2000", "0x3530", "0x33e8", "0x35d4", "0x2740"], ["0x3be0", "0x38ee", "0x2900", "0x3934", "0x396c"]],
    ("uniform", "bfloat16"): [["0x3d80", "0x3f18", "0x3f7a", "0x3f6a", "0x3e68"], ["0x3f60", "0x3f6e", "0x3ea0", "0x3e50", "0x3ed8"]],
    ("uniform", "float32"): [["0x3f73c810", "0x3f2d6a98", "0x3f4b99fa", "0x3f417aea", "0x3ef3b074"],
                             ["0x3f500fe0", "0x3f18f4ee", "0x3f4bd050", "0x3f137534", "0x3e0d35b0"]],
    ("uniform", "float64"): [["0x3fe3c811ecad6a98", "0x3fd733f43b82f5d4", "0x3fe9d83beea18a30", "0x3fdf3e10d23a868c", "0x3fe612a272b92c7c"],
                             ["0x3fe00fe1a998f4ee", "0x3fd7a0a10f26ea68", "0x3fba6b680ab407d0", "0x3fef9c389330603a", "0x3fe7df5443b36f90"]],
    ("normal", "float16"): [["0xb47e", "0xb068", "0xb969", "0x264b", "0xbb26"], ["0xb5ec", "0xb837", "0xb4f7", "0xb8cc", "0x3ec7"]],
    ("normal", "bfloat16"): [["0xbe90", "0xbe0d", "0xbf2d", "0x3cc9", "0xbf65"], ["0xbebe", "0xbf07", "0xbe9f", "0xbf1a", "0x3fd9"]],
    ("normal", "float32"): [["0xbe8fc1c0", "0xbe0d0ee3", "0xbf2d23f0", "0x3cc95cdd", "0xbf64c1f5"],
                            ["0xbebd8fca", "0xbf06e1dd", "0xbe9ee658", "0xbf198512", "0x3fd8e8b9"]],
    ("truncated_normal", "float16"): [["0xb47e", "0xb068", "0xb969", "0x264b", "0xb77f"], ["0xb5ec", "0xb837", "0xb4f7", "0xb8cc", "0xa36a"]],
    ("truncated_normal", "bfloat16"): [["0xbe90", "0xbe0d", "0xbf2d", "0x3cc9", "0xbef0"], ["0xbebe", "0xbf07", "0xbe9f", "0xbf1a", "0xbc6d"]],
    ("truncated_normal", "float32"): [["0xbe8fc1c0", "0xbe0d0ee3", "0xbf2d23f0", "0x3cc95cdd", "0xbeefd94c"],
                                      ["0xbebd8fca", "0xbf06e1dd", "0xbe9ee658", "0xbf198512", "0xbc6d489a"]],
}  # fmt: skip


def dtype_of(name):
    return BFLOAT16 if name == "bfloat16" else np.dtype(name)


@pytest.mark.parametrize("case", RECORDED, ids="-".join)
def test_numbers_are_tensorflow_s_bit_for_bit(case):
    draw, state = getattr(philox, case[0]), PhiloxState(87654321, 42)
    for expected in RECORDED[case]:
        got = draw(state.reserve_outputs(5), (5,), dtype_of(case[1]))
        assert got.dtype == dtype_of(case[1])
        assert bits(got) == expected


@pytest.mark.parametrize(("name", "recorded"), [
    ("normal", [[0x3FE7DC27D1298F35, 0xBFE463E9C2B04909, 0x3FA8DE13BB656DFF], [0x3FEB855E2AE53AF3, 0xBFE993FAB4DB1D64, 0xBFC4DB50AC1B3FBB]]),
    ("truncated_normal", [[0x3FE7DC27D1298F35, 0xBFE463E9C2B04909, 0x3FF09E3E85695088], [0x3FEB855E2AE53AF3, 0xBFE993FAB4DB1D64, 0xBFACB1A08576A3FD]]),
])  # fmt: skip
def test_float64_normals_are_tensorflow_s_up_to_rounding(name, recorded):
    state = PhiloxState(87654321, 42)
    for expected in recorded:
        got = getattr(philox, name)(state.reserve_outputs(5), (5,), np.float64)
        np.testing.assert_array_max_ulp(got[:3], np.array(expected, np.uint64).view(np.float64), 2)


@pytest.mark.parametrize(("dtype", "recorded"), [(np.int32, [[589, 75, 702, 259, 921], [394, 248, 250, 655, 855]]),
                                                 (np.int64, [[309, 6, 937, 31, 53], [162, 20, 595, 277, 788]])])  # fmt: skip
def test_integers_are_tensorflow_s(dtype, recorded):
    state = PhiloxState(1, 2)
    for expected in recorded:
        assert philox.uniform_int(state.reserve_outputs(5), (5,), -10, 1000, dtype).tolist() == expected


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_integers_of_the_widest_range(dtype):
    info = np.iinfo(dtype)
    got = philox.uniform_int(Philox(1), (1000,), info.min, info.max, dtype)
    assert got.dtype == dtype
    assert got.min() < info.min // 2
    assert got.max() > info.max // 2


@pytest.mark.parametrize("draw", [philox.uniform, philox.normal, philox.truncated_normal])
@pytest.mark.parametrize("dtype", [np.float16, BFLOAT16, np.float32, np.float64], ids=str)
def test_numbers_depend_on_their_place_only(draw, dtype, monkeypatch):
    monkeypatch.setattr(philox, "TILE", 16)
    gen = Philox(3, 1 << 64)
    large = draw(gen, (4 * 16 * 5 + 3,), dtype)
    for size in (0, 1, 2, 3, 5, 64, 66):
        np.testing.assert_array_equal(draw(gen, (size,), dtype), large[:size])
    np.testing.assert_array_equal(draw(gen, (2, 3), dtype).reshape(-1), large[:6])
    assert draw(gen, (), dtype).shape == ()
    counts = []
    with ThreadPoolExecutor(3) as pool:

        def parallel_for(n, fn):
            counts.append(n)
            return list(pool.map(fn, range(n)))

        monkeypatch.setattr(philox, "parallel_for", parallel_for)
        monkeypatch.setattr(philox, "PARALLEL_FROM", 16)
        monkeypatch.setattr(philox.streams, "can_fill", lambda counter, stride, rows: False)  # NumPy's own tiles
        for wide in (2, 7, 16, 50):
            monkeypatch.setattr(philox, "WIDE_TILE", wide)
            np.testing.assert_array_equal(draw(gen, large.shape, dtype), large)
    assert counts
    assert min(counts) > 1


def test_the_runtime_lends_its_threads():
    from penstock.runtime.executor import compiled
    from penstock.runtime.threads import parallel_for

    assert compiled.philox.parallel_for is parallel_for


def test_truncated_normal_stays_inside_and_fills_every_place():
    got = philox.truncated_normal(Philox(9), (50001,))
    assert np.abs(got).max() < 2
    assert 0.86 < got.std() < 0.90
    assert len(np.unique(got)) > 49000


def test_large_uniform_has_the_right_moments():
    got = philox.uniform(Philox(11), (200001,))
    assert got.min() >= 0
    assert got.max() < 1
    assert abs(got.mean() - 0.5) < 0.003
    assert abs(got.var() - 1 / 12) < 0.001


def test_full_integers_are_the_stream_itself():
    gen = Philox(5)
    np.testing.assert_array_equal(philox.full_int(gen, (9,), np.uint32), gen.words(9))
    np.testing.assert_array_equal(philox.full_int(gen, (4,), np.uint64), gen.words(8).view(np.uint64))
    np.testing.assert_array_equal(philox.full_int(gen, (9,), np.int32).view(np.uint32), gen.words(9))


# -- float32 functions ------------------------------------------------------------------------------------------------


def test_float32_functions_round_like_the_c_library():
    u = philox.uniform(Philox(2), (20000,)) + np.float32(2.0**-24)
    exact = np.log(u.astype(np.float64))
    np.testing.assert_array_max_ulp(libm32.logf(u), exact.astype(np.float32), 1)
    angle = (u.astype(np.float64) * 2 * math.pi).astype(np.float32)
    sine, cosine = libm32.sincosf(angle)
    np.testing.assert_array_max_ulp(sine, np.sin(angle.astype(np.float64)).astype(np.float32), 1)
    np.testing.assert_array_max_ulp(cosine, np.cos(angle.astype(np.float64)).astype(np.float32), 1)


LOG_POINTS = [0x3A0B9000, 0x3F1D2CC4, 0x3F4C0930, 0x3F69E9F0, 0x3F745AAE]
LOG_VALUES = ["0xc0f1386b", "0xbef9c358", "0xbe6853a3", "0xbdb8c7b9", "0xbd3eb431"]
ANGLES = [0x3C274A31, 0x3F8CB4B1, 0x401410D6, 0x405F7038, 0x40915A2F]
SINES = ["0x3c274973", "0x3f641047", "0x3f3c9367", "0xbeaf62f2", "0xbf7c4dd7"]
COSINES = ["0x3f7ffc95", "0x3ee893ad", "0xbf2d2227", "0xbf708301", "0xbe2d5fca"]


def test_float32_functions_at_recorded_points():
    # Points where correct rounding and glibc differ.
    x = np.array(LOG_POINTS, np.uint32).view(np.float32)
    assert bits(libm32.logf(x)) == LOG_VALUES
    sine, cosine = libm32.sincosf(np.array(ANGLES, np.uint32).view(np.float32))
    assert bits(sine) == SINES
    assert bits(cosine) == COSINES


# -- samplers ---------------------------------------------------------------------------------------------------------


def test_shuffle_is_tensorflow_s():
    state = PhiloxState(1, 2)
    recorded = [[7, 4, 2, 0, 3, 6, 1, 5], [5, 3, 4, 7, 6, 0, 2, 1], [0, 6, 7, 1, 2, 4, 5, 3]]
    assert [samplers.permutation(state.reserve_words(7), 8).tolist() for _ in range(3)] == recorded
    assert samplers.permutation(Philox(1), 0).tolist() == []
    assert samplers.permutation(Philox(1), 1).tolist() == [0]


def test_multinomial_is_tensorflow_s():
    state, logits = PhiloxState(1, 2), np.array([[0.0, 1.0, 2.0], [3.0, 0.0, -np.inf]], np.float32)
    recorded = [[[1, 2, 1, 1, 2, 2], [0, 0, 0, 0, 0, 0]], [[2, 1, 1, 1, 2, 2], [0, 0, 0, 0, 0, 0]]]
    for expected in recorded:
        assert samplers.multinomial(state.reserve_outputs(2 * 8 * 2), logits, 6, np.int64).tolist() == expected


@pytest.mark.parametrize("classes", [1, 2, 5, 100, 257])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_multinomial_of_many_classes_and_few_samples(classes, dtype, monkeypatch):
    """By whatever search."""
    logits = np.random.RandomState(classes).randn(700, classes).astype(dtype)
    logits[5:9] = -np.inf
    logits[7, 0], logits[11, -1], logits[13] = 3, np.inf, np.nan
    logits[17, ::2] = -np.inf
    found = [samplers.multinomial(Philox(9), logits, n, np.int64) for n in (3, 20)]
    monkeypatch.setattr(samplers.searching, "places", lambda *_: None)
    monkeypatch.setattr(samplers, "reduce_short_rows", lambda *_: None)
    for few in (1, 16):  # rows side by side, and one by one
        monkeypatch.setattr(samplers.searching, "MANY_IN_A_ROW", few)
        for n, got in zip((3, 20), found):
            np.testing.assert_array_equal(samplers.multinomial(Philox(9), logits, n, np.int64), got, strict=True)


@pytest.mark.parametrize("classes", [1, 2, 3, 7, 8, 33])
def test_multinomial_search_agrees_with_one_row_at_a_time(classes):
    logits = np.random.default_rng(classes).normal(size=(5, classes)).astype(np.float32)
    few = samplers.multinomial(Philox(4), logits, 6, np.int64)
    for row in range(5):  # a single row with many samples takes the other path
        many = samplers.multinomial(Philox(4, 3 * row), logits[row:row + 1], 30, np.int64)
        np.testing.assert_array_equal(few[row], many[0, :6])


def test_gamma_is_tensorflow_s():
    state, alpha = PhiloxState(1, 2), np.array([0.5, 1.0, 4.0], np.float32)
    recorded = [
        [[0.014439557678997517, 0.3340418338775635, 3.591507911682129], [0.19106529653072357, 0.27169960737228394, 5.506011486053467],
         [0.19171634316444397, 0.965160608291626, 2.588334321975708]],
        [[0.03615254536271095, 0.12614542245864868, 1.7041672468185425], [0.0009152151760645211, 0.1036684662103653, 1.5769656896591187],
         [0.02769825980067253, 3.04919695854187, 3.286329746246338]],
    ]  # fmt: skip
    for expected in recorded:
        got = samplers.gamma(state.reserve_outputs(9), 3, alpha, np.float32).reshape(3, 3)
        np.testing.assert_array_equal(got, np.array(expected, np.float32))


def test_gamma_of_senseless_parameters_does_not_hang():
    got = samplers.gamma(Philox(1), 2, np.array([0.0, -1.0, np.nan, np.inf]), np.float64).reshape(2, 4)
    assert (got[:, 0] == 0).all()
    assert np.isnan(got[:, 1:3]).all()
    assert np.isinf(got[:, 3]).all()


def test_poisson_is_tensorflow_s():
    state, rate = PhiloxState(1, 2), np.array([0.5, 4.0, 40.0])
    recorded = [[[0, 1, 42], [1, 2, 43], [0, 2, 35], [0, 3, 41]], [[0, 3, 40], [0, 3, 43], [1, 3, 36], [0, 4, 35]]]
    for expected in recorded:
        assert samplers.poisson(state.reserve_outputs(12), 4, rate, np.int64).reshape(4, 3).tolist() == expected


def test_poisson_of_senseless_rates_does_not_hang():
    rates = np.array([-1.0, np.nan, np.inf, 0.0])
    np.testing.assert_array_equal(samplers.poisson(Philox(1), 1, rates, np.float32), [0, np.nan, np.inf, 0])
    assert samplers.poisson(Philox(1), 1, rates, np.int32).tolist() == [0, 0, 0, 0]


def test_binomial_is_tensorflow_s():
    gen = Philox.from_stateless_seed([1, 2])
    count, prob = np.array([10.0, 100.0, 1000.0]), np.full(3, 0.3)
    got = samplers.binomial(gen, 4, count, prob, np.int64).reshape(4, 3)
    assert got.tolist() == [[5, 26, 282], [5, 34, 307], [5, 30, 299], [4, 30, 293]]


def test_binomial_of_sure_cases():
    count, prob = np.array([5.0, 5.0, 0.0, 5.0]), np.array([0.0, 1.0, 0.5, np.nan])
    np.testing.assert_array_equal(samplers.binomial(Philox(1), 1, count, prob, np.float64), [0, 5, 0, np.nan])


def test_log_factorial():
    k = np.array([0, 1, 5, 9, 10, 11, 50, 1000])
    np.testing.assert_allclose(samplers.log_factorial(k), [math.lgamma(v + 1) for v in k], rtol=1e-14, atol=1e-15)


def test_bounded_normal_is_tensorflow_s():
    gen, place, rows = PhiloxState(1, 2).reserve(2 * 2000 * 6 // 4), 0, []
    for mean in (0.0, 1.0):
        row, place = samplers.bounded_normal(gen, place, [np.float32(v) for v in (mean, 1, -0.5, 3)], 3)
        rows.append(row)
    np.testing.assert_array_equal(rows, np.array([[0.8397045731544495, 1.235836386680603, 2.0637853145599365],
                                                  [1.3037426471710205, 2.296325206756592, 1.4801928997039795]], np.float32))  # fmt: skip


@pytest.mark.parametrize(("low", "high"), [(-2, 2), (-0.1, 0.1), (3, 4), (3, np.inf), (-np.inf, -3), (-5, -4)])
@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64])
def test_bounded_normal_keeps_its_bounds(low, high, kind):
    got, place = samplers.bounded_normal(Philox(3), 0, [kind(v) for v in (0, 1, low, high)], 500)
    assert got.dtype == kind
    assert place > 100
    assert (got >= kind(low)).all()
    assert (got <= kind(high)).all()


def test_bounded_normal_refuses_bad_parameters():
    for stddev, low, high in ((0, -1, 1), (1, 1, 1), (1, -np.inf, np.inf), (np.nan, 0, 1)):
        with pytest.raises(InvalidArgumentError, match="Invalid parameters"):
            samplers.bounded_normal(Philox(1), 0, [np.float32(v) for v in (0, stddev, low, high)], 5)


def test_bounded_normal_gives_up_where_no_number_fits():
    with pytest.raises(InternalError, match="failed to accept a sample"):
        samplers.bounded_normal(Philox(1), 0, [np.float32(v) for v in (np.inf, 1, -1, 1)], 5)


def test_index_shuffle_is_tensorflow_s_and_a_permutation():
    key = np.array([[1, 2, 3]], np.uint64)
    six = samplers.index_shuffle(np.arange(6, dtype=np.uint64), np.repeat(key, 6, 0), np.full(6, 5, np.uint64), 4)
    assert six.tolist() == [2, 0, 3, 4, 5, 1]
    for top in (0, 1, 300, 70000):
        n = top + 1
        moved = samplers.index_shuffle(np.arange(n, dtype=np.uint64), np.repeat(key, n, 0), np.full(n, top, np.uint64), 8)
        assert sorted(moved.tolist()) == list(range(n))


# -- the derivative of gamma samples ----------------------------------------------------------------------------------


def test_digamma():
    euler = 0.57721566490153286
    np.testing.assert_allclose(digamma(np.array([1.0, 2.0, 0.5, 10.0])),
                               [-euler, 1 - euler, -euler - 2 * math.log(2), sum(1 / k for k in range(1, 10)) - euler], rtol=1e-14)  # fmt: skip


def test_gamma_derivative_of_the_exponential():
    # dx/da = -(dP/da) / (dP/dx), with dP/da by differences; Gamma(1) has the density exp(-x).
    step = 1e-5
    for x in (0.1, 1.0, 4.0):
        slope = -(_lower_gamma(1 + step, x) - _lower_gamma(1 - step, x)) / (2 * step) / math.exp(-x)
        np.testing.assert_allclose(gamma_sample_derivative(np.array(1.0), np.array(x)), slope, rtol=1e-6)


def _lower_gamma(a, x):
    total, term, n = 0.0, 1.0 / a, 0
    while term > 1e-18 * total or n < 5:
        total += term
        n += 1
        term *= x / (a + n)
    return total * math.exp(a * math.log(x) - x - math.lgamma(a))


def test_gamma_derivative_of_senseless_values():
    got = gamma_sample_derivative(np.array([0.0, -1.0, 1.0, 1.0]), np.array([1.0, 1.0, 0.0, -1.0]))
    np.testing.assert_array_equal(got, [np.nan, np.nan, 0, np.nan])


@pytest.mark.parametrize("draw", [philox.uniform, philox.normal])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_a_few_numbers_are_the_same_with_and_without_machine_code(draw, dtype, monkeypatch):
    places = [(n, counter) for n in (0, 1, 3, 4, 5, 31, 33, 50, 4097) for counter in (0, 7, (1 << 64) - 3, (1 << 64) + 1)]

    def drawn():
        return [draw(philox.Philox(99, counter), (n,), dtype).tobytes() for n, counter in places]

    with_it = drawn()
    monkeypatch.setattr(philox.streams, "can_fill", lambda *place: False)
    assert drawn() == with_it
