"""The newest manifest of a lake, of whatever file system, and a lake in a directory of this machine, without Spark.

A reader sees the state after one build, as a whole, also while another build runs or after one has died.
"""

from queue_base.errors import Permanent, Temporary, reason
from spark.lake.manifest import Manifest, NotAManifest, TooNew, unpack
from spark.runtime.places import LocalPlace, Place, list_if_there, local_path

MANIFESTS = "_manifest"


class LaterLake(Permanent):
    """A later version of this program has written the lake."""


def manifest_path(number: int) -> str:
    return f"{MANIFESTS}/{number:06}.json"


def manifest_numbers(place: Place) -> list[int]:
    """Return the numbers of the manifests that are there, whole or not, the newest first."""
    entries = list_if_there(place, MANIFESTS)
    names = (entry.name.removesuffix(".json") for entry in entries if entry.name.endswith(".json"))
    return sorted((int(name) for name in names if name.isdecimal()), reverse=True)


def find_manifest(place: Place) -> Manifest | None:
    """Return the newest whole manifest, None where there is none. Raises Permanent for one that is newer than we are.

    One that is not whole was damaged by a power cut; then the one before it still counts.
    """
    numbers = manifest_numbers(place)
    for number in numbers:
        try:
            return unpack(place.read(manifest_path(number)))
        except NotAManifest:
            continue
        except TooNew as error:
            raise LaterLake(
                f"unable to open lake {place.root}: a later queue-report made it ({error}); use that one"
            ) from error
    if numbers:
        raise Permanent(
            f"unable to open lake {place.root}: none of its manifests is whole; build a new one from the logs"
        )
    return None


def no_lake(lake: str, empty: bool) -> Permanent:
    """Return the error for a place without a manifest; empty: it has no directory of manifests either."""
    why = "there is no lake of queue-report" if empty else "its first build has not ended"
    return Permanent(f"unable to open lake {lake}: {why}; make it with `queue-report build LOGS --lake {lake}`")


def open_manifest(place: Place) -> Manifest:
    """Return the manifest of a lake.

    Raises Permanent where there is no lake, where it is something else, or of a later version; Temporary where it
    cannot be read now.
    """
    try:
        manifest = find_manifest(place)
        empty = manifest is None and not place.exists(MANIFESTS)
    except OSError as error:
        raise Temporary(f"unable to open lake {place.root}: {reason(error)}; nothing is shown") from error
    if manifest is None:
        raise no_lake(place.root, empty)
    return manifest


def open_local(lake: str) -> tuple[str, Manifest]:
    """Return the path of a local lake and its manifest. Raises as open_manifest does."""
    path = local_path(lake)
    if path is None:
        raise Permanent(f"unable to open lake {lake}: it is not on this machine; use --engine spark")
    return path, open_manifest(LocalPlace(path))
