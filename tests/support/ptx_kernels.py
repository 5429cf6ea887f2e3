"""Runs kernels with inline PTX in Triton's interpreter: every text goes through `ptx_machine.Machine`.

`MatrixMachine` adds what the encoder's texts use: float32 sums and products with their roundings, byte permutations,
and matrix products. Shared memory is kept from one text of a program to the next.
"""

import re

import numpy as np
import triton.language as tl
from ptx_machine import Machine, OwnMemory
from triton.runtime.interpreter import TensorHandle

F, U, S = np.float32, np.uint32, np.int32


def floats(words):
    return words.astype(U).view(F).astype(np.float64)


def words_of(values, toward_zero=False):
    """Float32 of float64, to nearest even or toward zero."""
    rounded = values.astype(F)
    if toward_zero:
        beyond = np.abs(rounded.astype(np.float64)) > np.abs(values)
        rounded = np.where(beyond, np.nextafter(rounded, F(0)), rounded)
    return rounded.view(U)


def halves(words, kind):
    """Both halves of words as float64: [..., 2]."""
    both = np.stack([words & 0xFFFF, words >> 16], axis=-1).astype(U)
    return floats(both << 16) if kind == "bf16" else both.astype(np.uint16).view(np.float16).astype(np.float64)


class MatrixMachine(Machine):
    def read(self, name):
        if name.strip().startswith("0f"):
            name = "0x" + name.strip()[2:]
        return super().read(name)

    def step(self, op, args, live):
        kind = op[0]
        if kind == "cp":  # asynchronous copies arrive at once
            return self.copy(op, args, live) if "shared" in op else None
        if kind == "mma":
            return self.multiply_bytes(args) if "u8" in op else self.multiply(op, args)
        if kind in ("ld", "st") and "shared" in op:
            return self.shared_access(op, args, live)
        if kind == "st" and op[-1] == "b16":
            raise AssertionError("16-bit stores go to shared memory alone")
        found = self.numbers(op, args)
        if found is not None:
            return self.put(args[0], found if found.dtype in (bool, np.int64) else found.astype(U), live)
        return super().step(op, args, live)

    def shared_access(self, op, args, live):
        names, place = (args[0], args[1]) if op[0] == "ld" else (args[1], args[0])
        for i, name in enumerate(names.strip("{}").split(",")):
            where = self.address(place)[live] + 4 * i
            if op[-1] == "b16":
                self.shared.view(np.uint16)[where // 2] = self.read(name)[live]
            elif op[0] == "st":
                self.shared[where // 4] = self.read(name)[live]
            else:
                value = np.zeros(self.threads, U)
                value[live] = self.shared[where // 4]
                self.put(name.strip(), value, live)

    def copy(self, op, args, live):
        for i in range(0, int(args[2]), 4):
            self.shared[(self.address(args[0])[live] + i) // 4] = self.memory.load(self.address(args[1])[live] + i)

    def numbers(self, op, args):
        """The result of an instruction that `Machine` lacks, or None."""
        kind = op[0]
        if kind == "rcp":
            with np.errstate(divide="ignore"):
                return words_of(1.0 / floats(self.read(args[1])))
        if kind not in ("fma", "add", "sub", "mul", "div", "setp", "lop3", "xor", "mad"):
            return None
        given = [self.read(a) for a in args[1:]]
        if kind == "fma":
            exact = floats(given[0]) * floats(given[1]) + floats(given[2])
            if "sat" in op:
                exact = np.clip(np.nan_to_num(exact, nan=0.0), 0.0, 1.0)
            return words_of(exact, "rz" in op)
        if kind in ("add", "sub", "mul", "div") and op[-1] == "f32":
            a, b = floats(given[0]), floats(given[1])
            with np.errstate(divide="ignore", invalid="ignore"):
                exact = {"add": lambda: a + b, "sub": lambda: a - b, "mul": lambda: a * b, "div": lambda: a / b}[kind]()
            return words_of(exact, "rz" in op)
        if kind == "setp" and op[-1] == "f32":
            return floats(given[0]) < floats(given[1])
        if kind == "lop3":
            assert int(given[3][0]) == 0xE4
            return (given[0] & given[2]) | (given[1] & ~given[2])
        if kind == "xor":
            return given[0] ^ given[1]
        if kind == "mad":
            return given[0] * given[1] + given[2]
        if kind == "mul" and "lo" in op:
            return given[0] * given[1]
        return None

    def multiply(self, op, args):
        """m16n8k16 of floats, one product per warp."""
        lists = [[self.read(n) for n in a.strip("{} ").split(",")] for a in args[1:]]
        lane = np.arange(32)
        group, quad = lane // 4, lane % 4
        result = [np.zeros(self.threads, U) for _ in range(4)]
        for warp in range(self.threads // 32):
            own = slice(32 * warp, 32 * warp + 32)
            a, b, c = np.zeros((16, 16)), np.zeros((16, 8)), np.zeros((16, 8))
            for i in range(4):
                for half in range(2):
                    a[group + 8 * (i % 2), 2 * quad + half + 8 * (i // 2)] = halves(lists[0][i][own], op[-2])[:, half]
                c[group + 8 * (i // 2), 2 * quad + i % 2] = floats(lists[2][i][own])
            for i in range(2):
                for half in range(2):
                    b[2 * quad + half + 8 * i, group] = halves(lists[1][i][own], op[-2])[:, half]
            product = a @ b + c
            for i in range(4):
                result[i][own] = words_of(product[group + 8 * (i // 2), 2 * quad + i % 2])
        for name, value in zip(args[0].strip("{} ").split(","), result, strict=True):
            self.put(name.strip(), value, np.ones(self.threads, bool))

    def multiply_bytes(self, args):
        """m16n8k32 of unsigned times signed bytes."""
        lists = [[self.read(n) for n in a.strip("{} ").split(",")] for a in args[1:]]
        group, quad = np.arange(32) // 4, np.arange(32) % 4
        result = [np.zeros(self.threads, U) for _ in range(4)]
        for warp in range(self.threads // 32):
            own = slice(32 * warp, 32 * warp + 32)
            a, b = np.zeros((16, 32), np.int64), np.zeros((32, 8), np.int64)
            for byte in range(4):
                for i in range(4):
                    a[group + 8 * (i % 2), 4 * quad + byte + 16 * (i // 2)] = lists[0][i][own] >> U(8 * byte) & U(255)
                for i in range(2):
                    b[4 * quad + byte + 16 * i, group] = (lists[1][i][own] >> U(8 * byte)).astype(np.int8)
            product = a @ b
            for i in range(4):
                before = lists[2][i][own].view(S)
                result[i][own] = (product[group + 8 * (i // 2), 2 * quad + i % 2] + before).astype(S).view(U)
        for name, value in zip(args[0].strip("{} ").split(","), result, strict=True):
            self.put(name.strip(), value, np.ones(self.threads, bool))


class Inline:
    """What takes the place of ``tl.inline_asm_elementwise`` while one kernel runs."""

    def __init__(self):
        self.shared = np.zeros(0, U)

    def __call__(self, text, constraints, args, dtype, is_pure, pack, _semantic=None):
        assert pack == 1
        text, many = getattr(text, "value", text), not isinstance(getattr(dtype, "value", dtype), tl.dtype)
        dtypes = list(getattr(dtype, "value", dtype)) if many else [dtype]
        given = [np.asarray(a.handle.data) if hasattr(a, "handle") else np.asarray(a) for a in args]
        threads = max(g.size for g in given)
        operands = {len(dtypes) + i: self.words(np.broadcast_to(g.ravel(), threads)) for i, g in enumerate(given)}
        machine = MatrixMachine(re.sub(r"//.*", "", text), operands, OwnMemory(), threads)
        if machine.bases:
            self.shared = machine.shared
        machine.shared = self.shared
        machine.run()
        scalar = all(not a.type.is_block() for a in args if isinstance(a, tl.tensor))
        found = [self.tensor(machine.values[f"${i}"].astype(U), kind, scalar) for i, kind in enumerate(dtypes)]
        return tuple(found) if many else found[0]

    @staticmethod
    def words(values):
        if values.dtype == np.float64:  # a scalar argument
            values = values.astype(F)
        if values.dtype.itemsize == 8:
            return values.astype(np.int64)
        return values.view(U) if values.dtype == F else values.astype(np.int64).astype(U)

    @staticmethod
    def tensor(data, kind, scalar):
        kind = getattr(kind, "value", kind)
        data = data.view(F if kind == tl.float32 else S)
        return tl.tensor(TensorHandle(data, kind), kind if scalar else tl.block_type(kind, [data.size]))
