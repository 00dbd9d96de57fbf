"""An object store on the loopback interface, with S3's interface: moto's server, in a process of its own."""

import os
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Self

from queue_report.runtime.files import STORE_SETTING, open_files
from support.processes.suite import wait_until

BUCKET = "s3://mail"


class ObjectStore:
    """Runs from `with` on. store: the settings by which delta-rs reaches it; settings: the same as a build's."""

    def __init__(self) -> None:
        with socket.socket() as chosen:
            chosen.bind(("127.0.0.1", 0))
            self._port = chosen.getsockname()[1]
        url = f"http://127.0.0.1:{self._port}"
        self.store = {
            "AWS_ENDPOINT_URL": url, "AWS_ALLOW_HTTP": "true", "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret",
        }  # fmt: skip
        self.settings = {f"{STORE_SETTING}{name}": value for name, value in self.store.items()}

    def __enter__(self) -> Self:
        words = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(self._port)]
        self._process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            wait_until(self._answers, 90.0, "an answer of moto's server")
            made = urllib.request.Request(f"{self.store['AWS_ENDPOINT_URL']}/mail", method="PUT")
            urllib.request.urlopen(made).close()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait(30)

    def _answers(self) -> bool:
        assert self._process.poll() is None, "moto's server has ended"
        try:
            socket.create_connection(("127.0.0.1", self._port), 1.0).close()
        except OSError:
            return False
        return True

    def copy(self, logs: Path, uri: str) -> None:
        """Have the files of a directory in the store, and no others."""
        files = open_files(uri, self.store)
        wanted = {os.path.relpath(path, logs): path for path in logs.rglob("*") if path.is_file()}
        for directory in {os.path.dirname(name) for name in wanted}:
            try:
                there = files.list(directory)
            except FileNotFoundError:
                continue
            for entry in there:
                if not entry.is_directory and f"{directory}/{entry.name}" not in wanted:
                    files.remove(f"{directory}/{entry.name}")
        for name, path in wanted.items():
            files.write(name, path.read_bytes())
