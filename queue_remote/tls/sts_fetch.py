"""Fetches an MTA-STS policy over HTTPS (RFC 8461 section 3.3): no redirects, a good certificate, 64 kB, a minute.

httpx does the HTTP; addresses are found by our own resolver. Imported only where a policy is to be fetched.
"""

import asyncio
import ssl

import httpx

from queue_remote.tls.mta_sts import POLICY_MOST
from queue_remote.tls.sts import NoPolicy

PATH = "/.well-known/mta-sts.txt"
HTTPS_PORT = 443
# For the whole of it, from the first connection to the last byte.
FETCH_SECONDS = 60.0
# For one address, before the next is tried.
CONNECT_SECONDS = 15.0


async def fetch_policy(host: str, addresses: list[str], context: ssl.SSLContext) -> bytes:
    """Return the policy file of `mta-sts.DOMAIN`, from the first address that answers. Raises NoPolicy."""
    trouble = f"{host} has no address"
    try:
        async with asyncio.timeout(FETCH_SECONDS):
            for address in addresses:
                try:
                    return await _fetch(host, address, context)
                except OSError as error:
                    trouble = f"{address} ({host}): {error}"
    except TimeoutError as error:
        raise NoPolicy(f"{host}: not fetched in {FETCH_SECONDS:.0f} s") from error
    raise NoPolicy(trouble)


async def _fetch(host: str, address: str, context: ssl.SSLContext) -> bytes:
    """Return the file from one address. Raises OSError where another one may do better, NoPolicy."""
    shown = f"[{address}]" if ":" in address else address
    transport = httpx.AsyncHTTPTransport(verify=context)
    timeout = httpx.Timeout(FETCH_SECONDS, connect=CONNECT_SECONDS)
    # Its name is in the certificate that we want and in the request; the URL has the address.
    headers = {"Host": host, "Accept-Encoding": "identity", "User-Agent": "queue-suite"}
    url = f"https://{shown}:{HTTPS_PORT}{PATH}"
    request = httpx.Request("GET", url, headers=headers, extensions={"sni_hostname": host})
    try:
        async with httpx.AsyncClient(transport=transport, timeout=timeout, trust_env=False) as client:
            response = await client.send(request, stream=True, follow_redirects=False)
            try:
                return await _body(host, response)
            finally:
                await response.aclose()
    except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
        raise OSError(str(error) or type(error).__name__) from error


async def _body(host: str, response: httpx.Response) -> bytes:
    if response.status_code != 200:
        raise NoPolicy(f"{host} answers {response.status_code} for {PATH}")
    kind = response.headers.get("Content-Type", "").partition(";")[0].strip().lower()
    if kind != "text/plain":
        raise NoPolicy(f"{host} has no text/plain at {PATH}")
    if response.headers.get("Content-Encoding", "identity").lower() != "identity":
        raise NoPolicy(f"{host} has a compressed file at {PATH}")
    body = b""
    async for data in response.aiter_raw():
        body += data
        if len(body) > POLICY_MOST:
            raise NoPolicy(f"{host} has more than {POLICY_MOST} bytes at {PATH}")
    return body
