"""Which Hypothesis profile the environment asks for."""

from hypothesis import Phase, settings


def register_profiles():
    """``dev``, ``ci`` (repeats its examples) and ``deep``; none has a deadline: a loaded machine is no defect.

    ``mutation`` does not shrink: a mutation run asks only whether a test fails.
    Every setting is spelt out, because Hypothesis's own defaults change where CI is set.
    """
    settings.register_profile("dev", max_examples=100, deadline=None, derandomize=False)
    settings.register_profile("ci", max_examples=100, deadline=None, derandomize=True, print_blob=True)
    settings.register_profile("deep", max_examples=3000, deadline=None, derandomize=False)
    phases = (Phase.explicit, Phase.generate)
    settings.register_profile(
        "mutation", max_examples=30, deadline=None, derandomize=True, database=None, phases=phases
    )


def chosen_profile(environment):
    """HYPOTHESIS_PROFILE, else ci where CI is true, else dev.

    >>> chosen_profile({"CI": "true"}), chosen_profile({"CI": "true", "HYPOTHESIS_PROFILE": "deep"})
    ('ci', 'deep')
    """
    in_ci = environment.get("CI", "").lower() not in ("", "0", "false")
    return environment.get("HYPOTHESIS_PROFILE") or ("ci" if in_ci else "dev")
