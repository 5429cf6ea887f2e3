"""The partial-read cache model: protocols whose readers may use only what their class allows (Sec. 2, App. C)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from refimpl.checks import whole

IDLE_BATCHES = 64
"""How often in a row a reader may ask only for what it already has; one that goes on never stops."""


class IllegalAccess(ValueError):  # noqa: N818  the paper's word for what happened
    """A protocol used information, an address or a probe that its class or its budgets do not allow."""


@dataclass(frozen=True)
class ReaderClass:
    """A row of Table 1: whether addresses may depend on the query, and in how many batches they are chosen.

    An address of a later batch may depend on the bits of earlier ones; ``batches`` None is any number of them, so that
    every address may depend on all returned bits.
    """

    name: str
    uses_query: bool
    batches: int | None

    def within(self, other: ReaderClass) -> bool:
        """Whether every protocol of this class is one of ``other`` (Proposition 4's inclusions).

        >>> OBLIVIOUS.within(staged(1)), QUERY_INDEPENDENT.within(staged(1)), staged(2).within(BRANCHING)
        (True, False, True)
        """
        fewer = other.batches is None or (self.batches is not None and self.batches <= other.batches)
        return fewer and self.uses_query <= other.uses_query


OBLIVIOUS = ReaderClass("query-oblivious fixed pattern", uses_query=False, batches=1)
QUERY_INDEPENDENT = ReaderClass("query-independent branching", uses_query=False, batches=None)
BRANCHING = ReaderClass("fully branching", uses_query=True, batches=None)


def staged(batches: int) -> ReaderClass:
    """staged(J): at most J batches, each chosen from the query and the batches before it.

    >>> staged(2)
    ReaderClass(name='staged(2)', uses_query=True, batches=2)
    """
    batches = whole("batches", batches, low=1)
    return ReaderClass(f"staged({batches})", uses_query=True, batches=batches)


class Coins(NamedTuple):
    """Randomness independent of source and query: shared, the encoder's own, and the reader's and decoder's."""

    public: Any = None
    encoder: Any = None
    reader: Any = None


@dataclass
class View:
    """What the reader sees when it chooses a batch; asking for the query outside a class that may is illegal."""

    access: ReaderClass
    coins: Coins
    _query: Any
    returned: dict[int, int] = field(default_factory=dict)
    """Bits of the batches before this one, by address."""
    batch: int = 0
    """How many batches were returned before this one."""

    @property
    def query(self) -> Any:
        """The query; raises IllegalAccess if addresses may not depend on it."""
        if not self.access.uses_query:
            raise IllegalAccess(f"query: a {self.access.name} reader must choose addresses without it")
        return self._query


class Evidence(NamedTuple):
    """What the decoder sees, in every class: the query, the returned bits by address, and the coins it may know."""

    query: Any
    returned: dict[int, int]
    coins: Coins


@dataclass(frozen=True)
class Protocol:
    """An encoder, a reader and a decoder with their budgets of stored bits and probes.

    encoder(source, coins) -> bits, at most ``storage`` of them (padded with 0); it has no query.
    reader(view) -> the next batch of addresses 0..storage-1, or an empty one to stop.
    decoder(evidence) -> the answer.
    """

    access: ReaderClass
    storage: int
    probes: int
    encoder: Callable[[Any, Coins], Sequence[int]]
    reader: Callable[[View], Sequence[int]]
    decoder: Callable[[Evidence], Any]


class Execution(NamedTuple):
    """One run: the answer, the batches of addresses, the probes made and the bits that the encoder wrote."""

    answer: Any
    batches: list[list[int]]
    probes: int
    stored_bits: int


def write_record(protocol: Protocol, source: Any, coins: Coins) -> list[int]:
    """The encoder's bits, before padding; IllegalAccess for more than ``storage`` or anything but 0 and 1."""
    hidden = Coins(public=coins.public, encoder=coins.encoder)  # the reader's coins are drawn apart
    record = [int(bit) for bit in protocol.encoder(source, hidden)]
    if len(record) > protocol.storage:
        raise IllegalAccess(f"encoder: expected at most {protocol.storage} stored bits, got {len(record)}")
    if any(bit not in (0, 1) for bit in record):
        raise IllegalAccess("encoder: expected a record of bits 0 and 1")
    return record


def run_protocol(protocol: Protocol, source: Any, query: Any, coins: Coins | None = None) -> Execution:
    """Run one source and query through a protocol and count what is stored and probed.

    An address that was read before costs nothing again. The decoder sees what its class's reader fetched, the query and
    the coins, whatever the class.

    Raises:
        IllegalAccess: an address outside the record, more probes than allowed, the query used where it may not be, a
            record that is too long, or a reader that never stops.

    Source: ReadKV Sec. 2, App. C.2.

    A one-bit record of a sign; the reader may not look at the query, the decoder may.

    >>> protocol = Protocol(OBLIVIOUS, storage=1, probes=1, encoder=lambda x, coins: [int(x > 0)],
    ...     reader=lambda view: [0], decoder=lambda seen: seen.query * (2 * seen.returned[0] - 1))
    >>> run_protocol(protocol, source=-0.5, query=3.0)
    Execution(answer=-3.0, batches=[[0]], probes=1, stored_bits=1)
    """
    coins = coins or Coins()
    record = write_record(protocol, source, coins)
    cells = record + [0] * (protocol.storage - len(record))
    seen = Coins(public=coins.public, reader=coins.reader)  # the encoder's coins reach the reader only in the record
    view = View(protocol.access, seen, query)
    batches: list[list[int]] = []
    idle = 0
    while protocol.access.batches is None or len(batches) < protocol.access.batches:
        addresses = [int(address) for address in protocol.reader(view)]
        if not addresses:
            break
        batches.append(addresses)
        fetched = _fetch(protocol, cells, addresses, view.returned)
        idle = idle + 1 if fetched.keys() <= view.returned.keys() else 0
        _check_idle(idle)
        view.returned = view.returned | fetched
        view.batch += 1
    answer = protocol.decoder(Evidence(query, view.returned, seen))
    return Execution(answer, batches, len(view.returned), len(record))


def _fetch(protocol: Protocol, cells: list[int], addresses: list[int], known: dict[int, int]) -> dict[int, int]:
    for address in addresses:
        if not 0 <= address < protocol.storage:
            raise IllegalAccess(f"reader: expected addresses in 0..{protocol.storage - 1}, got {address}")
    total = len(known.keys() | set(addresses))
    if total > protocol.probes:
        raise IllegalAccess(f"reader: expected at most {protocol.probes} probes, got {total}")
    return {address: cells[address] for address in addresses}


def _check_idle(idle: int) -> None:
    if idle > IDLE_BATCHES:
        raise IllegalAccess(f"reader: expected it to stop, got {idle} batches in a row without a new address")


def leaves_of_reader(protocol: Protocol, coins: Coins | None = None) -> set[tuple[tuple[int, int], ...]]:
    """All transcripts (address, bit), ... that a query-independent reader can produce over all records.

    They are the leaves of its binary decision tree; there are at most 2^probes of them, which is what limits its
    information to ``probes`` bits. Exponential in the probes: for small protocols.

    Raises IllegalAccess as `run_protocol`; the reader is offered no query.

    Source: ReadKV App. E.1.1 (converse).

    >>> fixed = Protocol(OBLIVIOUS, 2, 2, lambda x, c: x, lambda view: [0, 1], lambda seen: None)
    >>> len(leaves_of_reader(fixed))
    4
    """
    coins = coins or Coins()
    leaves: set[tuple[tuple[int, int], ...]] = set()
    blind = ReaderClass(protocol.access.name, uses_query=False, batches=protocol.access.batches)

    def grow(returned: dict[int, int], batch: int, idle: int) -> None:
        stop = blind.batches is not None and batch >= blind.batches
        view = View(blind, Coins(public=coins.public, reader=coins.reader), None, returned, batch)
        addresses = [] if stop else [int(address) for address in protocol.reader(view)]
        if not addresses:
            leaves.add(tuple(returned.items()))
            return
        fresh = [address for address in dict.fromkeys(addresses) if address not in returned]
        _fetch(protocol, [0] * protocol.storage, addresses, returned)  # legality alone
        idle = 0 if fresh else idle + 1
        _check_idle(idle)
        for pattern in range(2 ** len(fresh)):
            bits = {address: pattern >> place & 1 for place, address in enumerate(fresh)}
            grow(returned | bits, batch + 1, idle)

    grow({}, 0, 0)
    return leaves
