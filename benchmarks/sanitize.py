"""Run every chain of `fastimpl` once on small, odd sizes, for compute-sanitizer.

Run on a CUDA device, every tensor in an allocation of its own so that a step past its end is seen:

    PYTORCH_NO_CUDA_MEMORY_CACHING=1 compute-sanitizer --tool memcheck --log-file benchmarks/results/sanitizer.txt \
        python benchmarks/sanitize.py

Prints a line per chain. Lengths are odd, one sequence is empty, one longer than its vectors; unread planes are poisoned
and entries of the block table past a sequence lie outside the cache.
"""

import torch

from fastimpl.locks.decode import LocksChain
from fastimpl.locks.record import Layout
from fastimpl.locks.summary import build_records
from fastimpl.paging import Cache
from fastimpl.readkv.cache import append, empty_cache, encode
from fastimpl.readkv.reader import full_reader, restricted_reader

HEADS, GROUP, CHANNELS, PAGE = 2, 7, 128, 16


def draw(*shape: int) -> torch.Tensor:
    """Normal numbers in bfloat16."""
    return torch.randn(*shape, device="cuda").bfloat16()


def readkv(lengths: list[int], room: int, stored_depth: int) -> None:
    """Encode, append, read with unread planes poisoned, and read everything."""
    signs = {
        name: torch.where(torch.randn(CHANNELS, device="cuda") < 0, -1.0, 1.0) for name in ("key_signs", "value_signs")
    }
    numbers = {name: torch.rand(HEADS, CHANNELS, device="cuda") + 0.5
               for name in ("key_mean", "key_scale", "value_mean", "value_scale")}  # fmt: skip
    cache = empty_cache(len(lengths), room, numbers | signs, stored_depth)
    cache.lengths.copy_(torch.tensor(lengths, device="cuda"))
    encode(cache, draw(len(lengths), HEADS, room, CHANNELS), draw(len(lengths), HEADS, room, CHANNELS))
    cache.lengths.clamp_(max=room)
    append(cache, draw(len(lengths), HEADS, CHANNELS), draw(len(lengths), HEADS, CHANNELS))
    queries = draw(len(lengths), HEADS, GROUP, CHANNELS)
    chain = restricted_reader(queries, cache, 1.5, CHANNELS**-0.5)
    right = chain.run().clone()
    for plane in range(stored_depth):
        cache.key_planes[:, plane] ^= torch.where(chain.key_depths <= plane, -1, 0)[:, :, None].int()
        half = 0xFFFF if plane % 2 == 0 else -0x10000
        cache.value_planes[:, plane // 2] ^= torch.where(chain.value_depths <= plane, half, 0)[:, :, None].int()
    same = torch.equal(chain.run(), right)
    full_reader(queries, cache, CHANNELS**-0.5).run()
    torch.cuda.synchronize()
    print(
        f"readkv, lengths {lengths}, {stored_depth} planes: poisoned planes {'change nothing' if same else 'ARE READ'}"
    )


def locks(lengths: list[int]) -> None:
    """Build records and decode; entries of the table past a row's end point outside the cache."""
    pages = -(-max(lengths) // PAGE)
    blocks = len(lengths) * pages
    keys, values = draw(blocks, PAGE, HEADS, CHANNELS), draw(blocks, PAGE, HEADS, CHANNELS)
    table = torch.randperm(blocks).view(len(lengths), pages).to("cuda", torch.int32)
    for n, length in enumerate(lengths):
        table[n, -(-length // PAGE) :] = 2**30
    tokens = torch.tensor(lengths, device="cuda", dtype=torch.int32)
    strides = [(x.stride(0), x.stride(1), x.stride(2)) for x in (keys, values)]
    cache = Cache(keys, values, *strides, PAGE, HEADS, CHANNELS, blocks, tokens, table, max(lengths))
    layout = Layout(PAGE, CHANNELS, 8, 4, "float32")
    records = layout.empty(HEADS, blocks, "cuda")
    build_records(cache, layout, records)
    LocksChain(draw(len(lengths), HEADS, 8, CHANNELS), cache, records, layout, 8, CHANNELS**-0.5).run()
    torch.cuda.synchronize()
    print(f"locks, lengths {lengths}: done")


if __name__ == "__main__":
    torch.manual_seed(0)
    readkv([515, 1], 515, 8)
    readkv([700, 0], 300, 3)
    locks([1029, 0, 333])
