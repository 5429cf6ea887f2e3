"""A small machine that runs straight PTX texts in lockstep, on NumPy: enough of the language for `select_ptx`.

Every register is an array with one 32-bit number per thread. All threads take the same branches (checked), so a barrier
has nothing to do; what it cannot show is a missing one.
"""

import re

import numpy as np

U, S = np.uint32, np.int32
COMPARE = {"eq": np.equal, "ne": np.not_equal, "lt": np.less, "ge": np.greater_equal, "gt": np.greater}


class Machine:
    def __init__(self, text, operands, memory, threads):
        self.threads, self.memory = threads, np.asarray(memory, S).view(U)
        self.values = {f"${i}": np.full(threads, v, np.int64).astype(U) for i, v in operands.items()}
        tid = np.arange(threads)
        self.values |= {"%tid.x": tid.astype(U), "%laneid": (tid % 32).astype(U)}
        self.values["%lanemask_lt"] = ((1 << (tid % 32)) - 1).astype(U)
        self.shared, self.bases, self.steps, self.labels = np.zeros(0, U), {}, [], {}
        for part in text.strip().removeprefix("{").removesuffix("}").replace("\n", " ").split(";"):
            self._declare(part.strip())

    def _declare(self, part):
        label = re.match(r"(\w+):\s*", part)
        if label:
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
        return (self.read(name).astype(np.int64) + int(offset or 0)) // 4

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
        value = np.asarray(value)
        value = value if value.dtype == bool else value.astype(np.int64).astype(U)
        self.values[name] = np.where(live, value, self.values.get(name, np.zeros_like(value)))

    def step(self, op, args, live):
        kind, number = op[0], S if op[-1].startswith("s") else U
        store = self.shared if len(op) > 1 and op[1] == "shared" else self.memory
        if kind in ("st", "red"):
            for i, name in enumerate(args[1].strip("{}").split(",")):
                where, value = self.address(args[0])[live] + i, self.read(name)[live]
                if kind == "red":
                    np.add.at(store, where, value)
                else:
                    store[where] = value
        elif kind == "ld":
            for i, name in enumerate(args[0].strip("{}").split(",")):
                self.put(name.strip(), store[np.where(live, self.address(args[1]) + i, 0)], live)
        elif kind == "shfl":
            self.shuffle(op, args, live)
        else:
            self.put(args[0], self.value(kind, op, args, number), live)

    def value(self, kind, op, args, number):
        a, *more = (self.read(x).view(number) if x not in self.values or self.values[x].dtype == U else self.values[x]
                    for x in args[1:])  # fmt: skip
        b = more[0] if more else None
        warps = a.reshape(-1, 32)
        return {
            "mov": lambda: a, "add": lambda: a + b, "sub": lambda: a - b, "max": lambda: np.maximum(a, b),
            "min": lambda: np.minimum(a, b), "mul": lambda: a.astype(np.int64) * b,
            "shl": lambda: np.where(b < 32, a << (b & 31), 0), "shr": lambda: np.where(b < 32, a >> (b & 31), 0),
            "and": lambda: a & b, "or": lambda: a | b, "popc": lambda: [int(x).bit_count() for x in a],
            "setp": lambda: COMPARE[op[1]](a, b), "selp": lambda: np.where(more[1], a, b),
            "brev": lambda: [int(f"{x:032b}"[::-1], 2) for x in a],
            "clz": lambda: [32 - int(x).bit_length() for x in a],
            "redux": lambda: np.repeat({"max": np.max, "min": np.min, "add": np.sum}[op[2]](warps, 1), 32),
            "vote": lambda: np.repeat((warps.astype(np.int64) << np.arange(32)).sum(1), 32),
        }[kind]()  # fmt: skip

    def shuffle(self, op, args, live):
        target, _, flag = args[0].partition("|")
        lane, source = np.arange(self.threads) % 32, self.read(args[2]).astype(np.int64)
        other = lane - source if op[2] == "up" else source
        inside = (other >= 0) & (other < 32)
        if flag:
            self.put(flag, inside, live)
        value = self.read(args[1])
        self.put(target, value[np.arange(self.threads) - lane + np.where(inside, other, lane)], live)
