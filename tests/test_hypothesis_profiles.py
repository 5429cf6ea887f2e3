"""The Hypothesis profiles that tests/conftest.py loads, and how the environment chooses one."""

import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import chosen_profile


@pytest.mark.parametrize("name", ["dev", "ci", "deep"])
def test_every_profile_is_registered_without_a_deadline(name):
    assert settings.get_profile(name).deadline is None


def test_ci_repeats_its_examples_and_deep_has_many():
    assert settings.get_profile("ci").derandomize
    assert not settings.get_profile("dev").derandomize
    assert settings.get_profile("deep").max_examples >= 10 * settings.get_profile("dev").max_examples


@given(st.none())
def test_the_active_profile_is_the_chosen_one(nothing):
    assert nothing is None
    active = settings.get_profile(chosen_profile(os.environ))
    assert settings().deadline is None
    assert settings().max_examples == active.max_examples
    assert settings().derandomize == active.derandomize


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, "dev"),
        ({"CI": "true"}, "ci"),
        ({"CI": "1"}, "ci"),
        ({"CI": "false"}, "dev"),
        ({"CI": ""}, "dev"),
        ({"HYPOTHESIS_PROFILE": "deep"}, "deep"),
        ({"CI": "true", "HYPOTHESIS_PROFILE": "deep"}, "deep"),
    ],
)
def test_the_environment_chooses_the_profile(environment, expected):
    assert chosen_profile(environment) == expected
