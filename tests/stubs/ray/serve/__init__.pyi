from collections.abc import Callable, Sequence
from typing import Any

class Application: ...

class Deployment:
    def options(
        self,
        *,
        num_replicas: int | None = ...,
        ray_actor_options: dict[str, Any] = ...,
        autoscaling_config: dict[str, Any] | None = ...,
    ) -> Deployment: ...
    def bind(self, *args: Any, **kwargs: Any) -> Application: ...

class RunTarget:
    def __init__(self, target: Application, name: str = ..., route_prefix: str | None = ...) -> None: ...

def deployment(
    *,
    name: str,
    graceful_shutdown_wait_loop_s: float = ...,
    graceful_shutdown_timeout_s: float = ...,
    health_check_period_s: float = ...,
    health_check_timeout_s: float = ...,
) -> Callable[[type], Deployment]: ...
def start(proxy_location: str | None = ...) -> None: ...
def run_many(
    targets: Sequence[RunTarget],
    *,
    wait_for_ingress_deployment_creation: bool = ...,
    wait_for_applications_running: bool = ...,
) -> Any: ...
def status() -> Any: ...
def delete(name: str, _blocking: bool = ...) -> None: ...
