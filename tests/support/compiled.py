"""Shared libraries built for a test."""

import os
import shutil
import subprocess
from pathlib import Path

CC = os.environ.get("CC") or shutil.which("gcc") or shutil.which("clang") or shutil.which("cc")
CXX = os.environ.get("CXX") or shutil.which("g++") or shutil.which("clang++") or shutil.which("c++")
HEADER = Path(__file__).resolve().parents[2] / "examples" / "ports" / "c"
RUSTC = os.environ.get("RUSTC") or shutil.which("rustc")


def shared_library(source, target, *flags, compiler=CC):
    """Compile one C or C++ file into the shared library ``target``; a warning is an error."""
    warnings = ("-Wall", "-Wextra", "-Werror")
    command = [compiler, "-O1", *warnings, *flags, "-shared", "-fPIC", "-o", str(target), str(source), "-lm"]
    subprocess.run(command, check=True)
    return str(target)


BEFORE = """
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "kvproof_port.h"

static inline const DLTensor* given(const kvproof_argument* arguments, int i) { return arguments[i].value.tensor; }
static inline char* first(const DLTensor* t) { return (char*)t->data + t->byte_offset; }
static inline void use(const void* a, int b, const void* c, int d, const void* e, int f) {
    (void)a, (void)b, (void)c, (void)d, (void)e, (void)f;
}
#define UNUSED use(arguments, argument_count, results, result_count, message, message_size)
"""

UNPACK = """
KVPROOF_STAGE(locks_unpack_basis) {
    UNUSED;
    const DLTensor *from = given(arguments, 0), *to = results[0].tensor;
    const int64_t *n = from->shape, *s = from->strides, *t = to->strides;
    for (int64_t h = 0; h < n[0]; ++h)
        for (int64_t p = 0; p < n[1]; ++p)
            for (int64_t r = 0; r < n[2]; ++r)
                for (int64_t i = 0; i < 2 * n[3]; ++i) {
                    int both = *(uint8_t*)(first(from) + h * s[0] + p * s[1] + r * s[2] + i / 2 * s[3]);
                    int nibble = i % 2 ? both >> 4 : both & 15;
                    first(to)[h * t[0] + p * t[1] + i * t[2] + r * t[3]] = (char)((nibble ^ 8) - 8);
                }
    return KVPROOF_OK;
}
"""


def c_library(folder, text, *flags):
    """A shared library of C text after some helpers; every one has a file of its own, since loaders know files."""
    count = sum(1 for _ in folder.glob("library*.c"))
    source = folder / f"library{count}.c"
    source.write_text(BEFORE + text)
    return shared_library(source, folder / f"liblibrary{count}.so", "-std=c11", f"-I{HEADER}", *flags)
