"""Right float32 ports of the other readers and evictions, written apart from the reference: sums and exponentials vary.

``Ways`` says how a port adds products and how it normalises; every stage is made of these and of plain float32.
"""

from dataclasses import dataclass

import numpy as np

from refimpl.readkv.tree import deployed_table

F = np.float32
OFFSETS = 2 ** np.arange(17)


def products(a, b):
    """[..., n, c] x [..., m, c] -> [..., n, m], as the library adds."""
    return a.astype(F) @ np.swapaxes(b.astype(F), -1, -2)


def one_by_one(a, b):
    """The same, one channel after the other."""
    a, b = a.astype(F), b.astype(F)
    total = np.zeros((*np.broadcast_shapes(a.shape[:-2], b.shape[:-2]), a.shape[-2], b.shape[-2]), F)
    for c in range(a.shape[-1]):
        total = total + a[..., :, None, c] * b[..., None, :, c]
    return total


def from_the_end(a, b):
    """The same, last channel first and in two halves."""
    half = a.shape[-1] // 2
    return one_by_one(a[..., half:][..., ::-1], b[..., half:][..., ::-1]) + one_by_one(a[..., :half], b[..., :half])


def divided(z):
    """exp of the difference to the maximum, divided by the sum."""
    weights = np.exp(z.astype(F) - z.max(axis=-1, keepdims=True).astype(F))
    return weights / weights.sum(axis=-1, keepdims=True, dtype=F)


def by_lse(z):
    """exp of the difference to the log-sum-exp."""
    z = z.astype(F)
    top = z.max(axis=-1, keepdims=True)
    return np.exp(z - (np.log(np.exp(z - top).sum(axis=-1, keepdims=True, dtype=F)) + top))


def base_two(z):
    """Base 2, with log2(e) folded in first."""
    z = z.astype(F) * F(1.4426950408889634)
    weights = np.exp2(z - z.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True, dtype=F)


@dataclass(frozen=True)
class Ways:
    """How one port adds and normalises."""

    dot: object = products
    softmax: object = divided


PORTS = {
    "library": Ways(),
    "one by one, lse": Ways(one_by_one, by_lse),
    "from the end, base 2": Ways(from_the_end, base_two),
}


def top(scores, kept):
    """The best, ties to the higher index, in falling order: as right as any other."""
    return np.argsort(scores, axis=-1, kind="stable")[..., ::-1][..., :kept].astype(np.int32)


def factor(softmax_scale, d):
    return F(1 / np.sqrt(d) if softmax_scale is None else softmax_scale)


def log_sum(z):
    z = z.astype(F)
    largest = z.max(axis=-1)
    return np.log(np.exp(z - largest[..., None]).sum(axis=-1, dtype=F)) + largest


class Port:
    """Every stage by name."""

    def __init__(self, ways):
        self.dot, self.softmax = ways.dot, ways.softmax

    def quest_envelope(self, *, keys, page_size):
        starts = range(0, keys.shape[1], page_size)
        ends = [(keys[:, s : s + page_size].min(1), keys[:, s : s + page_size].max(1)) for s in starts]
        return {"minimum": np.stack([a for a, _ in ends], 1), "maximum": np.stack([b for _, b in ends], 1)}

    def quest_scores(self, *, queries, minimum, maximum):
        q = queries.astype(F)
        return self.dot(np.where(q > 0, q, 0), maximum) + self.dot(np.where(q > 0, 0, q), minimum)

    def quest_pages(self, *, scores, budget_tokens, page_size, recent_pages=0):
        scores = np.array(scores)
        scores[..., scores.shape[-1] - recent_pages :] = np.inf
        pages = top(scores, min(max(3, budget_tokens // page_size), scores.shape[-1]))
        read = (pages[..., None] == np.arange(scores.shape[-1])).any(axis=(1, 2))
        return {"pages": pages, "read": read.astype(np.uint8)}

    def centroid_scores(self, *, queries, centroid, page_tokens, softmax_scale=None):
        return self.dot(factor(softmax_scale, queries.shape[-1]) * queries, centroid) + np.log(F(page_tokens))

    def moment_scores(self, *, queries, centroid, directions, energies, page_tokens, softmax_scale=None):
        scale = factor(softmax_scale, queries.shape[-1])
        scores = np.log(F(page_tokens)) + scale * self.dot(queries, centroid)
        for k in range(energies.shape[-1]):
            along = self.dot(queries, directions[..., k]) * scale
            scores = scores + along * along * (energies[:, None, :, k] / F(2 * page_tokens))
        return scores

    def shared_basis_scores(self, *, queries, mean, basis, coordinates, softmax_scale=None):
        H, P, B, r = coordinates.shape
        keys = mean[:, None] + products(coordinates.reshape(H, P * B, r), basis)
        return self.page_mass(queries, keys, (P, B), softmax_scale)

    def page_mass(self, queries, keys, pages, softmax_scale):
        logits = factor(softmax_scale, queries.shape[-1]) * self.dot(queries, keys)
        return log_sum(logits.reshape(*queries.shape[:2], *pages))

    def codebook_scores(self, *, queries, codes, codewords, softmax_scale=None):
        keys = np.stack([words[row.ravel()] for words, row in zip(codewords, codes, strict=True)])
        return self.page_mass(queries, keys, codes.shape[1:], softmax_scale)

    def probe(self, q, k, channels, softmax_scale):
        some_q = np.take_along_axis(q, channels[:, None], 2).astype(F)
        some_k = np.take_along_axis(k, channels[:, None], 2).astype(F)
        size = np.abs(q).astype(F).sum(-1)
        held = np.abs(some_q).sum(-1)
        temperature = np.sqrt(np.where(held > 0, held, 1) / np.where(held > 0, size, 1))
        return self.dot(some_q, some_k) * factor(softmax_scale, q.shape[-1]) / temperature[..., None]

    def sparse(self, q, k, v, rank, kept, ranking, local, softmax_scale, probe_keys=None):
        q, k, v = (x.astype(F) for x in (q, k, v))
        channels = top(np.abs(q).sum(1), rank)
        z = self.probe(q, k if probe_keys is None else probe_keys, channels, softmax_scale)
        pooled = np.mean(self.softmax(z) if ranking == "weights" else z, axis=1)
        pooled[:, max(k.shape[1] - 1 - local, 0) :] = np.inf
        tokens = top(pooled, min(kept + 1, k.shape[1]))
        mass = np.take_along_axis(self.softmax(z), tokens[:, None], 2).sum(-1)
        some_k, some_v = (np.take_along_axis(x, tokens[..., None], 1) for x in (k, v))
        own = self.softmax(factor(softmax_scale, q.shape[-1]) * self.dot(q, some_k)) @ some_v
        rest = v.mean(1)[:, None]
        return {"output": rest + mass[..., None] * (own - rest), "channels": channels, "tokens": tokens, "mass": mass}

    def sparq_attention(self, *, queries, keys, values, rank, kept_tokens, ranking="scores", local_tokens=0,
                        softmax_scale=None):  # fmt: skip
        return self.sparse(queries, keys, values, rank, kept_tokens, ranking, local_tokens, softmax_scale)

    def sparq_nested_attention(self, *, queries, key_codes, value_codes, key_mean, key_scale, value_mean, value_scale,
                               key_signs, value_signs, rank, kept_tokens, ranking="scores",
                               softmax_scale=None):  # fmt: skip
        leaves = np.asarray(deployed_table().centroids[8], F)
        quarters = np.asarray(deployed_table().centroids[2], F)
        probe = key_mean[:, None] + key_scale[:, None] * quarters[key_codes >> 6]
        keys = key_mean[:, None] + key_scale[:, None] * leaves[key_codes]
        values = value_mean[:, None] + value_scale[:, None] * leaves[value_codes]
        step = self.sparse(
            turned(queries.astype(F) * key_signs), keys, values, rank, kept_tokens, ranking, 0, softmax_scale, probe
        )
        return {**step, "output": turned(step["output"]) * value_signs}

    def loki_attention(self, *, queries, keys, values, components, rank, kept_tokens, softmax_scale=None):
        leading = np.swapaxes(components[..., :rank], 1, 2)
        z = self.dot(self.dot(queries, leading), self.dot(keys, leading))
        tokens = top(z, min(kept_tokens, keys.shape[1]))
        output = np.zeros(queries.shape, F)
        for h, g in np.ndindex(queries.shape[:2]):
            index = tokens[h, g]
            logits = factor(softmax_scale, queries.shape[-1]) * self.dot(queries[h, g][None], keys[h][index])
            output[h, g] = (self.softmax(logits) @ values[h][index].astype(F))[0]
        return {"output": output, "tokens": tokens}

    def shadowkv_landmarks(self, *, keys, chunk_size=8, local_chunks=4, outlier_chunks=48):
        C = max(keys.shape[1] // chunk_size - local_chunks, 0)
        chunks = keys[:, : C * chunk_size].astype(F).reshape(len(keys), C, chunk_size, -1)
        landmarks = chunks.sum(2, dtype=F) / F(chunk_size)
        unit = chunks / np.sqrt((chunks * chunks).sum(-1, keepdims=True))
        own = landmarks / np.sqrt((landmarks * landmarks).sum(-1, keepdims=True))
        worst = self.dot(unit, own[:, :, None])[..., 0].min(-1)
        return {"landmarks": landmarks, "outliers": top(-worst, min(outlier_chunks, C))}

    def shadowkv_chunks(self, *, queries, landmarks, kept_chunks, softmax_scale=None):
        shares = self.softmax(factor(softmax_scale, queries.shape[-1]) * self.dot(queries, landmarks))
        return top(shares.max(1), min(kept_chunks, landmarks.shape[1]))

    def shadowkv_low_rank(self, *, keys, rank):
        H, T, d = keys.shape
        u, s, vt = np.linalg.svd(np.moveaxis(keys.astype(F), 0, 1).reshape(T, H * d), full_matrices=False)
        return {"left": u[:, :rank] * s[:rank], "right": np.moveaxis(vt[:rank].reshape(rank, H, d), 1, 0)}

    def rocketkv_snap(self, *, queries, keys, budget_tokens, kernel=63, softmax_scale=None):
        w, T = queries.shape[2], keys.shape[1]
        logits = factor(softmax_scale, queries.shape[-1]) * self.dot(queries, keys[:, None])
        hidden = np.arange(T) > T - w + np.arange(w)[:, None]
        votes = self.softmax(np.where(hidden, F(-1e30), logits))[..., : T - w].sum(2, dtype=F).sum(1, dtype=F)
        near = [votes[:, max(i - kernel // 2, 0) : i + kernel // 2 + 1].max(1) for i in range(T - w)]
        best = top(np.stack(near, 1) if near else votes, min(budget_tokens - w, T - w))
        return np.concatenate([np.broadcast_to(np.arange(T - w, T), (len(keys), w)), best], axis=1)

    def rocketkv_tokens(self, *, queries, keys, chunk_size, rank, kept_tokens, softmax_scale=None):
        q, T = queries.astype(F), keys.shape[1]
        channels = top(np.abs(q).mean(1), rank)
        sign = np.where(q.sum(1) > 0, F(1), F(-1))[:, None]
        starts = range(0, T, chunk_size)
        extremes = np.stack([(sign * keys.astype(F))[:, s : s + chunk_size].max(1) for s in starts], 1)
        scores = self.probe(sign * q, extremes, channels, softmax_scale)
        shares = self.softmax(scores[..., np.arange(T) // chunk_size])
        return {"channels": channels, "tokens": top(shares.mean(1), min(kept_tokens, T))}

    def kvzip_keep(self, *, scores, ratio, level="pair"):
        if ratio >= 1:
            return np.ones(scores.shape, np.uint8)
        if level == "pair":
            kept = max(int(scores.size * ratio) - 1, 0)
            return (scores > np.partition(scores.ravel(), scores.size - 1 - kept)[scores.size - 1 - kept]).astype(
                np.uint8
            )
        chosen = top(scores, int(scores.shape[-1] * ratio))
        return (chosen[..., None] == np.arange(scores.shape[-1])).any(-2).astype(np.uint8)

    def evict_tokens(self, *, scores, budget_tokens, first_tokens=0, recent_tokens=0):
        index, T = np.arange(scores.shape[1]), scores.shape[1]
        kept = np.where((index < first_tokens) | (index >= T - recent_tokens), F(np.finfo(F).max), scores)
        return top(kept, min(budget_tokens, T))

    def expected_attention_scores(self, *, keys, values, query_mean, query_covariance, sinks=4, softmax_scale=None):
        scale, k = factor(softmax_scale, keys.shape[-1]), keys[:, sinks:].astype(F)
        spread = np.stack(
            [[(self.dot(k[h], query_covariance[h, g].T) * k[h]).sum(-1, dtype=F) for g in range(query_mean.shape[1])]
             for h in range(len(keys))]
        )  # fmt: skip
        weights = self.softmax(scale * self.dot(query_mean, k) + spread * (scale * scale / 2)).mean(1)
        scores = weights * np.sqrt((values[:, sinks:].astype(F) ** 2).sum(-1, dtype=F))
        first = np.full((len(keys), sinks), scores.max() + F(1), F)
        return np.concatenate([first, scores], axis=1)

    def rkv_scores(self, *, queries, keys, mix=0.1, kernel=7, softmax_scale=None):
        w, T = queries.shape[2], keys.shape[1]
        logits = factor(softmax_scale, queries.shape[-1]) * self.dot(queries, keys[:, None, : T - w])
        weights = self.softmax(logits.max(1)).sum(1, dtype=F) / F(w)
        pooled = np.stack([weights[:, max(i - kernel // 2, 0) : i + kernel // 2 + 1].max(1) for i in range(T - w)], 1)
        k = keys.astype(F)
        unit = k / (np.sqrt((k * k).sum(-1, keepdims=True, dtype=F)) + F(1e-8))
        alike = self.dot(unit, unit)
        for head in alike:
            np.fill_diagonal(head, 0)
            for row in head:
                above = np.flatnonzero(row > F(0.5))
                row[above[-1] if len(above) else 0] = 0
        return F(mix) * pooled - F(1 - mix) * self.softmax(alike.sum(1, dtype=F) / F(T))[:, : T - w]

    def triattention_scores(self, *, keys, positions, frequencies, centre, magnitude, step, offsets=OFFSETS,
                            aggregate="mean"):  # fmt: skip
        half, w = keys.shape[-1] // 2, frequencies.astype(F)
        back = (positions.astype(F)[:, None] * w).astype(F)  # undo the position, as an eviction port would
        x, y = keys[..., :half].astype(F), keys[..., half:].astype(F)
        k = (x * np.cos(back) + y * np.sin(back), y * np.cos(back) - x * np.sin(back))
        q = (centre[:, :, None, :half].astype(F), centre[:, :, None, half:].astype(F))
        size_k, size_q = np.hypot(*k)[:, None], np.hypot(*q)
        phase = np.arctan2(*q[::-1]) - np.arctan2(*k[::-1])[:, None]
        waves = []
        for offset in offsets:
            ahead = ((step - positions + int(offset)).astype(F)[:, None] * w).astype(F)
            waves.append((size_q * size_k * np.cos(ahead + phase)).sum(-1, dtype=F))
        pooled = np.max(waves, axis=0) if aggregate == "max" else np.mean(waves, axis=0, dtype=F)
        return pooled + ((magnitude[:, :, None] - size_q) * size_k).sum(-1, dtype=F)

    def lazyeviction_scores(self, *, last, interval, step, combine="product", least_interval=1.0):
        rest = np.maximum(interval.astype(F), F(least_interval))
        with np.errstate(over="ignore"):
            recent = F(2) / (F(1) + np.exp((step - last).astype(F) / rest))
        rhythm = F(2) / (F(1) + np.exp(F(1) / rest))
        return recent * rhythm if combine == "product" else recent + rhythm


def turned(x):
    """Hadamard over sqrt(d), by butterflies."""
    x, d, h = x.astype(F), x.shape[-1], 1
    while h < d:
        parts = x.reshape(*x.shape[:-1], d // (2 * h), 2, h)
        x = np.stack([parts[..., 0, :] + parts[..., 1, :], parts[..., 0, :] - parts[..., 1, :]], -2).reshape(x.shape)
        h *= 2
    return x / F(np.sqrt(d))


# The file is a port too, for `kvproof verify` and the page on tightness: one way of adding under every stage's name.
globals().update({name: getattr(Port(PORTS["one by one, lse"]), name) for name in vars(Port) if "_" in name.strip("_")})
