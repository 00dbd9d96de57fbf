"""The version of the suite, as pip has installed it. Imported only where somebody asks: importlib.metadata is slow."""

from importlib.metadata import PackageNotFoundError, version


def suite_version() -> str:
    """Return the version of the suite; `not installed` where it runs from a directory of sources alone."""
    try:
        return version("queue-suite")
    except PackageNotFoundError:
        return "not installed"
