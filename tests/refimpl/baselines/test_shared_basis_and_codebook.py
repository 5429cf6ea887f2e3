"""Shared bases in both forms and codebooks: optimality, Prop. 1's blindness, and energies worked out by hand."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proofs_checks.bounds.common import gamma
from refimpl.baselines.codebook import codebook_decode, codebook_encode, codebook_state_bytes, codebook_train
from refimpl.baselines.shared_basis import (
    bucket_basis_pages,
    captured_energy,
    covariance_basis,
    sequence_basis,
    shared_basis_pages,
    shared_state_bytes,
)
from refimpl.checks import ArgumentError
from refimpl.locks.score import exact_page_scores
from refimpl.locks.summary import locks_build_summary, reconstruct

EPS = np.finfo(float).eps
U = EPS / 2


def pages(seed, shape=(1, 5, 4, 6)):
    return np.random.default_rng(seed).standard_normal(shape)


def keys_of(key_pages):
    return key_pages.reshape(key_pages.shape[0], -1, key_pages.shape[-1])


def energy_slack(key_pages):
    """Two ways to an energy: B d squares each, means of B keys, a basis from a solver (U times its matrix's order)."""
    B, d = key_pages.shape[-2:]
    deviations = key_pages - key_pages.mean(axis=2, keepdims=True)
    size = (np.linalg.norm(key_pages, axis=(2, 3)) / np.linalg.norm(deviations, axis=(2, 3))).max()
    return 2 * (gamma(B * d + 4, U) + 2 * (gamma(B + 2, U) + (B + d) * U) * size)


def test_sequence_basis_is_the_keys_own_svd():
    keys = keys_of(pages(0))
    fit = sequence_basis(keys=keys, rank=2)
    _, _, right = np.linalg.svd(keys[0] - keys[0].mean(axis=0))
    ours, svd = fit["basis"][0] @ fit["basis"][0].T, right[:2].T @ right[:2]
    sigma = np.linalg.svd(keys[0] - keys[0].mean(axis=0), compute_uv=False)
    # Davis-Kahan over the gap: n-term means and inner products, and a solver's U times the order of its matrix
    n, d = keys.shape[1:]
    error = (gamma(2 * n + 5, U) + (2 * n + d) * U) * (keys**2).sum()
    assert np.abs(ours - svd).max() <= 2 * error / (sigma[1] ** 2 - sigma[2] ** 2)


def test_a_shared_basis_never_beats_the_page_own_basis():
    """Cor. 1: among projections about the page's centroid, the page's own basis has the least residual."""
    key_pages = pages(1)
    fit = sequence_basis(keys=keys_of(key_pages), rank=2)
    shared = captured_energy(
        key_pages=key_pages, reconstruction=shared_basis_pages(key_pages=key_pages, form="projected", **fit)
    )
    own = captured_energy(
        key_pages=key_pages, reconstruction=reconstruct(**locks_build_summary(key_pages=key_pages, rank=2))
    )
    assert (shared <= own + energy_slack(key_pages)).all()


def test_projected_energy_is_the_projected_variance():
    key_pages = pages(2)
    fit = sequence_basis(keys=keys_of(key_pages), rank=3)
    energy = captured_energy(
        key_pages=key_pages, reconstruction=shared_basis_pages(key_pages=key_pages, form="projected", **fit)
    )
    deviations = key_pages - key_pages.mean(axis=2, keepdims=True)
    projected = ((deviations @ fit["basis"][:, None]) ** 2).sum(axis=(2, 3)) / (deviations**2).sum(axis=(2, 3))
    assert np.abs(energy - projected).max() <= energy_slack(key_pages)


def test_reconstruction_energy_can_be_negative():
    """A page far from the mean in a direction the basis lacks: residual 4 * 25, own variance 2."""
    key_pages = np.array([[[[1.0, 5.0], [-1.0, 5.0], [0.0, 5.0], [0.0, 5.0]]]])
    rebuilt = shared_basis_pages(key_pages=key_pages, mean=[[0.0, 0.0]], basis=[[[1.0], [0.0]]], form="reconstruction")
    assert captured_energy(key_pages=key_pages, reconstruction=rebuilt).tolist() == [[1 - 100 / 2]]


def test_a_page_without_variance_has_all_or_nothing():
    flat = np.ones((1, 1, 3, 2))
    assert captured_energy(key_pages=flat, reconstruction=flat).tolist() == [[1.0]]
    assert captured_energy(key_pages=flat, reconstruction=flat + 1).tolist() == [[-np.inf]]


@pytest.mark.parametrize("form", ["reconstruction", "projected"])
@given(scale=st.integers(1, 1000))
def test_shared_scope_is_content_blind(form, scale):
    """Proposition 1 with W = e_1..e_3, u = e_4 and dyadic pages: equal to the last bit, while exact masses part."""
    rng = np.random.default_rng(5)
    page = rng.integers(-8, 8, (1, 1, 4, 4)) / 4.0
    moved = page.copy()
    moved[0, 0, 0, 3] += scale
    moved[0, 0, 1, 3] -= scale
    fit = {"mean": np.zeros((1, 4)), "basis": np.eye(4)[None, :, :3]}
    first, second = (shared_basis_pages(key_pages=p, form=form, **fit) for p in (page, moved))
    assert np.array_equal(first, second)
    query = np.array([[[0.5, -0.25, 1.0, 1.0]]])
    masses = [exact_page_scores(queries=query, key_pages=p)[0, 0, 0] for p in (page, moved)]
    assert masses[1] >= moved[0, 0, 0] @ query[0, 0] / 2 - 8 * EPS * scale  # its own largest logit


def test_full_rank_loses_nothing_in_either_form():
    key_pages = pages(3)
    fit = sequence_basis(keys=keys_of(key_pages), rank=6)
    for form in ("reconstruction", "projected"):
        rebuilt = shared_basis_pages(key_pages=key_pages, form=form, **fit)
        # two products of d terms, whose absolute values add up to at most d; columns orthonormal to U times the order
        d = key_pages.shape[-1]
        assert np.abs(rebuilt - key_pages).max() <= (2 * d * gamma(d + 4, U) + d * d * U) * np.abs(key_pages).max()


def test_buckets_run_from_page_scope_to_sequence_scope():
    key_pages = pages(4)
    one = bucket_basis_pages(key_pages=key_pages, rank=2, bucket=1, form="projected")
    own = reconstruct(**locks_build_summary(key_pages=key_pages, rank=2))
    assert np.abs(one - own).max() <= 1e4 * EPS * np.abs(key_pages).max()  # Gram route against SVD, gaps of order 1
    whole = bucket_basis_pages(key_pages=key_pages, rank=2, bucket=99, form="reconstruction")
    fit = sequence_basis(keys=keys_of(key_pages), rank=2)
    assert np.array_equal(whole, shared_basis_pages(key_pages=key_pages, form="reconstruction", **fit))


def test_a_global_basis_comes_from_its_moments_alone():
    fit = covariance_basis(mean=[[1.0, 2.0, 3.0]], covariance=[np.diag([1.0, 9.0, 4.0])], rank=2)
    assert fit["basis"].tolist() == [[[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]]]
    assert fit["mean"].tolist() == [[1.0, 2.0, 3.0]]


def test_wrong_forms_ranks_and_empty_sequences_are_refused():
    with pytest.raises(ArgumentError, match="form"):
        shared_basis_pages(key_pages=pages(0), mean=np.zeros((1, 6)), basis=np.zeros((1, 6, 1)), form="other")
    with pytest.raises(ArgumentError, match="rank"):
        sequence_basis(keys=keys_of(pages(0)), rank=7)
    with pytest.raises(ArgumentError, match="at least one token"):
        sequence_basis(keys=np.zeros((1, 0, 6)), rank=1)


def test_codebook_of_separated_clusters_finds_their_means():
    centres = np.array([[0.0, 0.0], [64.0, 0.0], [0.0, 64.0]])
    offsets = np.array([[-1.0, 0.0], [1.0, 0.0], [0.0, 2.0], [0.0, -2.0]])
    keys = (centres[:, None] + offsets).reshape(1, 12, 2)
    words = codebook_train(keys=keys, entries=3)
    assert sorted(words[0].tolist()) == sorted(centres.tolist())
    codes = codebook_encode(keys=keys, codewords=words)
    assert [len(set(codes[0, i : i + 4].tolist())) for i in (0, 4, 8)] == [1, 1, 1]
    assert np.array_equal(codebook_decode(codes=codes, codewords=words)[0, 4:8].mean(axis=0), centres[1])


@given(st.integers(0, 2**32 - 1))
def test_codebook_encodes_to_the_nearest_and_training_never_hurts(seed):
    keys = np.random.default_rng(seed).integers(-50, 50, (1, 20, 3)).astype(float)
    first = keys[:, np.arange(4) * 5]
    codes = codebook_encode(keys=keys, codewords=first)  # whole numbers: distances are exact
    distance = ((keys[0, :, None] - first[0]) ** 2).sum(axis=-1)
    assert np.array_equal(codes[0], distance.argmin(axis=1))
    trained = codebook_train(keys=keys, entries=4)
    after = codebook_decode(codes=codebook_encode(keys=keys, codewords=trained), codewords=trained)
    # sums of 60 squares; whole keys up to 50 add up exactly, so a codeword is off by one division
    slack = gamma(60 + 3, U) * distance.min(axis=1).sum() + 60 * 2 * 100 * 50 * U
    assert ((keys - after) ** 2).sum() <= distance.min(axis=1).sum() + slack


def test_a_codeword_that_nobody_chose_stays():
    """Both words start at 0; all four keys go to the first, whose mean is 9/4."""
    assert codebook_train(keys=[[[0.0], [0.0], [0.0], [9.0]]], entries=2, sweeps=1).tolist() == [[[2.25], [0.0]]]


def test_more_codewords_than_keys_are_refused():
    with pytest.raises(ArgumentError, match="entries"):
        codebook_train(keys=np.zeros((1, 3, 2)), entries=4)


def test_state_bytes_amortise_over_their_pages():
    assert shared_state_bytes(8, 16, 128, 1e30) == 128
    assert shared_state_bytes(8, 16, 128, 1) == 128 + 2 * (8 * 128 + 128)
    assert codebook_state_bytes(128, 16, 128, 1e30) == 14
