"""Policies for the agents of attempts: a gateway with a session, a key and a budget for each."""

from loomrl.serving.agents.gateway import AgentGateway, AgentSessions
from loomrl.serving.agents.scripted import Said, Scripted

__all__ = ["AgentGateway", "AgentSessions", "Said", "Scripted"]
