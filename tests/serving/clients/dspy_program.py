"""`dspy`: an agent whose calls are text in dspy's own words. Of a model that it does not know it asks for no schema."""

import dspy
from asked import QUESTIONS, URL, add, tell

dspy.configure(lm=dspy.LM("openai/sum", api_base=f"{URL}/v1", api_key="key"))
tell([dspy.ReAct("question -> answer", tools=[add])(question=question).answer for question in QUESTIONS], [])
