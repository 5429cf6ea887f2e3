"""A small machine that runs straight PTX texts in lockstep, on NumPy: enough of the language for `select_ptx`.

Every register is an array with one number of 32 or 64 bits per thread. All threads take the same branches (checked), so
a barrier has nothing to do; what it cannot show is a missing one. Memory is an array of words, or the process's own.
"""

import ctypes
import re

import numpy as np

U, S = np.uint32, np.int32
COMPARE = {"eq": np.equal, "ne": np.not_equal, "lt": np.less, "ge": np.greater_equal, "gt": np.greater,
           "le": np.less_equal}  # fmt: skip


class Words:
    """Memory that is an array of 32-bit words; its first has address 0."""

    def __init__(self, words):
        self.words = np.asarray(words, S).view(U)

    def load(self, addresses):
        return self.words[addresses // 4]

    def store(self, addresses, values):
        self.words[addresses // 4] = values


class OwnMemory:
    """The memory of this process, at real addresses."""

    def load(self, addresses):
        return np.array([ctypes.c_uint32.from_address(int(a)).value for a in addresses], U)

    def store(self, addresses, values):
        for address, value in zip(addresses, values, strict=True):
            ctypes.c_uint32.from_address(int(address)).value = int(value)


def lop3(a, b, c, table):
    """Any function of three bits, bit by bit: bit 4 a + 2 b + c of ``table``."""
    result = np.zeros_like(a)
    for case in range(8):
        if table >> case & 1:
            result |= (a if case & 4 else ~a) & (b if case & 2 else ~b) & (c if case & 1 else ~c)
    return result


class Machine:
    def __init__(self, text, operands, memory, threads):
        self.threads, self.memory = threads, memory
        self.values = {f"${i}": self._spread(v) for i, v in operands.items()}
        tid = np.arange(threads)
        self.values |= {"%tid.x": tid.astype(U), "%laneid": (tid % 32).astype(U)}
        self.values["%lanemask_lt"] = ((1 << (tid % 32)) - 1).astype(U)
        self.shared, self.bases, self.steps, self.labels = np.zeros(0, U), {}, [], {}
        for part in text.strip().removeprefix("{").removesuffix("}").replace("\n", " ").split(";"):
            self._declare(part.strip())

    def _spread(self, value):
        """A number, or one number per thread; addresses are int64 arrays."""
        array = np.broadcast_to(np.asarray(value), self.threads)
        return array if array.dtype == np.int64 and np.ndim(value) else array.astype(np.int64).astype(U)

    def _declare(self, part):
        while label := re.match(r"(\w+):\s*", part):
            self.labels[label[1]] = len(self.steps)
            part = part[label.end() :]
        array = re.match(r"\.shared .*\.b32 (\w+)\[(\d+)\]", part)
        if array:
            self.bases[array[1]] = 4 * self.shared.size
            self.shared = np.concatenate([self.shared, np.full(int(array[2]), 0xDEADBEEF, U)])
        elif part and not part.startswith(".reg"):
            self.steps.append(part)

    def read(self, name):
        name = name.strip()
        if name in self.values:
            return self.values[name]
        if name in self.bases:
            return np.full(self.threads, self.bases[name], U)
        return np.full(self.threads, int(name, 0) & 0xFFFFFFFF, U)

    def address(self, text):
        name, _, offset = text.strip("[] ").partition("+")
        return self.read(name).astype(np.int64) + int(offset or 0)

    def run(self):
        at = 0
        for _ in range(100_000):
            if at == len(self.steps):
                return
            guard = re.match(r"@(\w+)\s+", self.steps[at])
            live = self.values[guard[1]] if guard else np.ones(self.threads, bool)
            op, _, rest = self.steps[at][guard.end() if guard else 0 :].partition(" ")
            at += 1
            if op == "bra":
                assert live.all() or not live.any(), "threads part ways"
                at = self.labels[rest.strip()] if live.all() else at
            elif op != "bar.sync":
                self.step(op.split("."), [a.strip() for a in re.split(r",(?![^{]*\})", rest)], live)
        raise AssertionError("no end")

    def put(self, name, value, live):
        self.values[name] = np.where(live, value, self.values.get(name, np.zeros_like(value)))

    def step(self, op, args, live):
        kind, number = op[0], S if op[-1].startswith("s") else U
        if kind in ("st", "red"):
            for i, name in enumerate(args[1].strip("{}").split(",")):
                where, value = self.address(args[0])[live] + 4 * i, self.read(name)[live]
                if kind == "red" and "global" in op:
                    for place, more in zip(where, value, strict=True):
                        self.memory.store(np.array([place]), self.memory.load(np.array([place])) + more)
                elif kind == "red":
                    np.add.at(self.shared, where // 4, value)
                elif op[1] == "shared":
                    self.shared[where // 4] = value
                else:
                    self.memory.store(where, value)
        elif kind == "ld":
            for i, name in enumerate(args[0].strip("{}").split(",")):
                where, value = self.address(args[1])[live] + 4 * i, np.zeros(self.threads, U)
                value[live] = self.shared[where // 4] if op[1] == "shared" else self.memory.load(where)
                self.put(name.strip(), value, live)
        elif kind == "atom":
            assert live.sum() == 1, "one thread's addition"
            where, value = self.address(args[1]), np.zeros(self.threads, U)
            value[live] = self.memory.load(where[live])
            self.memory.store(where[live], value[live] + self.read(args[2])[live])
            self.put(args[0], value, live)
        elif kind == "bar":
            self.put(args[0], np.full(self.threads, self.read(args[2]).sum(), U), live)
        elif kind == "shfl":
            self.shuffle(op, args, live)
        elif kind == "cvt" and op[1] == "u64":
            self.put(args[0], self.read(args[1]).astype(np.int64), live)
        elif op[-1] == "s64":
            self.put(args[0], self.read(args[1]).astype(np.int64) + self.read(args[2]).astype(np.int64), live)
        elif kind == "mul":
            a, b = (self.read(x).view(number).astype(np.int64) for x in args[1:])
            self.put(args[0], a * b, live)
        else:
            value = np.asarray(self.value(kind, op, args, number))
            self.put(args[0], value if value.dtype == bool else value.astype(np.int64).astype(U), live)

    def value(self, kind, op, args, number):
        a, *more = (self.read(x).view(number) if x not in self.values or self.values[x].dtype == U else self.values[x]
                    for x in args[1:])  # fmt: skip
        b = more[0] if more else None
        warps = a.reshape(-1, min(32, self.threads))
        return {
            "mov": lambda: a, "add": lambda: a + b, "sub": lambda: a - b, "max": lambda: np.maximum(a, b),
            "min": lambda: np.minimum(a, b),
            "shl": lambda: np.where(b < 32, a << (b & 31), 0), "shr": lambda: np.where(b < 32, a >> (b & 31), 0),
            "rem": lambda: a % b,
            "and": lambda: a & b, "or": lambda: a | b, "popc": lambda: [int(x).bit_count() for x in a],
            "setp": lambda: COMPARE[op[1]](a, b), "selp": lambda: np.where(more[1], a, b),
            "brev": lambda: [int(f"{x:032b}"[::-1], 2) for x in a],
            "clz": lambda: [32 - int(x).bit_length() for x in a],
            "lop3": lambda: lop3(a, b, more[1], int(args[4], 0)),
            "prmt": lambda: permuted(a, b, more[1]),
            "redux": lambda: np.repeat({"max": np.max, "min": np.min, "add": np.sum}[op[2]](warps, 1), 32),
            "vote": lambda: np.repeat((warps.astype(np.int64) << np.arange(32)).sum(1), 32).astype(U),
        }[kind]()  # fmt: skip

    def shuffle(self, op, args, live):
        target, _, flag = args[0].partition("|")
        lane, source = np.arange(self.threads) % 32, self.read(args[2]).astype(np.int64)
        other = {"up": lane - source, "bfly": lane ^ source, "idx": source}[op[2]]
        inside = (other >= 0) & (other < 32)
        if flag:
            self.put(flag, inside, live)
        value = self.read(args[1])
        self.put(target, value[np.arange(self.threads) - lane + np.where(inside, other, lane)], live)


def permuted(a, b, selector):
    """Four of the eight bytes of two words, as the selector's nibbles say (prmt without signs)."""
    both, out = a.astype(np.uint64) | (b.astype(np.uint64) << np.uint64(32)), np.zeros(len(a), np.uint64)
    for i in range(4):
        byte = (selector.astype(np.uint64) >> np.uint64(4 * i)) & np.uint64(7)
        out |= ((both >> (byte * np.uint64(8))) & np.uint64(255)) << np.uint64(8 * i)
    return out.astype(U)
