from typing import Any

from ray.rllib.algorithms.algorithm import Algorithm
from ray.rllib.algorithms.algorithm_config import AlgorithmConfig

class PPOConfig(AlgorithmConfig):
    clip_param: float
    entropy_coeff: Any
    gamma: float
    grad_clip: float | None
    kl_coeff: float
    lambda_: float
    num_epochs: int
    use_kl_loss: bool
    vf_clip_param: float
    vf_loss_coeff: float

class PPO(Algorithm): ...

def __getattr__(name: str) -> Any: ...
