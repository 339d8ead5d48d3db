"""A module for verifiers, first generation, as its users write them: rows in memory, a rubric, turns or tools."""

import verifiers as vf
from datasets import Dataset


def load_environment(kind="single", count=40, broken=False):
    rows = [
        {"question": f"{i} + 1 = ?", "answer": str(i + 1), "info": {"level": i, "letters": len(str(i))}}
        for i in range(count)
    ]
    dataset = Dataset.from_list(rows)
    if kind == "single":
        return vf.SingleTurnEnv(dataset=dataset, system_prompt="Add.", rubric=rubric_of(broken))
    if kind == "weighted":
        return vf.SingleTurnEnv(dataset=dataset, rubric=vf.Rubric(funcs=[right, ends, speaks], weights=[0.7, 0.2, 0.1]))
    if kind == "tools":
        return vf.ToolEnv(dataset=dataset, tools=[add], max_turns=4, rubric=rubric_of(broken))
    if kind == "grouped":
        return vf.SingleTurnEnv(dataset=dataset, rubric=vf.Rubric(funcs=[best_of_all]))
    return Guessing(dataset=dataset, max_turns=5, rubric=rubric_of(broken), broken=broken)


def rubric_of(broken):
    return vf.Rubric(funcs=[no_good if broken == "reward" else right, short], weights=[1.0, 0.0])


async def right(completion, answer, **kwargs) -> float:
    return float(completion[-1]["content"].split()[-1:] == [answer])


def ends(completion, answer) -> float:
    return float(completion[-1]["content"].endswith(answer[-1]))


def speaks(completion) -> float:
    return float(bool(completion[-1]["content"]))


def short(completion) -> float:
    return 1.0 / len(completion[-1]["content"])


def no_good(completion, answer) -> float:
    raise ZeroDivisionError("the judge fell asleep")


def best_of_all(completions) -> list[float]:
    return [1.0 for _ in completions]


def add(first: int, second: int) -> int:
    """Add two numbers.

    Args:
        first: one of them
        second: the other
    """
    return first + second


class Guessing(vf.MultiTurnEnv):
    """Answers higher or lower until the number is right."""

    async def setup_state(self, state):
        if self.broken == "setup":
            raise vf.InfraError("no room")
        state["asked"] = 0
        return state

    @vf.stop
    async def found(self, state):
        steps = state["trajectory"]
        return bool(steps) and steps[-1]["completion"][-1]["content"] == state["answer"]

    async def env_response(self, messages, state, **kwargs):
        if self.broken == "turn":
            raise RuntimeError("the other side hung up")
        state["asked"] += 1
        said, wanted = int(messages[-1]["content"]), int(state["answer"])
        return [{"role": "user", "content": "higher" if said < wanted else "lower"}]
