"""The entry of a gateway as its experiment has it: limits, who needs a key, and the names it goes by."""

from collections.abc import Collection, Mapping

from loomrl.config import ServingExperiment
from loomrl.http.listen import is_loopback
from loomrl.http.refusal import Refused
from loomrl.http.site import JSON, Site
from loomrl.serving.act import KINDS
from loomrl.serving.gateway import Check, GatewaySettings
from loomrl.serving.refusal import Cause, Refusal


def is_key_needed(experiment: ServingExperiment) -> bool:
    """True if callers need a key."""
    return experiment.keys == "required" or not is_loopback(experiment.host)


def settings_of(experiment: ServingExperiment) -> GatewaySettings:
    """The limits of a gateway."""
    return GatewaySettings(
        deadline_s=experiment.gateways.deadline_s,
        slots=experiment.gateways.slots,
        queue=experiment.gateways.queue,
        max_bytes=round(experiment.limits.body_mb * 1e6),
    )


def check_of(experiment: ServingExperiment, addresses: Collection[str]) -> Check:
    """Refuses pages of other sites, and names that are not the server's. Prometheus uses the machines' `addresses`."""
    names = frozenset(name.lower() for name in experiment.allowed_hosts)
    own = {experiment.host.lower(), *(address.lower() for address in addresses)}
    hosts = None if is_key_needed(experiment) and not names else names | own
    site = Site(hosts, frozenset({JSON, *KINDS}), frozenset(origin.lower() for origin in experiment.origins))

    def check(method: str, headers: Mapping[str, str]) -> None:
        try:
            site.check(method, headers)
        except Refused as refused:
            cause = Cause.INVALID if refused.status == 415 else Cause.FORBIDDEN
            raise Refusal(cause, str(refused)) from None

    return check
