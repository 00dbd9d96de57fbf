"""Compiles the modules that run for each message, if QUEUE_SUITE_COMPILE is 1; otherwise setup.cfg says everything.

mypyc makes C of them, and the C compiler makes one library of each package. The Python files are installed too, and
the compiled modules are preferred to them. It needs a C compiler and Python's headers; pip gets mypy by itself.
"""

import os
import shutil
import sys
import sysconfig
from glob import glob
from typing import Any

from setuptools import setup

# Packages without their subpackages, and single modules.
COMPILED = """
    queue_base queue_base/daemon queue_base/queue queue_clean
    queue_inject/drop.py queue_inject/filter.py queue_inject/hand_in.py queue_inject/batch queue_inject/header
    queue_intake/acceptance.py queue_intake/answers.py queue_intake/client_connection.py queue_intake/commit_group.py
    queue_intake/entrance.py queue_intake/sharing.py
    queue_remote/daemon.py queue_remote/delivery.py queue_remote/job_parts.py queue_remote/options.py
    queue_remote/report_text.py queue_remote/setup.py
    queue_remote/message/file.py queue_remote/message/message_scan.py queue_remote/message/small.py
    queue_remote/smtp
    queue_send queue_send/delivery queue_send/messages queue_send/scheduler
    queue_smtp
    queue_smtpd/sessions/client_facts.py queue_smtpd/sessions/forged_results.py
    queue_smtpd/sessions/qmtp_server.py queue_smtpd/intake_links.py queue_smtpd/sessions/received_line.py
    queue_smtpd/sessions/relay_rules.py queue_smtpd/server_counters.py queue_smtpd/sessions/session.py
    queue_smtpd/sessions/session_log.py queue_smtpd/sessions/session_policy.py queue_smtpd/smtp_connection.py
    queue_smtpd/strangers/client_limits.py queue_smtpd/strangers/connection_counts.py
    queue_smtpd/strangers/greeting_pauses.py queue_smtpd/strangers/token_bucket.py
    queue_todo
    queue_wire queue_wire/admin queue_wire/control queue_wire/control/strangers queue_wire/files queue_wire/pipes
"""
# What mypyc cannot compile, or would change. The modules that are not named above run rarely, or start a program.
PURE = {
    "queue_base/bounded_tls.py": "classes of ssl",
    "queue_base/click_group.py": "click calls what it decorates",
    "queue_base/dns_lookups.py": "a class whose base class dnspython makes",
    "queue_base/errors.py": "exceptions with class attributes that instances override",
    "queue_base/safe_open.py": "a class of OSError",
    "queue_base/shell_completion.py": "classes of click",
    "queue_base/users.py": "a structure of ctypes",
    "queue_inject/batch/batch_failure.py": "an exception whose base class is not compiled",
    "queue_inject/batch/input.py": "waits for input, and must notice an interrupt that came just before",
    "queue_inject/batch/main.py": "the same",
    "queue_inject/batch/progress_bar.py": "draws at most ten times a second",
    "queue_send/main.py": "bench/worst-turn replaces a method of its class",
    "queue_smtp/auth.py": "reads attributes of classes",
    "queue_smtp/auth_server.py": "runs once a session, and scramp does its work",
    "queue_wire/html.py": "a class of str",
    "queue_wire/format_error.py": "the variable of an `except` for its class could take no other exception",
}
# In the runtime of mypyc 2.4: a slice that ends before it begins raises SystemError.
WRONG = "Py_ssize_t slice_len = endn - startn;"
RIGHT = "Py_ssize_t slice_len = endn > startn ? endn - startn : 0;"
MENDED = "build/mended"
# Commands of setuptools that compile nothing; pip runs some of them before it has mypy.
WITHOUT_CODE = {"dist_info", "egg_info", "sdist"}


def groups() -> list[tuple[list[str], str]]:
    """Return (files, name of the library) of each package of the top level."""
    found: dict[str, list[str]] = {}
    for name in COMPILED.split():
        for file in [name] if name.endswith(".py") else sorted(glob(f"{name}/*.py")):
            if file not in PURE and not file.endswith("/__init__.py"):
                found.setdefault(name.split("/")[0], []).append(file)
    return [(files, name) for name, files in found.items()]


def check_compiler() -> None:
    """Exit with the reason if there is no C compiler, or no header of Python."""
    compiler = (os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc").split()[0]
    header = os.path.join(sysconfig.get_path("include"), "Python.h")
    lacks = None
    if shutil.which(compiler) is None:
        lacks = f"there is no C compiler ({compiler})"
    elif not os.path.exists(header):
        lacks = f"there is no {header}"
    if lacks:
        sys.exit(
            f"queue-suite: fatal: unable to compile: {lacks}; install it (on Debian: apt-get install gcc python3-dev), "
            "or unset QUEUE_SUITE_COMPILE to install Python alone, which needs no compiler"
        )


def mended_runtime() -> str:
    """Return a directory with the part of mypyc's runtime that has an error: `data[2:1]` of bytes must be b""."""
    from mypyc.build import include_dir

    with open(os.path.join(include_dir(), "bytes_ops.c"), encoding="utf-8") as file:
        text = file.read()
    if WRONG not in text:
        sys.exit("queue-suite: fatal: unable to compile: this version of mypy is not the one that was tested, 2.4")
    os.makedirs(MENDED, exist_ok=True)
    with open(f"{MENDED}/bytes_ops.c", "w", encoding="utf-8") as file:
        file.write(text.replace(WRONG, RIGHT))
    return MENDED


def compiled() -> list[Any]:
    """Return the extension modules."""
    check_compiler()
    from mypyc.build import mypycify

    parts = groups()
    # pip's environment for builds has none of the libraries that the suite uses. Where they are, as in tests/run, they
    # are not looked at, or the code would be other than that of pip.
    options = ["--config-file=", "--ignore-missing-imports", "--no-site-packages"]
    files = [file for files, _ in parts for file in files]
    extensions = mypycify(options + files, opt_level="2", debug_level="0", separate=parts)
    for extension in extensions:
        extension.include_dirs.insert(0, mended_runtime())
    return list(extensions)


def main() -> None:
    """Run the command of pip or of setuptools."""
    if os.environ.get("QUEUE_SUITE_COMPILE") != "1":
        setup()
        return
    setup(
        setup_requires=["mypy==2.4.*"],
        ext_modules=[] if WITHOUT_CODE.intersection(sys.argv) else compiled(),
        options={"build_ext": {"parallel": os.cpu_count()}},
    )


if __name__ == "__main__":
    main()
