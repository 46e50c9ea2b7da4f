from collections import OrderedDict, namedtuple
from dataclasses import dataclass

import ml_dtypes
import numpy as np
import pytest

from checks.arrays import MismatchError, as_array, check_forms, kind, narrower, pairs

Pair = namedtuple("Pair", "left right")


@dataclass
class Layer:
    weight: object
    bias: object


@pytest.mark.parametrize(
    "dtype, expected",
    [
        (bool, "bool"),
        (np.uint8, "integer"),
        (ml_dtypes.int4, "integer"),
        (np.float16, "floating"),
        (ml_dtypes.bfloat16, "floating"),
        (ml_dtypes.float8_e4m3fn, "floating"),
        (np.complex64, "complex"),
        (np.longdouble, None),
        (object, None),
        ("U3", None),
        ("M8[s]", None),
    ],
)
def test_kinds(dtype, expected):
    assert kind(np.dtype(dtype)) == expected


def test_a_python_scalar_takes_the_dtype_of_the_other_side():
    assert as_array(1, "expected", np.dtype(np.float32)).dtype == np.float32
    assert as_array(True, "expected", np.dtype(bool)).dtype == bool
    assert as_array(300, "expected", np.dtype(np.int8)).dtype == np.int64
    assert as_array(1e39, "expected", np.dtype(np.float32)) == np.inf
    # ... but not one of a lower kind: 1.5 is no integer.
    assert as_array(1.5, "expected", np.dtype(np.int32)).dtype == np.float64


def test_things_without_numbers_are_named():
    with pytest.raises(
        TypeError, match=r"actual has no numbers .*: str of <U3\n  at actual = 'abc'"
    ):
        as_array("abc", "actual")
    with pytest.raises(TypeError, match=r"ndarray of longdouble|float128"):
        as_array(np.zeros(2, np.longdouble), "actual")


def test_torch_tensors_are_read_as_they_are():
    torch = pytest.importorskip("torch")
    values = torch.tensor([1.5, -2.0], dtype=torch.bfloat16, requires_grad=True)
    found = as_array(values, "actual")
    assert found.dtype == ml_dtypes.bfloat16
    np.testing.assert_array_equal(found.astype(float), [1.5, -2.0])
    conj = torch.tensor([1 + 2j]).conj()
    np.testing.assert_array_equal(as_array(conj, "actual"), np.array([1 - 2j], np.complex64))


def test_narrower():
    f32, f64, bf16 = map(np.dtype, (np.float32, np.float64, ml_dtypes.bfloat16))
    assert narrower(f32, f64) == narrower(f64, f32) == f32
    assert narrower(bf16, np.dtype(np.float16)) == bf16
    assert narrower(np.dtype(np.int64), np.dtype(np.int32)) == np.int32


def test_shapes_and_kinds_must_agree():
    with pytest.raises(MismatchError, match=r"shape \(2,\) and expected has shape \(2, 1\)") as e:
        check_forms(np.zeros(2), np.zeros((2, 1)), "actual['w']")
    assert (e.value.path, e.value.actual, e.value.expected) == (
        "actual['w']",
        "float64[2]",
        "float64[2, 1]",
    )
    with pytest.raises(MismatchError, match=r"actual is float32 and expected is int64") as e:
        check_forms(np.zeros(2, np.float32), np.zeros(2, np.int64), "actual")
    assert "expected.astype('float32')" in str(e.value)
    check_forms(np.zeros(2, np.float32), np.zeros(2), "actual")


def test_leaves_have_names():
    def tree(k):
        return {"w": (k, [k + 1]), 3: Pair(k + 2, None), "l": Layer(k + 3, OrderedDict(x=k + 4))}

    found = {path: (a, e) for path, a, e in pairs(tree(0), tree(10))}
    assert found == {
        "actual['w'][0]": (0, 10),
        "actual['w'][1][0]": (1, 11),
        "actual[3].left": (2, 12),
        "actual['l'].weight": (3, 13),
        "actual['l'].bias['x']": (4, 14),
    }


def test_an_array_is_one_leaf():
    value = np.zeros((2, 3))
    assert [path for path, *_ in pairs(value, value)] == ["actual"]
    assert [path for path, *_ in pairs(value[0, 0], 0.0)] == ["actual"]


@pytest.mark.parametrize(
    "actual, expected, text",
    [
        ((1, 2), [1, 2], r"actual is a tuple of 2 and expected is a list of 2\n  at actual\n"),
        ({"a": (1, 2)}, {"a": (1,)}, r"a tuple of 2 and .* a tuple of 1\n  at actual\['a'\]"),
        ({"a": 1}, {"b": 1}, r"a dict with \['a'\] and expected is a dict with \['b'\]"),
        (1.0, None, r"actual is one float and expected is None"),
        (np.zeros(2), [0.0, 0.0], r"one ndarray of shape \(2,\) and expected is a list of 2"),
        ([], [0.0], r"a list of 0 and expected is a list of 1"),
    ],
)
def test_structures_must_agree(actual, expected, text):
    with pytest.raises(MismatchError, match=text):
        list(pairs(actual, expected))
