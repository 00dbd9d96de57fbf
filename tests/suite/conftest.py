"""The mail of these tests has somewhere to go to: a maildir for local addresses, a sink for all others."""

from collections.abc import Iterator

import pytest

from support.local.good_mail import GoodMail, good_mail


@pytest.fixture
def mail() -> Iterator[GoodMail]:
    """Yield a site that good mail is sent through."""
    with good_mail() as found:
        yield found
