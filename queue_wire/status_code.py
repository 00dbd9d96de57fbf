"""The enhanced status code (RFC 3463) that the text of a verdict has.

It stands directly behind the code of an SMTP reply and is of its class (RFC 2034 section 4), or in `(#5.1.1)`, as qmail
writes it. Anything else that looks like one is a version, an address or a section of an RFC.
"""

import re

_REPLY = rb"(?:^|said: \(?)([245])\d\d[ -](?=\1\.)"
_CODE = re.compile(rb"(?:%s|\(#)([245]\.\d{1,3}\.\d{1,3})(?!\.?\d)" % _REPLY, re.MULTILINE)


def find_status(text: bytes, classes: bytes) -> bytes:
    """Return the first code in a text whose class is one of the digits `classes`; empty for none."""
    for found in _CODE.finditer(text):
        code = found[2]
        if code[:1] in classes:
            return code
    return b""
