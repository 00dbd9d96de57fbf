"""Makes the ARC set of one message (RFC 8617): what is sealed, how the chain before it stands, and the fields.

A message is sealed if a local delivery of this host has forwarded it. From the top, its header has a Delivered-To
field, then the Received field of this host's server, for a client that did not authenticate; and an
Authentication-Results field of this host, above that Received field or below it, but above the next one. A message that
has a seal of ours among these fields is sealed already.

dkimpy makes the fields and checks the chain; body hashes and the arithmetic of our signatures are ours, as for DKIM.
What dkimpy gets is limited: it works in threads that hold the others up. All this takes long: it is called in a thread.
"""

import base64
import hashlib
import re
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

import dkim
from dkim.util import InvalidTagValueList, parse_tag_value

from queue_remote.message.dkim_keys import SigningKey
from queue_remote.message.dkim_signature import (
    PLACEHOLDER,
    POLICY,
    SIGNED,
    DigestKey,
    hash_body,
    last_of_each,
    signed_names,
    wire_fields,
)
from queue_remote.message.file import Message, read_header
from queue_remote.message.signing import plain_text

# Of a header that is sealed. Longer ones are sent without a seal.
HEADER_MAX = 65536
FIELDS_MAX = 1000
RESULTS_MAX = 16384
# RFC 8617 section 4.2.1.
INSTANCES_MAX = 50
# Of a chain that is checked; with more, it fails. A longer key would hold up all threads.
_NAMES_MAX = 300
_SPACES_MAX = 64
_RECORD_MAX = 2048
_BITS_MAX = 4096
_EXPONENT_MAX = 1 << 32

PASS = b"pass"
FAIL = b"fail"
NONE = b"none"

_AAR = b"arc-authentication-results"
_AMS = b"arc-message-signature"
_AS = b"arc-seal"
_SET = (_AAR, _AMS, _AS)
_RESULTS = b"authentication-results"
_QMAIL = re.compile(rb"\(qmail \d+ invoked ")
_BY = re.compile(rb" by (\S+)(?: \([^()]*\))? with (\S+)")
_ARC_RESULT = re.compile(rb";\s*arc\s*=\s*([A-Za-z]+)")
_INSTANCE = re.compile(rb"\s*i\s*=\s*([0-9]{1,3})\s*;", re.IGNORECASE)
_LONG_SPACE = re.compile(rb"\s{%d}" % _SPACES_MAX)
_LINE = 76

Fields = list[tuple[bytes, bytes]]


class Unsealable(Exception):
    """A forwarded message cannot be sealed; the text says why."""


class ArcPlan(NamedTuple):
    """What is known before keys of others are looked up.

    `results` are those that are sealed. `status` is that of the chain (cv=), None if the chain must be checked with the
    keys at `names`. `sets` are the fields of the chain, the oldest first.
    """

    results: bytes
    status: bytes | None
    instance: int
    sets: Fields
    names: list[bytes]


def plan_seal(message: Message, ours: frozenset[bytes], key: SigningKey, authserv: bytes) -> ArcPlan | None:
    """Return what is to be sealed, None if nothing is. `ours` are names of this host, in lower case.

    Raises OSError and Unsealable.
    """
    header, place = read_header(message)
    results = find_results(wire_fields(header[:HEADER_MAX], _Every()), ours, key.domain, authserv)
    if not results:
        return None
    fields = _read_fields(header, place)
    joined = join_results(results)
    sets = [field for field in fields if field[0].lower() in _SET]
    if not sets:
        return ArcPlan(joined, NONE, 1, [], [])
    instances = [_instance(value) for _, value in sets]
    last = max(instances)
    if last >= INSTANCES_MAX:
        return None
    ordered = sorted(sets, key=lambda field: (_instance(field[1]), _SET.index(field[0].lower())))
    whole = [field[0].lower() for field in ordered] == list(_SET) * last
    whole = whole and sorted(instances) == [number for number in range(1, last + 1) for _ in _SET]
    if _tags(ordered[-1][1]).get(b"cv", b"").lower() == FAIL:
        # RFC 8617 section 5.1.2: the chain is dead, and nobody adds to it.
        return None
    found = [word.lower() for word in _ARC_RESULT.findall(b";" + plain_text(joined))]
    if not whole or len(found) > 1 or FAIL in found:
        return ArcPlan(joined, FAIL, last + 1, ordered, [])
    if found == [PASS]:
        return ArcPlan(joined, PASS, last + 1, ordered, [])
    return ArcPlan(joined, None, last + 1, ordered, _key_names(ordered))


def find_results(fields: Fields, ours: frozenset[bytes], domain: bytes, authserv: bytes) -> list[bytes]:
    """Return the values of the Authentication-Results that are sealed; none if the message is not to be sealed."""
    delivered = arrived = False
    found: list[bytes] = []
    for name, value in fields:
        low = name.lower()
        if low == b"delivered-to":
            delivered = True
        elif low == b"received":
            if arrived:
                break
            text = b" ".join(value[:2000].split())
            if _QMAIL.match(text):
                continue
            by = _BY.search(text)
            if not delivered or by is None or by[1].lower() not in ours or _authenticated(by[2]):
                return []
            arrived = True
        elif low == _AS and (not arrived or _tags(value).get(b"d", b"").lower() == domain):
            return []
        elif low == _RESULTS and _authserv(value) == authserv:
            found.append(value)
    return found if arrived else []


def join_results(values: list[bytes]) -> bytes:
    """Return the results of some fields in one line, `none` if there are none. Raises Unsealable."""
    found = [b" ".join(value.partition(b";")[2].split()).rstrip(b"; ") for value in values]
    joined = b"; ".join([each for each in found if each and each.lower() != NONE]) or NONE
    if len(joined) > RESULTS_MAX:
        raise Unsealable(f"its Authentication-Results have over {RESULTS_MAX} bytes")
    return joined


def make_seal(
    plan: ArcPlan, message: Message, original: Message, records: Mapping[bytes, bytes], key: SigningKey, authserv: bytes
) -> bytes:
    """Return the fields of the set, with LF line ends, for a message in the form that is sent.

    `original` is the message as it is stored, for which the chain counts. `records` are the TXT records at the plan's
    names. Raises OSError and Unsealable.
    """
    results = plan.results
    status = plan.status
    if status is None:
        status = PASS if check_chain(original, plan.sets, records) else FAIL
        results = _without_none(results) + b"arc=" + status
    header, place = read_header(message)
    fields = _read_fields(header, place)
    assert place is not None
    digest = hash_body(message, place)
    return seal_fields(plan._replace(results=results, status=status), fields, digest, key, authserv, int(time.time()))


def seal_fields(plan: ArcPlan, fields: Fields, body_hash: bytes, key: SigningKey, authserv: bytes, now: int) -> bytes:
    """Return the set. `fields` are those of the header, `body_hash` is the SHA-256 of the canonical body."""
    assert plan.status is not None
    number = b"%d" % plan.instance
    common = [(b"a", key.algorithm), (b"d", key.domain), (b"s", key.selector), (b"t", b"%d" % now)]
    results = _folded(b"i=%s; %s; %s" % (number, authserv, plan.results), len(_AAR) + 2)
    signed = last_of_each([field for field in fields if field[0].lower() in _SEALED])
    names = signed_names(signed, _SEALED)
    tags = [(b"i", number), *common, (b"c", POLICY.to_c_value()), (b"h", b" : ".join(names))]
    tags += [(b"bh", base64.b64encode(body_hash)), (b"b", PLACEHOLDER)]
    signature = _sign(b"ARC-Message-Signature", tags, signed, names, key)
    # Of a failed chain only the new set is sealed.
    chain = [] if plan.status == FAIL else plan.sets
    chain = [*chain, (b"ARC-Authentication-Results", b" " + results), (b"ARC-Message-Signature", b" " + signature)]
    tags = [(b"i", number), (b"cv", plan.status), *common, (b"b", PLACEHOLDER)]
    # dkimpy takes fields of one name from the bottom.
    seal = _sign(b"ARC-Seal", tags, chain[::-1], [name.lower() for name, _ in chain], key)
    made = (b"ARC-Seal: " + seal, b"ARC-Message-Signature: " + signature, b"ARC-Authentication-Results: " + results)
    return b"".join([each.replace(b"\n \n", b"\n") for each in made])


def check_chain(message: Message, sets: Fields, records: Mapping[bytes, bytes]) -> bool:
    """Return whether a chain is good: its newest signature, and all its seals. Raises OSError and Unsealable.

    `sets` are its fields, `records` the TXT records of its keys, by name in lower case without a final dot.
    """
    header, place = read_header(message)
    fields = _read_fields(header, place)
    assert place is not None
    if any(_LONG_SPACE.search(value) for _, value in sets):
        return False
    checker = _ChainChecker()
    checker.headers = fields
    signature = _tags(sets[-2][1])
    checker.newest = signature.get(b"i", b"")
    if b"l" in signature:
        return False
    relaxed = signature.get(b"c", b"relaxed/relaxed").lower().endswith(b"/relaxed")
    checker.body_hash = hash_body(message, place, relaxed)
    known = {name: record for name, record in records.items() if _is_fit(name, record)}
    try:
        status, _, _ = checker.verify(lambda name, timeout=0: known.get(name.rstrip(b".").lower()))
    except Exception:
        # dkimpy raises whatever the fault of a message leads to, such as IndexError.
        return False
    return bool(status == PASS)


class _ChainChecker(dkim.ARC):  # type: ignore[misc]
    """dkimpy's, with the hash of a body in its place. The signatures that were made before the newest do not count."""

    newest = b""
    body_hash = b""

    def verify_sig(self, sig: dict[bytes, bytes], include_headers: list[bytes], sig_header: Any, dnsfunc: Any) -> bool:
        if sig_header[0].lower() == _AMS:
            given = b"".join(sig[b"bh"].split())
            if sig[b"i"] != self.newest or base64.b64encode(self.body_hash) != given:
                return False
            if len(include_headers) > _NAMES_MAX:
                return False
            sig = {tag: value for tag, value in sig.items() if tag != b"bh"}
        return bool(super().verify_sig(sig, include_headers, sig_header, dnsfunc))


class _Every:
    """All names of fields."""

    def __contains__(self, name: object) -> bool:
        return True


_SEALED = (*SIGNED, b"dkim-signature")


def _read_fields(header: bytes, place: int | None) -> Fields:
    """Return all fields of a header. Raises Unsealable if it is too large."""
    if place is None or len(header) > HEADER_MAX:
        raise Unsealable(f"its header has over {HEADER_MAX} bytes")
    fields = wire_fields(header, _Every())
    if len(fields) > FIELDS_MAX:
        raise Unsealable(f"its header has over {FIELDS_MAX} fields")
    return fields


def _sign(name: bytes, tags: Fields, fields: Fields, names: list[bytes], key: SigningKey) -> bytes:
    # The real algorithm is in the tags. With this one, gen_header calls the key's sign(digest).
    signer = dkim.ARC(signature_algorithm=b"ed25519-sha256", linesep=b"\n")
    signer.headers = fields
    signer.hasher = hashlib.sha256
    return bytes(signer.gen_header(tags, tuple(names), POLICY, name, DigestKey(key)))


def _tags(value: bytes) -> dict[bytes, bytes]:
    try:
        return dict(parse_tag_value(b" ".join(value.split())))
    except InvalidTagValueList:
        return {}


def _instance(value: bytes) -> int:
    """Return the instance of a field of a set, 0 if it has none."""
    found = _INSTANCE.match(value)
    # In the other two i= may stand elsewhere.
    text = _tags(value).get(b"i", b"") if found is None else found[1]
    return int(text) if text.isdigit() and len(text) <= 3 else 0


def _authserv(value: bytes) -> bytes:
    words = plain_text(value.partition(b";")[0]).split()
    return words[0].lower() if words else b""


def _authenticated(keyword: bytes) -> bool:
    """Return whether a keyword of RFC 3848 says that the client has authenticated."""
    return keyword.rstrip(b";").upper().endswith(b"A")


def _key_names(sets: Fields) -> list[bytes]:
    """Return where the keys are that the chain is checked with: of its newest signature, and of its seals."""
    wanted = [sets[-2], *[field for field in sets if field[0].lower() == _AS]]
    names = []
    for _, value in wanted:
        tags = _tags(value)
        names.append(b"%s._domainkey.%s" % (tags.get(b"s", b""), tags.get(b"d", b"")))
    return sorted({name.lower() for name in names})


def _is_fit(name: bytes, record: bytes) -> bool:
    """Return whether a record is an RSA key of a usual size."""
    if len(record) > _RECORD_MAX:
        return False
    try:
        key, bits, kind, _ = dkim.evaluate_pk(name, record)
    except Exception:
        # dkimpy raises whatever the fault of a record leads to.
        return False
    return bool(kind == b"rsa" and bits <= _BITS_MAX and 2 < key["publicExponent"] <= _EXPONENT_MAX)


def _without_none(results: bytes) -> bytes:
    """Return results in front of one more."""
    return b"" if results == NONE else results + b"; "


def _folded(text: bytes, begun: int) -> bytes:
    """Return words in lines of at most _LINE bytes where that can be, with LF line ends."""
    lines: list[bytes] = []
    line = b""
    for word in text.split():
        if line and begun + len(line) + 1 + len(word) > _LINE:
            lines.append(line)
            line, begun = word, 1
        else:
            line = line + b" " + word if line else word
    return b"\n ".join([*lines, line]) + b"\n"
