"""`dspy`: an agent whose calls are text in dspy's own words, and typed outputs, which are a schema once its own form fails."""

import dspy
from asked import QUESTIONS, URL, Verdict, add, tell


class Judge(dspy.Signature):
    """Judge it."""

    text: str = dspy.InputField()
    verdict: Verdict = dspy.OutputField()


def lm(name):
    return dspy.LM(f"openai/{name}", api_base=f"{URL}/v1", api_key="key")


dspy.configure(lm=lm("sum"))
answers = [dspy.ReAct("question -> answer", tools=[add])(question=question).answer for question in QUESTIONS]
with dspy.context(lm=lm("tiny")):
    verdicts = [dspy.Predict(Judge)(text="It.").verdict]
tell(answers, verdicts)
