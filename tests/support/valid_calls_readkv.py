"""One valid call, or two, of every checked function of refimpl.readkv, argument by argument; see valid_calls_locks."""

from fractions import Fraction

import numpy as np
from argument_kinds import Choice, Free, Integers, Number, Rate, Reals, Scale, Whole, Wholes

from refimpl.checks import Sizes
from refimpl.readkv import (
    access_instances,
    access_model,
    accounting,
    affine,
    allocation,
    arrays,
    budgets,
    calibration,
    codebooks,
    codec,
    entropy,
    importance,
    optimum,
    planes,
    policies,
    reader,
    restricted,
    reuse_model,
    rotation,
    tree,
    waterfilling,
)

POSITIVE, NONNEGATIVE = {"above": 0.0}, {"low": 0.0}
CODES = Integers("H T d", 0, 255, np.random.default_rng(0).integers(0, 256, size=(2, 18, 8)))


def state():
    """The public state of a coded cache, in the order in which its shapes are read."""
    return {
        "key_mean": Reals("H d"),
        "key_scale": Reals("H d", **POSITIVE),
        "value_mean": Reals("H d"),
        "value_scale": Reals("H d", **POSITIVE),
        "key_signs": signs(),
        "value_signs": signs(),
    }


def signs():
    return Reals("d", [1, -1, 1, 1, -1, 1, -1, 1])


def reader_arguments():
    return {
        "queries": Reals("H G d"),
        "key_codes": CODES,
        "value_codes": CODES,
        **state(),
        "stored_depth": Whole(8, low=1, high=8),
        "softmax_scale": Scale(),
    }


CACHE = reader.PrefixCache(**{n: reader_arguments()[n].value for n in ("key_codes", "value_codes", *state())})
READ = {"queries": Free(np.ones((2, 3, 8))), "cache": Free(CACHE, "H T d"), "softmax_scale": Scale()}
GEOMETRY = Free(accounting.Geometry(4, 2, 8))
METHOD = Free(accounting.readkv_method(stored=8, read=2))
GAINS = Reals("S", [0.6, 0.5, 0.4, 0.3, 0.2, 0.1], at=(5,), **NONNEGATIVE)
ALLOCATION = {
    "importance": Reals("H", **NONNEGATIVE),
    "gains": GAINS,
    "budget": Whole(5, low=0, accept=(2, 99)),
    "minimum_depth": Whole(1, low=0, high=2),
}
PROMPT, STEPS = Whole(9, low=0), Whole(3, low=1)

CALLS = [
    (
        access_instances.key_score_protocol,
        {"transform": Free(np.eye(8)), "depth": Whole(2, low=1, high=12), "budget": Whole(8, low=0, high=16)},
    ),
    (access_instances.attention_protocol, {"dimension": Whole(2, low=1)}),
    (access_instances.stochastic_rounding_protocol, {"dimension": Whole(2, low=1), "storage": Whole(9, low=4)}),
    (access_model.staged, {"batches": Whole(2, low=1)}),
    (
        accounting.readkv_method,
        {"stored": Whole(8, low=1), "read": Rate(1, high=8), "protected_layers": Whole(2, low=0)},
    ),
    (accounting.cache_bits, {"geometry": GEOMETRY, "method": METHOD, "tokens": Whole(9, low=0)}),
    (accounting.cache_percent, {"geometry": GEOMETRY, "method": METHOD, "tokens": Whole(9, low=1)}),
    (accounting.read_bits, {"geometry": GEOMETRY, "method": METHOD, "tokens": Whole(9, low=0)}),
    (accounting.read_percent, {"geometry": GEOMETRY, "method": METHOD, "lengths": Wholes([1, 2], low=1)}),
    (accounting.call_lengths, {"lengths": Wholes([1, 2], low=1)}),
    (accounting.prediction_lengths, {"tokens": Whole(9, low=1)}),
    (accounting.generation_lengths, {"prompt": PROMPT, "answer": Whole(3, low=1)}),
    (affine.affine_quantize, {"x": Reals("H T d", rank_free=True), "bits": Whole(2, low=1, high=8)}),
    (
        affine.affine_dequantize,
        {"codes": Integers("H T d", 0, 255, rank_free=True), "scale": Reals("H T"), "zero": Reals("H T")},
    ),
    (allocation.readkv_choose_depths, ALLOCATION),
    (allocation.choose_depths_heap, ALLOCATION),
    (
        allocation.choose_group_depths,
        {
            "importance": Free(np.ones(2)),
            "costs": Free(np.array([2, 1])),
            "gains": Free(np.array([0.5, 0.25])),
            "budget": Free(6),
            "minimum_depth": Free(1),
        },
    ),
    (arrays.real_array, {"name": Free("value"), "value": Reals("H T d", rank_free=True)}),
    (
        arrays.integer_array,
        {"name": Free("value"), "value": Integers("H T d", 0, 255, rank_free=True), "low": Free(0), "high": Free(255)},
    ),
    (budgets.exact_rate, {"name": Free("rate"), "rate": Rate(0.3, accept=(1, 0.5, Fraction(1, 3)))}),
    (
        budgets.budget_of_rate,
        {"rate": Rate(2.5, high=8), "items": Whole(9, low=0), "stored_depth": Free(8), "name": Free("rate")},
    ),
    (budgets.integer_splits, {"rate": Rate(2, high=8, accept=(0.5, Fraction(15, 2))), "stored_depth": Free(8)}),
    (
        budgets.choose_split,
        {"rate": Rate(2, high=8), "stored_depth": Free(8), "development_loss": Free(lambda split: 0.0)},
    ),
    (
        calibration.calibrate_samples,
        {"samples": Reals("H T d", rank_free=True), "floor": Number(0.5, above=0, optional=True)},
    ),
    (
        calibration.calibrate_moments,
        {
            "transform": Reals("d d", np.eye(8)),
            "mean": Reals("H d", rank_free=True),
            "covariance": Reals("H d d", rank_free=True),
            "floor": Number(0.5, above=0, optional=True),
        },
    ),
    (
        calibration.check_scales,
        {"name": Free("value"), "value": Reals("H d", **POSITIVE), "axes": Free("H d"), "sizes": Free(Sizes())},
    ),
    (
        allocation.check_importance,
        {"name": Free("value"), "value": Reals("H d", **NONNEGATIVE), "axes": Free("H d"), "sizes": Free(Sizes())},
    ),
    (allocation.check_gains, {"gains": GAINS}),
    (rotation.check_signs, {"name": Free("signs"), "signs": signs(), "d": Free(8)}),
    (
        codebooks.lloyd_max_codebook,
        {"bits": Whole(2, low=1, high=8), "law": Choice("normal", "sphere"), "d": Whole(4, low=1)},
    ),
    (codebooks.lloyd_max_codebook, {"bits": Whole(2, low=1, high=8), "law": Choice("sphere"), "d": Whole(8, low=4)}),
    (codec.encode, {"z": Reals("H T d", rank_free=True), "leaf_depth": Whole(5, low=1, high=12)}),
    (
        codec.decode,
        {
            "codes": Integers("H T d", 0, 31, rank_free=True),
            "depth": Integers("H T d", 0, 5, 1, rank_free=True),
            "leaf_depth": Whole(5, low=1, high=12),
        },
    ),
    (codec.readkv_encode, {"z": Reals("H T d", rank_free=True)}),
    (
        codec.readkv_decode,
        {"codes": Integers("H T d", 0, 255, rank_free=True), "depth": Integers("H T d", 0, 8, rank_free=True)},
    ),
    (entropy.cube_mmse_bound, {"dimension": Whole(3, low=1), "bits": Number(2.5, low=0)}),
    (
        entropy.observe_boxes,
        {
            "lower": Reals("H K", [[-1], [0]], low=-1.0, at=(0, 0)),
            "upper": Reals("H K", [[0], [1]]),
            "channel": Reals("H G", [[1, 0, 0], [0.5, 0.5, 0]], low=0.0, optional=True),
        },
    ),
    (
        entropy.theorem_1_upper,
        {"dimension": Whole(8, low=1, accept=(2,)), "sparsity": Whole(2, low=1, high=8), "epsilon": Number(0.5, low=0)},
    ),
    (entropy.theorem_1_converse, {"dimension": Whole(3, low=1), "probes": Whole(2, low=0)}),
    (entropy.theorem_2_upper, {"epsilon": Number(0.5, low=0)}),
    (entropy.theorem_2_converse, {"dimension": Whole(3, low=1)}),
    (importance.readkv_key_importance, {"rotated_queries": Reals("H G d"), "key_scale": Reals("H d", **POSITIVE)}),
    (
        importance.readkv_value_importance,
        {"weights": Reals("H G T"), "value_head_weight": Reals("H", optional=True, **NONNEGATIVE)},
    ),
    (importance.physical_head_weight, {"value_scale": Reals("H d", **POSITIVE)}),
    (planes.readkv_pack_key_planes, {"codes": Integers("T d", 0, 255)}),
    (
        planes.readkv_unpack_key_planes,
        {"planes": Integers("8 d 3", 0, 255), "tokens": Whole(18, low=0, accept=(17, 24))},
    ),
    (planes.readkv_pack_value_planes, {"codes": Integers("T d", 0, 255)}),
    (
        planes.readkv_unpack_value_planes,
        {"planes": Integers("8 T 3", 0, 255), "channels": Whole(18, low=0, accept=(17, 24))},
    ),
    (
        planes.read_key_prefixes,
        {
            "planes": Integers("8 d 3", 0, 255),
            "depths": Integers("d", 0, 8),
            "tokens": Whole(18, low=0, accept=(17, 24)),
        },
    ),
    (
        planes.read_value_prefixes,
        {
            "planes": Integers("8 T 1", 0, 255),
            "depths": Integers("T", 0, 8),
            "channels": Whole(8, low=0, accept=(1, 8)),
        },
    ),
    (
        planes.append_key_planes,
        {
            "planes": Integers("8 d 3", 0, 255),
            "tokens": Whole(18, low=0, accept=(17, 24)),
            "codes": Integers("H d", 0, 255),
        },
    ),
    (
        planes.append_value_planes,
        {
            "planes": Integers("8 T 1", 0, 255),
            "channels": Whole(8, low=0, accept=(8,)),
            "codes": Integers("H 8", 0, 255),
        },
    ),
    (
        policies.read_schedule,
        {**READ, "key_depths": Integers("H d", 0, 8, 3), "value_depths": Integers("H T", 0, 8, 3)},
    ),
    (policies.read_uniform, {**READ, "key_depth": Whole(2, low=0, high=8), "value_depth": Whole(2, low=0, high=8)}),
    (policies.read_full, READ),
    (policies.calibration_key_importance, {"rotated_queries": Reals("T H G d"), "key_scale": Reals("H d", **POSITIVE)}),
    (
        policies.read_calibrated,
        {
            **READ,
            "key_importance": Reals("H d", **NONNEGATIVE),
            "value_importance": Reals("H T", **NONNEGATIVE),
            "key_budget": Whole(5, low=0),
            "value_budget": Whole(5, low=0),
        },
    ),
    (
        policies.two_depth_count,
        {
            "items": Whole(10, low=0),
            "lower": Whole(1, low=0, accept=(0, 2)),
            "upper": Whole(8, low=2),
            "budget": Whole(25, low=0, accept=(10,)),
        },
    ),
    (
        policies.two_depth_schedule,
        {
            "importance": Reals("T", **NONNEGATIVE),
            "lower": Whole(1, low=0, accept=(0,)),
            "upper": Whole(8, low=2),
            "budget": Whole(25, low=0, accept=(18,)),
        },
    ),
    (
        policies.read_two_depth,
        {
            **READ,
            "key_budget": Whole(5, low=0),
            "value_budget": Whole(5, low=0),
            "key_lower": Free(None),
            "value_lower": Free(0),
        },
    ),
    (policies.protected_layers, {"layers": Whole(6, low=0), "edge": Whole(2, low=0)}),
    (
        policies.read_layer,
        {
            "layer": Whole(1, low=0, high=1),
            "protected": Free([True, False]),
            "dense": Free(lambda: 0),
            "compressed": Free(lambda: 1),
        },
    ),
    (
        reader.encode_cache,
        {"keys": Reals("H T d"), "values": Reals("H T d"), **state(), "stored_depth": Whole(8, low=1, high=8)},
    ),
    (reader.readkv_attention, {**reader_arguments(), "key_budget": Whole(5, low=0), "value_budget": Whole(5, low=0)}),
    (restricted.readkv_restricted_attention, {**reader_arguments(), "rate": Number(1, low=1, high=8)}),
    (
        restricted.read_restricted,
        {
            **READ,
            "key_rate": Number(2, low=1, high=8),
            "value_rate": Number(2.5, low=1, high=8),
            "restrictions": Free(restricted.Restrictions(equal_rates=False)),
        },
    ),
    (
        restricted.read_restricted,
        {
            **READ,
            "key_rate": Number(2),
            "value_rate": Number(2),
            "restrictions": Free(restricted.Restrictions()),
        },
    ),
    (
        restricted.group_chooser,
        {
            "gains": Free(np.array([0.5, 0.25])),
            "rate": Free(1),
            "per_head": Free(True),
            "minimum_depth": Free(1),
            "paired": Free(True),
            "name": Free("rate"),
        },
    ),
    (reuse_model.historical_reads, {"prompt": PROMPT, "steps": STEPS}),
    (
        reuse_model.payload_traffic,
        {"stored": Rate(8), "read": Rate(2), "prompt": PROMPT, "steps": STEPS, "final_insertion": Free(True)},
    ),
    (
        reuse_model.extra_write_fraction,
        {"stored": Number(8, above=4), "fixed": Number(4, above=0), "prompt": PROMPT, "steps": STEPS},
    ),
    (reuse_model.extra_write_limit, {"stored": Rate(8), "fixed": Number(4, above=0), "steps": STEPS}),
    (
        reuse_model.steps_for_any_prompt,
        {"stored": Number(8, above=4), "fixed": Number(4, above=0), "fraction": Number(0.5, above=0)},
    ),
    (
        reuse_model.traffic_saving,
        {"stored": Rate(8), "read": Rate(2), "fixed": Rate(4), "prompt": PROMPT, "steps": STEPS},
    ),
    (
        reuse_model.crossover_steps,
        {
            "stored": Number(8, above=4),
            "read": Rate(2, accept=(3.9,)),
            "fixed": Number(4, accept=(2.1, 7.9)),
            "prompt": PROMPT,
        },
    ),
    (reuse_model.capacity_ratio, {"stored": Rate(8), "fixed": Number(4, above=0)}),
    (rotation.hadamard_matrix, {"d": Whole(8)}),
    (rotation.rotation_matrix, {"signs": signs()}),
    (rotation.readkv_rotate, {"x": Reals("H T d", rank_free=True), "signs": signs()}),
    (rotation.unrotate, {"x": Reals("H T d", rank_free=True), "signs": signs()}),
    (tree.readkv_tree, {"depth": Whole(3, low=1, high=12)}),
    (
        waterfilling.continuous_depths,
        {"importance": Reals("T", **NONNEGATIVE), "depth_cap": Number(8.0, above=0), "budget": Number(9.5, low=0)},
    ),
    (
        waterfilling.dependent_rounding,
        {
            "depths": Free(np.full(4, 0.5)),
            "total": Whole(2, low=2, high=2),
            "generator": Free(np.random.default_rng(0)),
        },
    ),
]

UNCHECKED = {
    # of arrays and numbers that are checked already
    allocation.surrogate, budgets.payload_bits, budgets.mean_payload_rate, calibration.standardize, calibration.restore,
    codec.encode_leaves, codec.decode_prefixes, codebooks.positive_codebook, optimum.optimum_by_programming,
    optimum.optimum_by_milp, planes.bytes_for, policies.two_depth_spent, reader.reconstructed_keys,
    reader.reconstructed_values, reader.read_two_stages, reader.pooled_chooser, restricted.pair_costs,
    rotation.fast_hadamard, tree.split_points, tree.lloyd_tree, tree.deployed_table,
    tree.effective_distortions, waterfilling.geometric_objective, accounting.schedule_payload_bits,
    access_instances.attention_family,
    # of objects and quantities of any sign
    access_model.write_record, access_model.run_protocol, access_model.leaves_of_reader, reader.check_cache,
    reuse_model.concurrent_requests, reuse_model.step_bytes, reuse_model.relative_throughput,
}  # fmt: skip
