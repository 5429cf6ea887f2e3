"""Every argument of every public function of refimpl, spoilt in every way: the error starts with its name.

A function without an entry in tests/support/valid_calls_*.py fails the first test.
"""

import importlib
import inspect
import pkgutil
import re

import numpy as np
import pytest
import valid_calls_baselines
import valid_calls_locks
import valid_calls_readkv
from argument_kinds import ArrayKind, Free

import refimpl
from refimpl import checks
from refimpl.checks import ArgumentError

TABLES = (valid_calls_locks, valid_calls_readkv, valid_calls_baselines)
CALLS = [call for table in TABLES for call in table.CALLS]
UNCHECKED = set().union(*(table.UNCHECKED for table in TABLES))
CASES = [
    pytest.param(function, arguments, name, id=f"{function.__module__}.{function.__qualname__}-{name}")
    for function, arguments in CALLS
    for name in arguments
]


def public_functions():
    for info in pkgutil.walk_packages(refimpl.__path__, "refimpl."):
        module = importlib.import_module(info.name)
        for name, value in vars(module).items():
            ours = getattr(value, "__module__", None) == info.name and not name.startswith(("_", "x_"))
            function = ours and inspect.isfunction(inspect.unwrap(value)) and module is not checks
            if function and inspect.signature(value).parameters:
                yield value


def valid(arguments):
    return {name: kind.value for name, kind in arguments.items()}


def refusal(function, arguments):
    with pytest.raises(ArgumentError) as caught:
        function(**arguments)
    return str(caught.value)


def is_named(message, name):
    """Whether a refusal names the argument, perhaps with the part that was read: "keys (KV head 0): expected"."""
    return re.match(rf"{name}( \([^)]*\))?: expected ", message) is not None


def test_every_public_function_has_a_valid_call_or_takes_only_what_is_checked_already():
    assert set(public_functions()) - {function for function, _ in CALLS} == UNCHECKED


@pytest.mark.parametrize(("function", "arguments"), CALLS, ids=[c[0].__qualname__ for c in CALLS])
def test_the_valid_call_names_every_argument_and_is_accepted(function, arguments):
    assert set(inspect.signature(function).parameters) == set(arguments)
    function(**valid(arguments))


@pytest.mark.parametrize(("function", "arguments", "name"), CASES)
def test_a_spoilt_argument_is_named(function, arguments, name):
    for value, ending in arguments[name].spoilt():
        message = refusal(function, valid(arguments) | {name: value})
        assert is_named(message, name), (value, message)
        assert ending in message, (value, message)


@pytest.mark.parametrize(("function", "arguments", "name"), CASES)
def test_the_limits_themselves_are_accepted(function, arguments, name):
    for value in arguments[name].accepted():
        function(**valid(arguments) | {name: value})


@pytest.mark.parametrize(
    ("function", "arguments", "name"), [c for c in CASES if isinstance(c.values[1][c.values[2]], ArrayKind)]
)
def test_an_axis_that_disagrees_with_the_other_arguments(function, arguments, name):
    """Of two arguments that share a letter the one that is read later is named; a letter of its own is free."""
    axes = {n: kind.axes.split() for n, kind in arguments.items() if kind.axes is not None}
    array = arguments[name].value
    for axis, letter in enumerate(axes[name]):
        holders = [n for n in axes if letter in axes[n]]
        alone = letter.isdigit() or axes[name].count(letter) > 1  # a fixed size, or a square
        if alone or len(holders) > 1:
            longer = np.concatenate([array, array.take([0], axis=axis)], axis=axis)
            named = name if alone or holders[0] != name else holders[1]
            message = refusal(function, valid(arguments) | {name: longer})
            assert is_named(message, named), (letter, message)
            assert "expected shape" in message or ", got [" in message, message


@pytest.mark.parametrize(
    ("function", "arguments", "name"), [c for c in CASES if isinstance(c.values[1][c.values[2]], ArrayKind)]
)
def test_a_square_of_another_size(function, arguments, name):
    """An array that has a letter twice may disagree in both axes at once."""
    axes = {n: kind.axes.split() for n, kind in arguments.items() if kind.axes is not None}
    for letter in {a for a in axes[name] if axes[name].count(a) > 1}:
        holders = [n for n in axes if letter in axes[n]]
        larger = arguments[name].value
        for axis in (place for place, held in enumerate(axes[name]) if held == letter):
            larger = np.concatenate([larger, larger.take([0], axis=axis)], axis=axis)
        if len(holders) > 1:
            message = refusal(function, valid(arguments) | {name: larger})
            assert is_named(message, name if holders[0] != name else holders[1]), message


DOCUMENTED = {function.__name__: inspect.getdoc(function) or "" for function in public_functions()}
OWN_WORDS = {"bytes", "levels", "key_groups", "value_groups", "F"}
"""Lengths that a docstring writes as an expression, such as ceil(T/8) or d/2."""


def documentation(function):
    """A function's docstring and those of the functions that it refers to, such as "arguments as `attention`"."""
    texts = {"": inspect.getdoc(function) or ""}
    names = re.findall(r"`(\w+)`", texts[""])
    while names:
        name = names.pop()
        if name not in texts:
            texts[name] = DOCUMENTED.get(name, "")
            names += re.findall(r"`(\w+)`", texts[name])
    return "\n".join(texts.values())


@pytest.mark.parametrize(
    ("function", "arguments", "name"), [c for c in CASES if isinstance(c.values[1][c.values[2]], ArrayKind)]
)
def test_a_shape_error_writes_the_shape_as_the_documentation_does(function, arguments, name):
    kind = arguments[name]
    if kind.rank_free or isinstance(arguments.get("axes"), Free):
        return
    message = refusal(function, valid(arguments) | {name: kind.value[None]})
    shape = re.search(r"expected shape \[([^\]]*)\]", message)[1]
    words = shape.split(", ")
    if OWN_WORDS & set(words):
        assert set(words) <= OWN_WORDS | {"H", "G", "T", "d", "8"}, message
    else:
        assert f"[{shape}]" in documentation(function) or all(map(str.isdigit, words)), message
