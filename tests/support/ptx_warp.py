"""`ptx_machine` for one warp's arithmetic: float32, 64-bit addresses, conversions and matrix products of TF32."""

import re

import numpy as np
from ptx_machine import COMPARE, Machine

U, S, F = np.uint32, np.int32, np.float32
LANES = np.arange(32)


class WarpMachine(Machine):
    """One warp. Registers are uint32 (float32 by their bits), uint64 or bool arrays of 32."""

    def __init__(self, text, operands, memory):
        super().__init__(text, {}, memory, 32)
        self.values |= {f"${i}": np.broadcast_to(v, 32).astype(np.uint64 if i < 5 else U) for i, v in operands.items()}
        self.values["%laneid"] = LANES.astype(U)

    def _declare(self, part):
        array = re.match(r"\.shared .*\.b8 (\w+)\[(\d+)\]", part)
        if array:
            part = f".shared .b32 {array[1]}[{int(array[2]) // 4}]"
        super()._declare(part)

    def read(self, name):
        name = name.strip()
        if name.startswith("0f"):
            return np.full(32, int(name[2:], 16), U)
        return super().read(name)

    def floats(self, names):
        return [self.read(name).view(F) for name in names]

    def step(self, op, args, live):
        if op[0] in ("ld", "st", "bar"):
            if op[0] != "bar":
                super().step(op, args, live)
        elif op[0] == "mma":
            self.product(args)
        elif args[0].startswith("{"):
            low, high = args[0].strip("{}").split(",")
            whole = self.read(args[1])
            half = np.uint64(32) if whole.dtype == np.uint64 else U(16)
            mask = np.uint64(0xFFFFFFFF) if whole.dtype == np.uint64 else U(0xFFFF)
            self.put(low, (whole & mask).astype(U), live)
            self.put(high, (whole >> half).astype(U), live)
        elif args[1].startswith("{"):
            low, high = (self.read(x).astype(np.uint64) for x in args[1].strip("{}").split(","))
            self.put(args[0], low | high << np.uint64(32), live)
        else:
            with np.errstate(all="ignore"):
                self.put(args[0], self.result(op, args), live)

    def result(self, op, args):
        kind, last = op[0], op[-1]
        if kind == "shfl":
            lanes = LANES ^ self.read(args[2]).astype(int) if op[2] == "bfly" else self.read(args[2]).astype(int) & 31
            if args[3] == "0x1c1f":  # within four
                lanes = LANES & 28 | lanes & 3
            return self.read(args[1])[lanes]
        if kind == "vote":
            return np.full(32, self.read(args[1]).any())
        if kind == "selp":
            return np.where(self.read(args[3]), self.read(args[1]), self.read(args[2]))
        if kind == "setp":
            a, b = (self.read(x).view(F if last == "f32" else U) for x in args[1:3])
            found = COMPARE[op[1]](a, b)
            return found & self.read(args[3]) if op[2] == "and" else found
        if kind == "cvt":
            return self.converted(op, args)
        if kind == "prmt":
            both = self.read(args[1]).astype(np.uint64) | self.read(args[2]).astype(np.uint64) << np.uint64(32)
            pick = int(args[3], 16)
            picked = [both >> np.uint64(8 * (pick >> 4 * i & 7)) & np.uint64(255) for i in range(4)]
            return sum(byte << np.uint64(8 * i) for i, byte in enumerate(picked)).astype(U)
        if last == "f32" and kind != "mov":
            return np.asarray(self.float_result(kind, self.floats(args[1:])), F).view(U)
        return self.integer_result(kind, op, args)

    def float_result(self, kind, x):
        match kind:
            case "fma":
                return (x[0].astype(np.float64) * x[1].astype(np.float64) + x[2]).astype(F)
            case "rsqrt":
                return 1 / np.sqrt(x[0])
            case "rcp":
                return 1 / x[0]
        simple = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "max": np.fmax, "min": np.fmin, "abs": np.abs,
                  "neg": np.negative, "div": np.divide, "sqrt": np.sqrt}  # fmt: skip
        return simple[kind](*x)

    def integer_result(self, kind, op, args):
        wide = op[-1] in ("s64", "u64", "b64") or "wide" in op
        x = [self.read(a).astype(np.uint64) for a in args[1:]]
        match kind:
            case "mov":
                value = x[0]
            case "mad":
                value = x[0] * x[1] + x[2]
            case _:
                simple = {"add": np.add, "sub": np.subtract, "and": np.bitwise_and, "xor": np.bitwise_xor,
                          "shl": np.left_shift, "shr": np.right_shift}  # fmt: skip
                value = simple[kind](x[0], x[1])
        return value if wide else value.astype(U)

    def converted(self, op, args):
        x = [self.read(a) for a in args[1:]]
        if op[-2:] == ["f16x2", "f32"]:
            high, low = (v.view(F).astype(np.float16).view(np.uint16).astype(U) for v in x)
            return high << U(16) | low
        if op[-1] == "f16":
            return x[0].astype(np.uint16).view(np.float16).astype(F).view(U)
        return x[0].view(S).astype(np.int64).view(np.uint64) if op[-1] == "s32" else x[0].astype(np.uint64)

    def product(self, args):
        """m16n8k8 of TF32: of a lane 4 g + q rows g and g + 8, columns q and q + 4; of the result 2q and 2q + 1."""
        _, a, b, c = ([self.read(x) for x in arg.strip("{}").split(",")] for arg in args)
        left, right, total = np.zeros((16, 8)), np.zeros((8, 8)), np.zeros((16, 8), F)
        g, q = LANES // 4, LANES % 4
        for i in range(4):
            left[g + 8 * (i % 2), q + 4 * (i // 2)] = (a[i] & U(0xFFFFE000)).view(F)
            total[g + 8 * (i // 2), 2 * q + i % 2] = c[i].view(F)
        for i in range(2):
            right[q + 4 * i, g] = (b[i] & U(0xFFFFE000)).view(F)
        total = (left @ right + total).astype(F)
        for i, name in enumerate(args[0].strip("{}").split(",")):
            self.put(name, total[g + 8 * (i // 2), 2 * q + i % 2].view(U), np.ones(32, bool))
