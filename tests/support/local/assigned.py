"""users/assign in a test's home, and users/cdb made of it."""

from pathlib import Path

from queue_admin.users.users_cdb import build_users
from queue_base.home import Home


def assign(home: Home, text: str) -> Path:
    """Write users/assign, its last dot included, and build users/cdb; return that one's path."""
    users = Path(home.users)
    users.mkdir(mode=0o755, exist_ok=True)
    (users / "assign").write_text(text + ".\n")
    build_users(home)
    return users / "cdb"
