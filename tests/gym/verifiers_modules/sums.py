"""A taskset for verifiers, second generation, as its users write them."""

import verifiers.v1 as vf

__all__ = ["SumsTaskset"]


class SumData(vf.TaskData):
    answer: str
    level: int


class SumTask(vf.Task[SumData]):
    @vf.reward(weight=0.75)
    async def right(self, task: SumData, trace: vf.Trace) -> float:
        return float(trace.last_reply.split()[-1:] == [task.answer])

    @vf.reward(weight=0.25)
    async def short(self, trace: vf.Trace) -> float:
        return float(len(trace.last_reply) < 10)

    @vf.metric
    async def turns(self, trace: vf.Trace) -> float:
        return float(trace.num_turns)


class Weighted(vf.Task[SumData]):
    @vf.reward(weight=0.7)
    async def right(self, task: SumData, trace: vf.Trace) -> float:
        return float(trace.last_reply.split()[-1:] == [task.answer])

    @vf.reward(weight=0.2)
    async def ends(self, task: SumData, trace: vf.Trace) -> float:
        return float(trace.last_reply.endswith(task.answer[-1]))

    @vf.reward(weight=0.1)
    async def speaks(self, trace: vf.Trace) -> float:
        return float(bool(trace.last_reply))


class Loose(vf.Task[SumData]):
    """The answer anywhere in the reply is enough."""

    @vf.reward
    async def right(self, task: SumData, trace: vf.Trace) -> float:
        return float(task.answer in trace.last_reply)


class Broken(SumTask):
    @vf.reward
    async def right(self, trace: vf.Trace) -> float:
        raise ZeroDivisionError("the judge fell asleep")


class Running(SumTask):
    @vf.reward
    async def right(self, trace: vf.Trace, runtime: vf.Runtime) -> float:
        return float((await runtime.run(["true"], {})).exit_code == 0)


class SumsConfig(vf.TasksetConfig):
    kind: str = "plain"
    count: int = 40


class SumsTaskset(vf.Taskset[SumTask, SumsConfig]):
    def load(self):
        kinds = {"plain": SumTask, "weighted": Weighted, "loose": Loose, "broken": Broken, "running": Running}
        made = kinds[self.config.kind]
        for i in range(self.config.count):
            data = SumData(idx=i, prompt=f"{i} + 1 = ?", system_prompt="Add.", answer=str(i + 1), level=i)
            yield made(data, self.config.task)
