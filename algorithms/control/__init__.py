"""Control algorithms: PPO, SAC, WEAVE, and learning from logged episodes."""
