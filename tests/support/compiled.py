"""Shared libraries built for a test."""

import os
import shutil
import subprocess

CC = os.environ.get("CC") or shutil.which("gcc") or shutil.which("clang") or shutil.which("cc")
CXX = os.environ.get("CXX") or shutil.which("g++") or shutil.which("clang++") or shutil.which("c++")
RUSTC = os.environ.get("RUSTC") or shutil.which("rustc")


def shared_library(source, target, *flags, compiler=CC):
    """Compile one C or C++ file into the shared library ``target``; a warning is an error."""
    warnings = ("-Wall", "-Wextra", "-Werror")
    command = [compiler, "-O1", *warnings, *flags, "-shared", "-fPIC", "-o", str(target), str(source), "-lm"]
    subprocess.run(command, check=True)
    return str(target)
