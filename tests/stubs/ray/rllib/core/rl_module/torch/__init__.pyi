from ray.rllib.core.rl_module.torch.torch_rl_module import TorchRLModule as TorchRLModule
