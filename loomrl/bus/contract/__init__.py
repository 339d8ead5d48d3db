"""The five contracts `agent.rl.*`, as types that pydantic checks."""
