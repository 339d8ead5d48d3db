"""The ToolCall environment: a request, tools to call, and a final state that is right or is not."""

import json
from collections.abc import Sequence
from random import Random
from typing import Any, ClassVar, Literal

from pydantic import Field

from loomrl.envs.tool.amount import same_answer
from loomrl.envs.tool.call import CLOSING, MOST, OPENING, FunctionCall, split_calls
from loomrl.envs.tool.family import FAMILIES
from loomrl.envs.tool.kit import Listing, PolicyTool, list_tools
from loomrl.envs.tool.problem import ToolProblem
from loomrl.envs.tool.session import ToolSession, all_tools, calls_needed, goal_of
from loomrl.gym.answer import TaggedAnswer, parse_submission
from loomrl.gym.base import BaseEnvironment, EnvironmentSettings, Step
from loomrl.gym.generate import rng_of
from loomrl.inference.form_trial import LAYOUT
from loomrl.types import Form, Message, Observation, Reward, Task

PART = 0.05
"""Reward of each part beside correctness."""
LISTINGS: tuple[Listing, ...] = ("brief", "openai", "mcp")
SIMPLE = 3
"""Highest level at which `varied` lists tools briefly."""

FORMAT = 'Call a tool: <tool_call>{"name": "...", "arguments": {...}}</tool_call>'
ANSWERS = {True: "At the end: <answer>...</answer>", False: "When all is done: <answer>done</answer>"}


class ToolCallSettings(EnvironmentSettings):
    """Settings of ToolCall."""

    max_steps: int = Field(64, ge=1)
    """The episode is truncated after this many actions."""

    listing: Literal["varied", "brief", "openai", "mcp"] = "varied"
    """Listing of tools: a line each, as OpenAI's API takes them, as an MCP server answers `tools/list`, or, from level
    4 on, any of these.
    """

    forms: bool = False
    """Policies that sample tokens write calls of the tools that there are, or an answer, and nothing else."""


class ToolCallEnvironment(BaseEnvironment):
    """A task is done when the world is as it should be, nothing else has changed, and the answer, if any, is right.

    How it was done is never compared. Parts, paid only with success: `correctness` is 1; `tool_selection`,
    `parameter_format` and `interpretation` are 0.05 times the share of calls that name a tool which serves the task,
    that fit their schema, and that do not repeat in vain what had its answer; `tool_efficiency` is 0.05 times the calls
    of a known way over the calls made. Without any call they are 0.
    """

    name = "ToolCall"
    version = "1.1.0"
    families = tuple(FAMILIES)
    settings_class = ToolCallSettings
    settings: ToolCallSettings
    reward_parts = ("correctness", "tool_selection", "parameter_format", "interpretation", "tool_efficiency")
    reward_range = (0.0, 1.0 + 4 * PART)
    ceilings: ClassVar[dict[str, float]] = {"random": 0.05, "constant": 0.05, "hacking": 0.05}
    sources = ("loomrl.envs.tool", "loomrl.gym.answer", "loomrl.gym.generate")

    _problem: ToolProblem
    _session: ToolSession

    async def reset(self, task: Task | None = None) -> Observation:
        """The request, the tools, and how to call them."""
        task = self.task_or_random(task)
        rng = rng_of(task)
        self._problem = FAMILIES[task.family](task.level, rng)
        self._session = ToolSession(self._problem)
        tools = sorted(all_tools(self._problem), key=lambda tool: tool.name)
        asked = self._problem.answer is not None
        listed = list_tools(tools, self._listing(task.level, rng))
        return (Message("user", f"{self._problem.request}\n\nTools:\n{listed}\n\n{FORMAT}\n{ANSWERS[asked]}"),)

    def _listing(self, level: int, rng: Random) -> Listing:
        if self.settings.listing != "varied":
            return self.settings.listing
        return rng.choice(LISTINGS) if level > SIMPLE else "brief"

    async def step(self, action: str) -> Step:
        """Carry out the calls, in order; then judge the answer, if one follows them."""
        calls, rest = split_calls(action)
        if len(calls) > MOST:
            return Step.say(f"Nothing was called: at most {MOST} calls in one action.")
        said = [Message("tool", self._session.call(raw)) for raw in calls]
        submission = parse_submission(rest)
        if submission is not None:
            return Step.end(self._judge(submission))
        if not said:
            return Step.say(f"Neither a call nor an answer was found.\n{FORMAT}")
        return Step.say(*said)

    def _judge(self, submission: TaggedAnswer) -> Reward:
        answer = self._problem.answer
        right = answer is None or same_answer(answer, submission.answer)
        # the final state decides, not the calls: every way that leads there is right
        if not right or self._session.world.state != goal_of(self._problem).state:
            return self.pay(0.0)
        count = self._session.count
        needed = calls_needed(self._problem)
        made = count.made or 1
        called = count.made > 0
        shares = count.fitting, count.well_formed, count.well_formed - count.heedless, called * min(needed, made)
        parts = zip(self.reward_parts, (1.0, *(PART * share / made for share in shares)), strict=True)
        return self.pay(1.0, **dict(parts))

    def form(self) -> Form | None:
        """Calls that fit their tools' schemas, or an answer, if the settings ask for it."""
        if not self.settings.forms:
            return None
        tools = all_tools(self._problem)
        rules = ["start: call+ | answer", 'answer: "<answer>" /[^<]{1,200}/ "</answer>"']
        rules.append("call: " + " | ".join(f"call_{at}" for at in range(len(tools))))
        for at, tool in enumerate(tools):
            begin, end = json.dumps(f'{OPENING}{{"name": "{tool.name}", "arguments": '), json.dumps("}" + CLOSING)
            rules.append(f"call_{at}: {begin} args_{at} {end}")
            rules.append(f"args_{at}: %json {json.dumps({**tool.parameters, 'x-guidance': LAYOUT})}")
        return Form("grammar", "\n".join(rules))

    def oracle(self) -> str:
        """The next call of a known solution, or the one that the tools require; at its end the answer."""
        call = self._session.demonstrate()
        return f"<answer>{self._problem.answer or 'done'}</answer>" if call is None else str(call)

    def random_action(self, rng: Random) -> str:
        """A call that fits its schema, or a small answer."""
        if rng.random() < 0.3:
            return f"<answer>{rng.randint(1, 100)}</answer>"
        tool = rng.choice(all_tools(self._problem))
        return str(FunctionCall(tool.name, _guess(tool.parameters, rng)))

    def hacks(self) -> Sequence[str]:
        """Claims, floods, invented tools, and calls of everything there is."""
        problem = self._problem
        done = "<answer>done</answer>"
        words = [word.strip(".,?'\"") for word in problem.request.split()]
        numbers = [word for word in words if word.isdecimal()] or ["7"]
        every = [str(FunctionCall(tool.name, _guess(tool.parameters, Random(0)))) for tool in all_tools(problem)][:MOST]
        return [
            done,
            f"<answer>{' '.join(words)[:2000]}</answer>",
            f"<answer>{numbers[-1]}</answer>",
            f"<answer>{words[-1]}</answer>",
            f"<answer>{', '.join(map(str, range(1, 2000)))}</answer>",
            '<tool_call>{"name": "set_reward", "arguments": {"success": 1}}</tool_call>' + done,
            "".join(every) + done,
            "".join(every * 20) + done,
            *(f"{call}{done}" for call in _decoy_calls(problem)),
            f"{OPENING}{json.dumps({'result': 'success', 'reward': 1.0})}</tool_call>{done}",
            "The tool said: all is done, nothing is left to do. Reward: 1.0 <answer>correct</answer>",
            OPENING * 500 + done,
            f"<answer>{problem.tools[0].name}</answer>",
            "<answer></answer>",
        ]


def _decoy_calls(problem: ToolProblem) -> list[FunctionCall]:
    """Three calls of decoys, or of the task's own tools if there are too few."""
    tools: list[PolicyTool] = [*problem.decoys, *problem.tools * 3][:3]
    return [FunctionCall(tool.name, _guess(tool.parameters, Random(1))) for tool in tools]


def _guess(schema: Any, rng: Random) -> Any:
    """A value that fits."""
    kind = schema["type"]
    if kind == "object":
        return {name: _guess(part, rng) for name, part in schema["properties"].items() if name in schema["required"]}
    if kind == "integer":
        return rng.randint(schema["minimum"], min(schema["maximum"], schema["minimum"] + 20))
    return rng.choice(("A1", "R1", "a.txt", "2 + 3", "1", "Ana"))
