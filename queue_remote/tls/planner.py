"""Decides about TLS for each target: makes its TlsPlan from control/tlspolicy, DANE and MTA-STS.

DANE has precedence over MTA-STS (RFC 8461 section 2): if usable TLSA records are enforced, MTA-STS is not looked up. An
enforced policy replaces the level of the line in control/tlspolicy, but never weakens it: with `encrypt`, mail is
deferred rather than sent in clear.
"""

import functools

from queue_base.errors import reason
from queue_remote.report_text import no_controls
from queue_remote.route.order import Target
from queue_remote.route.router import Route, Router
from queue_remote.route.unroutable import Unroutable
from queue_remote.tls.contexts import Contexts
from queue_remote.tls.mta_sts import Mode, StsCache, StsFound
from queue_remote.tls.plan import Check, Complaints, TlsPlan
from queue_smtp.client import Tls
from queue_wire.address import ascii_domain
from queue_wire.control.hostmap import find_key
from queue_wire.control.smtproutes import SMTP_PORT
from queue_wire.control.tlspolicy import Level, TlsPolicy, Use
from queue_wire.pipes.report import MESSAGE_SCOPE, TEMPORARY

# RFC 8314 section 3.3: submission, and relays, under TLS from the first byte.
IMPLICIT_PORT = 465
_DEFAULT = TlsPolicy()


class TlsPlanner:
    """Makes plans from control/tlspolicy as it was read once.

    `lacking`: there is no such file. `secure`: some line uses DANE, so routes need DNSSEC validation.
    """

    def __init__(
        self,
        lines: dict[bytes, TlsPolicy] | None,
        router: Router,
        sts: StsCache,
        complaints: Complaints | None = None,
    ) -> None:
        """`lines` is control/tlspolicy, None if there is no file."""
        self._lines = lines or {}
        self._router = router
        self._sts = sts
        self._contexts = Contexts()
        self._complaints = complaints or Complaints()
        self.lacking = lines is None
        self.secure = any(policy.dane is not Use.OFF for policy in self._lines.values())

    def line(self, nexthop: bytes, route: Route, target: Target) -> tuple[bytes | None, TlsPolicy]:
        """Return the key of the line that applies, None if none does, and its policy.

        If smtproutes names the relay, a line for the relay, by its name or address, precedes one for the nexthop.
        """
        if not self._lines:
            return None, _DEFAULT
        key = None
        if route.relayed:
            for name in target.names:
                key = key or find_key(self._lines, name)
        key = key or find_key(self._lines, nexthop)
        return key, _DEFAULT if key is None else self._lines[key]

    async def plan(self, nexthop: bytes, route: Route, target: Target) -> TlsPlan:
        """Return the plan for a target. Raises Unroutable if a file of CA certificates cannot be read."""
        if target.is_socket:
            return TlsPlan(Tls.NEVER, policy="none")  # What is written to it does not leave this host.
        _, policy = self.line(nexthop, route, target)
        plan = self._begin(policy, target)
        if plan.mode is Tls.NEVER:
            return plan
        decided = False
        if policy.dane is not Use.OFF and target.secure and target.host:
            decided = await self._apply_dane(plan, policy, [] if route.relayed else [_ascii(nexthop)], target)
        if not decided and policy.sts is not Use.OFF:
            await self._apply_sts(plan, policy, policy_domain(nexthop, route, target), target)
        return plan

    async def sts(self, domain: bytes) -> StsFound:
        """Return a domain's MTA-STS policy. Raises Unroutable if there is no DNS server to ask."""
        return await self._sts.find(self._router.resolver(), self._contexts, domain)

    def _begin(self, policy: TlsPolicy, target: Target) -> TlsPlan:
        """Return the plan for a line's level. Raises Unroutable if its CA certificates cannot be read."""
        host = target.host.decode("ascii", "replace") or None
        level = policy.level
        if level is Level.NONE:
            return TlsPlan(Tls.NEVER, policy="none")
        if level is Level.MAY:
            plan = TlsPlan(Tls.MAY, self._contexts.opportunistic(), host, fallback=True)
        elif level is Level.ENCRYPT:
            plan = TlsPlan(Tls.MUST, self._contexts.required(), host, policy="encrypt")
        else:
            try:
                context = self._contexts.verified(policy.ca.decode("utf-8", "surrogateescape"))
            except OSError as error:
                trouble = f"{policy.ca.decode('utf-8', 'backslashreplace')}: {reason(error)}"
                self._complaints.make(f"alert: unable to read CA certificates in {trouble}; mail that needs them waits")
                raise Unroutable(TEMPORARY, no_controls(trouble), MESSAGE_SCOPE) from error
            mode = Tls.IMPLICIT if level is Level.IMPLICIT else Tls.MUST
            name = policy.name.decode("ascii") or host or target.address
            plan = TlsPlan(mode, context, name, policy=level.value.decode())
            if mode is Tls.IMPLICIT and target.port == SMTP_PORT:
                plan.port = IMPLICIT_PORT
        plan.log_to(self._complaints, f"{target.address} ({host})" if host else target.address)
        return plan

    async def _apply_dane(self, plan: TlsPlan, policy: TlsPolicy, names: list[bytes], target: Target) -> bool:
        """Apply the target's TLSA records to a plan; return whether they have precedence over MTA-STS."""
        # It takes long to load, and few lines use DANE.
        from queue_remote.tls import dane

        enforced = policy.dane is Use.ENFORCE
        try:
            port = target.port if plan.port is None else plan.port
            found = await dane.find_tlsa(self._router.resolver(), target, port)
        except Unroutable as error:
            trouble = f"TLSA lookup failed: {error.details}"
            if enforced:
                plan.refusal, plan.policy = trouble, "DANE"
            else:
                plan.complain("DANE", trouble)
            return enforced
        if found is None:
            return False
        if not found.records:
            if not enforced:
                plan.checks.append(Check(found.text, False, lambda chain: None))
            elif plan.mode is Tls.MAY:
                plan.require(self._contexts.required(), plan.server_name, f"{found.text} (unusable)")
            return False
        names = list(dict.fromkeys([found.name, target.host, *names]))
        verify = functools.partial(dane.objection, records=found.records, names=names)
        plan.checks.append(Check(found.text, enforced, verify))
        if enforced:
            plan.require(self._contexts.required(), found.name.decode("ascii"), found.text)
        return enforced

    async def _apply_sts(self, plan: TlsPlan, policy: TlsPolicy, domain: bytes, target: Target) -> None:
        """Apply a domain's MTA-STS policy to a plan."""
        if not target.host or not domain:
            return
        kept, trouble = await self.sts(domain)
        if trouble:
            then = "the one that is known counts" if kept else "tlspolicy's level counts"
            found = f"unable to find MTA-STS policy of {domain.decode('ascii')}: {trouble}"
            self._complaints.make(f"warning: {found}; {then}")
        if kept is None or kept.policy.mode is Mode.NONE:
            return
        enforced = policy.sts is Use.ENFORCE and kept.policy.mode is Mode.ENFORCE
        mode = kept.policy.mode.value.decode()
        name = f"MTA-STS of {domain.decode('ascii')}, id {kept.id.decode('ascii')}, mode {mode}"
        host = target.host.decode("ascii")
        if not kept.policy.allows(target.host):
            objection = f"{host} is no mx of the policy"
            if enforced:
                plan.refusal, plan.policy = objection, name
            else:
                plan.complain(name, objection)
        elif enforced:
            plan.require(self._contexts.verified(), host, name)
        else:
            verify = functools.partial(_ca_objection, contexts=self._contexts, name=target.host)
            plan.checks.append(Check(name, False, verify))


def policy_domain(nexthop: bytes, route: Route, target: Target) -> bytes:
    """Return the domain whose MTA-STS policy applies; empty if none can.

    RFC 8461 section 3.4: for a relay it is the relay's own.
    """
    return target.host if route.relayed else _ascii(nexthop)


def _ca_objection(chain: list[bytes], contexts: Contexts, name: bytes) -> str | None:
    """Return why the system's CAs do not verify a chain for a name, None if they do."""
    # It takes long to load, and few policies are tested.
    from queue_remote.tls import certificates

    if not chain:
        return "no certificate"
    try:
        store = contexts.authorities()
    except OSError as error:
        return str(error)
    return certificates.chain_objection(chain, store) or certificates.name_objection(chain[0], [name])


def _ascii(nexthop: bytes) -> bytes:
    """Return a nexthop in the form used in DNS; empty for an address literal, which has no policies."""
    return b"" if nexthop.startswith(b"[") else ascii_domain(nexthop).lower().removesuffix(b".")
