"""DANE: which TLSA records count, and what they say of a host's certificates (RFC 7672)."""

import hashlib
import math
import time
from collections.abc import Callable

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import dsa, rsa

from queue_remote.tls.certificates import CHAIN_MAX
from queue_remote.tls.dane import Tlsa, objection, usable
from support.servers.dns.authority import Certificate

HOST = [b"mx.example.net"]
ROOT = Certificate("root", authority=True)
MIDDLE = Certificate("middle", ROOT, authority=True)
OWN = Certificate("mx", MIDDLE, names=["mx.example.net"])
CHAIN = [OWN.der, MIDDLE.der, ROOT.der]
HASHES: list[Callable[[bytes], bytes]] = [
    lambda data: data,
    lambda data: hashlib.sha256(data).digest(),
    lambda data: hashlib.sha512(data).digest(),
]


def record(usage: int, selector: int, matching: int, certificate: Certificate) -> Tlsa:
    return Tlsa(usage, selector, matching, HASHES[matching](certificate.key_der if selector else certificate.der))


@pytest.mark.parametrize("usage", [2, 3])
@pytest.mark.parametrize("selector", [0, 1])
@pytest.mark.parametrize("matching", [0, 1, 2])
def test_a_record_vouches_for_its_certificate_and_for_no_other(usage: int, selector: int, matching: int) -> None:
    right = record(usage, selector, matching, OWN if usage == 3 else MIDDLE)
    wrong = record(usage, selector, matching, Certificate("other", authority=usage == 2))
    assert usable([right, wrong]) == [right, wrong]
    assert objection(CHAIN, [right], HOST) is None
    assert objection(CHAIN, [wrong], HOST) is not None
    assert objection(CHAIN, [wrong, right], HOST) is None
    assert objection([], [right], HOST) == "no certificate"


def test_a_hosts_own_certificate_needs_neither_name_nor_date_nor_ca() -> None:
    own = Certificate("anything", days=(-10, -5))
    assert objection([own.der], [record(3, 1, 1, own)], HOST) is None
    assert objection([own.der], [record(3, 0, 1, own)], HOST) is None


def test_usage_3_is_about_the_hosts_own_certificate_only() -> None:
    assert objection(CHAIN, [record(3, 1, 1, MIDDLE)], HOST) == "certificate does not match the TLSA records"


@pytest.mark.parametrize(
    ("own", "reason"),
    [
        (Certificate("mx", MIDDLE, names=["mx.example.com"]), "certificate is for mx.example.com, not for mx.example"),
        (Certificate("mx", MIDDLE, names=["mx.example.net"], days=(-10, -5)), "expired"),
        (Certificate("mx", MIDDLE, names=["mx.example.net"], days=(5, 10)), "not yet valid"),
    ],
)
def test_usage_2_wants_name_and_date_to_be_right(own: Certificate, reason: str) -> None:
    found = objection([own.der, MIDDLE.der], [record(2, 0, 1, MIDDLE)], HOST)
    assert found is not None
    assert reason in found


def test_usage_2_takes_wildcards_and_the_subjects_name_where_there_is_no_other() -> None:
    for own in (Certificate("mx", MIDDLE, names=["*.example.net"]), Certificate("mx.example.net", MIDDLE)):
        assert objection([own.der, MIDDLE.der], [record(2, 0, 1, MIDDLE)], HOST) is None


def test_usage_2_takes_only_what_the_ca_has_signed() -> None:
    other = Certificate("middle", ROOT, authority=True)
    assert objection([OWN.der, other.der], [record(2, 1, 1, other)], HOST) is not None
    # An ordinary certificate is no CA, whatever it has signed.
    below = Certificate("mx", OWN, names=["mx.example.net"])
    assert objection([below.der, *CHAIN], [record(2, 0, 1, ROOT)], HOST) is not None


def test_usage_2_is_about_those_above_the_hosts_own_certificate() -> None:
    own = Certificate("mx", names=["mx.example.net"], authority=True)
    assert objection([own.der], [record(2, 0, 1, own)], HOST) == "certificate does not match the TLSA records"


def test_usage_2_works_by_a_root_and_by_a_whole_certificate_that_the_host_does_not_show() -> None:
    assert objection(CHAIN, [record(2, 1, 1, ROOT)], HOST) is None
    assert objection([OWN.der], [record(2, 0, 0, MIDDLE)], HOST) is None
    assert objection([OWN.der], [record(2, 0, 1, MIDDLE)], HOST) is not None


def test_only_records_that_smtp_knows_are_usable() -> None:
    good = record(3, 1, 1, OWN)
    bad = [
        *(good._replace(usage=0), good._replace(usage=1), good._replace(usage=4), good._replace(selector=2)),
        *(good._replace(matching=3), good._replace(data=good.data[1:]), Tlsa(3, 0, 0, b"no certificate")),
        *(Tlsa(2, 0, 0, b""), Tlsa(3, 1, 0, b"")),
    ]
    assert usable([*bad, good]) == [good]


def test_the_strongest_digest_of_a_kind_counts() -> None:
    weak, strong, whole = record(3, 1, 1, OWN), record(3, 1, 2, ROOT), record(3, 1, 0, OWN)
    assert usable([weak, strong, whole]) == [strong, whole]


def test_rubbish_in_place_of_certificates_is_an_objection() -> None:
    records = [record(*kind, ROOT) for kind in ((2, 0, 1), (2, 1, 1), (3, 1, 1), (2, 0, 0))]
    for chain in ([b"rubbish"], [OWN.der, b"rubbish"], [b"rubbish", *CHAIN]):
        for wanted in [Tlsa(2, 0, 1, HASHES[1](b"rubbish")), *records]:
            assert objection(chain, [wanted], HOST) is not None


def test_each_certificate_is_looked_at_once_however_many_records_and_certificates_there_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """OpenSSL takes a chain of some hundred certificates, and a zone has as many records as it likes."""
    looked: list[bytes] = []
    load = x509.load_der_x509_certificate

    def count(data: bytes) -> object:
        looked.append(data)
        return load(data)

    monkeypatch.setattr(x509, "load_der_x509_certificate", count)
    records = [Tlsa(usage, 1, 1, hashlib.sha256(b"%d" % number).digest()) for number in range(64) for usage in (2, 3)]
    chain = [OWN.der, MIDDLE.der, *[ROOT.der] * 300]
    assert objection(chain, records, HOST) == "certificate does not match the TLSA records"
    assert len(looked) <= CHAIN_MAX
    assert objection(chain, [*records, record(2, 1, 1, MIDDLE)], HOST) is None


def key_with_a_large_exponent() -> rsa.RSAPrivateKey:
    """Return a key of 3,072 bits, up to which OpenSSL takes exponents of all sizes."""
    numbers = rsa.generate_private_key(65537, 3072).private_numbers()
    p, q = numbers.p, numbers.q
    order, exponent = math.lcm(p - 1, q - 1), (1 << 3068) - 1
    while math.gcd(exponent, order) > 1:
        exponent -= 2
    own = pow(exponent, -1, order)
    public = rsa.RSAPublicNumbers(exponent, p * q)
    factors = own % (p - 1), own % (q - 1), rsa.rsa_crt_iqmp(p, q)
    return rsa.RSAPrivateNumbers(p, q, own, *factors, public).private_key()


def chain_of(key: rsa.RSAPrivateKey | dsa.DSAPrivateKey) -> list[Certificate]:
    """Return certificates up to a CA, the last one, that all have a key."""
    chain = [Certificate("root", authority=True, key=key)]
    for number in range(CHAIN_MAX - 2):
        chain.insert(0, Certificate(f"ca {number}", chain[0], authority=True, key=key))
    return [Certificate("mx", chain[0], names=["mx.example.net"], key=key), *chain]


@pytest.mark.parametrize("make", [key_with_a_large_exponent, lambda: dsa.generate_private_key(3072)])
def test_a_chain_with_keys_that_cost_much_is_refused_before_it_is_verified(
    make: Callable[[], rsa.RSAPrivateKey | dsa.DSAPrivateKey],
) -> None:
    chain = chain_of(make())
    objection(CHAIN, [record(2, 0, 1, ROOT)], HOST)  # Loads the libraries.
    begun = time.thread_time()
    found = objection([each.der for each in chain], [record(2, 0, 1, chain[-1])], HOST)
    assert time.thread_time() - begun < 0.02 and found is not None and "key" in found


def test_a_chain_with_keys_that_are_in_use_is_verified() -> None:
    chain = chain_of(rsa.generate_private_key(65537, 4096))
    begun = time.thread_time()
    assert objection([each.der for each in chain], [record(2, 0, 1, chain[-1])], HOST) is None
    assert time.thread_time() - begun < 0.02
