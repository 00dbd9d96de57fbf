"""The programs that put mail in the queue: queue-inject, queue-enqueue, sendmail and queue-pickup."""

import sys

# What importlib.machinery has, without the time that it takes to import that.
from _frozen_importlib_external import SOURCE_SUFFIXES, FileFinder, SourceFileLoader


def use_python_form() -> None:
    """Have all modules of the suite that are imported from now on be those in Python, also where the suite is compiled.

    It is for programs that start for each message: compiled modules take longer to load than they save.
    """
    packages = __path__[0].rpartition("/")[0] + "/queue_"
    loaders = (SourceFileLoader, SOURCE_SUFFIXES)

    def hook(path: str) -> FileFinder:
        if not path.startswith(packages):
            raise ImportError(path)
        return FileFinder(path, loaders)

    sys.path_hooks.insert(0, hook)
