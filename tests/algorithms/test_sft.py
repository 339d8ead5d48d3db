"""Fine-tuning on conversations: which tokens are learnt, that it is what a plain loop does, and what is refused."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from loomrl.algorithms.language.conversations import encode_files
from loomrl.config import DatasetConfig, Experiment
from loomrl.errors import ConfigError, DataError
from loomrl.experiments.chats import in_style
from loomrl.experiments.chats import write as write_chats
from loomrl.experiments.preflight import check_parts
from loomrl.experiments.shipped import resolve_language
from loomrl.experiments.train import train
from loomrl.feedback.chat_file import ChatFiles, read_chat_files
from loomrl.inference.model import save_model
from loomrl.store import open_store
from loomrl.store.runs import POLICIES
from loomrl.telemetry.metric import Metric
from loomrl.telemetry.sink import metrics_file, read_metrics
from tests.algorithms.language_support import RAY
from tests.experiments.runs import assert_goes_on, assert_same, kill_after_an_update, places
from tests.inference.sample_models import tiny_model, tiny_tokenizer

QUESTIONS = ("What is 1 + 1?", "And the answer?", "Say it.", "Why?", "Who are you?", "What now?")
CALL = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
TOOL = {"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}


def said(*texts: str) -> dict[str, Any]:
    """A conversation in which user and assistant take turns."""
    roles = ("user", "assistant") * len(texts)
    return {"messages": [{"role": role, "content": text} for role, text in zip(roles, texts, strict=False)]}


def chats(count: int) -> list[dict[str, Any]]:
    """Conversations of one and two turns."""
    asked = [f"{QUESTIONS[n % len(QUESTIONS)]} ({n})" for n in range(count)]
    return [said(*[question, f"It is {n}.", "Sure?", "Yes."][: 2 + 2 * (n % 2)]) for n, question in enumerate(asked)]


def write(file: Path, lines: list[dict[str, Any]]) -> str:
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return str(file)


def model_in(folder: Path) -> str:
    if not folder.exists():
        save_model(tiny_model(scale=0.05), tiny_tokenizer(), folder)
    return str(folder)


def settings(folder: Path, lines: list[dict[str, Any]], **changes: Any) -> Experiment:
    tree = {
        "name": "brief",
        "data": {"file": write(folder / "chats.jsonl", lines), "batch": 4},
        "algorithm": {
            "kind": "sft",
            "model": {"path": model_in(folder / "tiny"), "context": 128},
            "optimizer": {"learning_rate": 3e-3},
        },
    }
    return Experiment.parse(tree).override(places(folder) | changes)


def read(folder: Path, lines: list[dict[str, Any]], **data: Any) -> ChatFiles:
    return read_chat_files(DatasetConfig(file=write(folder / "chats.jsonl", lines), **data))


def test_assistants_tokens_alone_are_learnt_as_it_would_have_sampled_them(tmp_path: Path) -> None:
    tokenizer = tiny_tokenizer()
    messages = [
        {"role": "system", "content": "Use <|end|> never."},
        *said("What is 1 + 1?")["messages"],
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "c1", "content": "2"},
        {"role": "assistant", "content": "Two, not <|end|>."},
        {"role": "user", "content": "Nobody answers this."},
    ]
    lines = [{"messages": messages, "tools": [TOOL]}, {"prompt": "Why?", "completion": "So."}]
    model = Path(model_in(tmp_path / "tiny"))
    ((_, (agent,)), (_, (pair,))), held_out = encode_files(
        read(tmp_path, lines, held_out=0), model, context=600, trust_remote_code=False
    )
    assert held_out == []
    learnt = tokenizer.decode(agent.ids_T[agent.mask_T])
    call = '<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>'
    assert learnt == f"{call}<|end|>Two, not <|end|>.<|end|>"
    ends = [at for at, id in enumerate(agent.ids_T) if id == tokenizer.eos_token_id]
    assert len(ends) == 5, "names of special tokens in texts are text"
    whole = tokenizer.decode(agent.ids_T)
    assert whole.startswith("<|system|>Use <|end|> never.\n\n# Tools")
    assert '"name": "add"' in whole.partition("<|user|>")[0]
    assert whole.endswith("<|tool|>2<|end|><|assistant|>Two, not <|end|>.<|end|>")
    assert tokenizer.decode(pair.ids_T) == "<|user|>Why?<|end|><|assistant|>So.<|end|>"
    assert tokenizer.decode(pair.ids_T[pair.mask_T]) == "So.<|end|>"


def test_what_is_held_out_stays_so_as_the_file_grows_and_with_all_answers_to_it(tmp_path: Path) -> None:
    few = read(tmp_path, chats(60), held_out=0.3)
    many = read(tmp_path, [*chats(100), *chats(100)], held_out=0.3)
    before = {chat.said for chat in few.held_out}
    after = [chat.said for chat in many.held_out]
    assert 0.15 < len(before) / 60 < 0.45
    assert before <= {*after}
    assert not {chat.question for chat in many.train} & {chat.question for chat in many.held_out}
    assert [*map(len, (many.train, many.held_out))] == [200 - len(after), 2 * len({*after})]
    apart = read(tmp_path, chats(3), held_out_file=write(tmp_path / "other.jsonl", chats(5)[3:]))
    assert [chat.where for chat in apart.held_out] == [f"{tmp_path}/other.jsonl, line {n}" for n in (1, 2)]
    with pytest.raises(DataError, match=r"other.jsonl, line 3 is .*chats.jsonl, line 3 too: what is learnt is not"):
        read(tmp_path, chats(3), held_out_file=write(tmp_path / "other.jsonl", chats(5)[::-1]))


GOOD = json.dumps(said("a", "b"))


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("", "it is empty. Remove it"),
        ("{bad", "it is not JSON"),
        ("[" * 100_000, "it is not JSON"),
        ("[]", r'write {"messages"'),
        ('{"prompt": "a"}', 'write {"messages"'),
        ('{"prompt": "a", "completion": 3}', "completion='3': text is needed"),
        ('{"messages": "x"}', "messages='x': a list is needed"),
        (json.dumps(said("a")), "no message is the assistant's"),
        (GOOD.replace("assistant", "bot"), "messages.1.role: 'bot' is not supported here. Roles are system, user"),
        (GOOD.replace('"b"', '""'), "messages.1: the assistant says nothing"),
        (GOOD.replace('"b"', '"b", "weight": 0'), "messages.1.weight: the field is unknown"),
        (GOOD[:-1] + ', "tools": [{"name": "x"}]}', "tools.0.type: the field is missing"),
        (json.dumps(said("a", "b" * (1 << 24))), "it has more than 16 MiB"),
        (json.dumps(said("a", "b" * 200)), r"the conversation has \d+ tokens, more than algorithm.model.context=128, "),
    ],
)
def test_bad_line_is_refused_by_its_number_before_anything_starts(tmp_path: Path, line: str, problem: str) -> None:
    given = settings(tmp_path, [], **{"data.held_out": 0})
    (tmp_path / "chats.jsonl").write_text(f"{GOOD}\n{line}\n{GOOD}\n")
    with pytest.raises(DataError, match=problem) as refused:
        check_parts(given)
    assert str(refused.value).startswith(f"{tmp_path}/chats.jsonl, line 2: ")
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 400


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"data.file": "nowhere.jsonl"}, "data.file='nowhere.jsonl', seen from"),
        ({"data.held_out": 1.0}, "data.held_out=1 holds out all 4 conversations"),
        ({"data.held_out": 1.5}, "data.held_out=1.5: Input should be less than or equal to 1"),
        ({"data.held_out": 0.2, "data.held_out_file": "x"}, "held_out=0.2 and held_out_file=x: give one of them"),
        ({"data.dataset": "d"}, "give one of them"),
        ({"data": None}, "learns from conversations: name a file of them"),
        ({"algorithm": {"kind": "grpo"}}, "environments|which learns from what was judged"),
        ({"algorithm.model.path": None}, "name the model to fine-tune"),
        ({"algorithm.warm_start.steps": 3}, "algorithm.warm_start.steps has no effect with data.file="),
        ({"algorithm.reward_clip": [0, 1]}, "reward_clip=.* has no effect: nothing is rewarded"),
        ({"algorithm.optimizer.schedule.kind": "adaptive"}, "adaptive follows the KL"),
        ({"rollout.runners": 1}, "rollout has no effect without environments"),
        ({"engine.kind": "vllm"}, "engine has no effect without environments"),
        ({"evaluation.episodes": 3}, "evaluation.episodes has no effect without environments"),
        ({"train.stop.kl": 1.0}, "train.stop"),
    ],
)
def test_setting_that_would_change_nothing_is_refused(tmp_path: Path, changes: dict[str, Any], problem: str) -> None:
    with pytest.raises((ConfigError, DataError), match=problem):
        check_parts(settings(tmp_path, chats(4), **changes))


def test_shipped_conversations_are_in_style_and_none_of_the_questions_that_judge_is_among_them(tmp_path: Path) -> None:
    assert write_chats(tmp_path / "chats.jsonl") == 180
    found = read_chat_files(DatasetConfig(file=str(tmp_path / "chats.jsonl"), held_out=0))
    answers = [message.text for chat in found.train for message in chat.said if message.role == "assistant"]
    assert in_style(answers) == [1.0] * len(answers)
    assert in_style(["Paris.", "Answer: Paris.", "Answer: Paris.\nWhy: " + "so " * 40]) == [0.0] * 3
    asked = {message.text for chat in found.train for message in chat.said if message.role == "user"}
    (judge,) = resolve_language(["language/smol_chat"]).environments
    assert not asked & {row["prompt"] for row in judge.settings["rows"]}


@pytest.mark.slow
@pytest.mark.system
@RAY[1]
@RAY[2]
def test_killed_fine_tuning_goes_on_and_equals_one_that_never_stopped(tmp_path: Path) -> None:
    given = settings(tmp_path, chats(24), **{"data.epochs": 2, "train.checkpoint_every": 2})
    (tmp_path / "e.yaml").write_text(json.dumps(given.plain))
    for _ in range(3):
        kill_after_an_update(tmp_path, "killed", str(tmp_path / "e.yaml"))
    assert train(given, run="killed").updates == train(given, run="whole").updates
    assert_same(given, "killed", "whole")


@pytest.mark.slow
@pytest.mark.system
@RAY[1]
@RAY[2]
def test_two_learners_measure_and_learn_what_one_does(tmp_path: Path) -> None:
    given = settings(tmp_path, chats(24), **{"data.epochs": 2, "data.held_out": 0.4})
    one, two = (train(given.override({"algorithm.learners.count": count}), run=f"of-{count}") for count in (0, 2))
    for name in ("before", "after"):
        assert getattr(two, name)["loss"] == pytest.approx(getattr(one, name)["loss"], abs=1e-4)


def labelled(line: dict[str, Any]) -> tuple[list[int], list[int]]:
    """Ids and labels, from the template's text by hand."""
    tokenizer = tiny_tokenizer()
    ids: list[int] = []
    labels: list[int] = []
    for message in line["messages"]:
        asked = tokenizer.encode(f"<|{message['role']}|>", add_special_tokens=False)
        text = tokenizer.encode(f"{message['content']}<|end|>", add_special_tokens=False)
        ids += asked + text
        labels += [-100] * len(asked) + (text if message["role"] == "assistant" else [-100] * len(text))
    return ids, labels


def loss_of(model: Any, lines: list[dict[str, Any]]) -> torch.Tensor:
    """The mean loss that transformers computes itself, on padded rows."""
    rows = [labelled(line) for line in lines]
    longest = max(len(ids) for ids, _ in rows)
    ids = torch.tensor([row + [0] * (longest - len(row)) for row, _ in rows])
    labels = torch.tensor([row + [-100] * (longest - len(row)) for _, row in rows])
    seen = torch.tensor([[1] * len(row) + [0] * (longest - len(row)) for row, _ in rows])
    return model(input_ids=ids, attention_mask=seen, labels=labels).loss  # type: ignore[no-any-return]


def plain_loop(folder: str, lines: list[dict[str, Any]], held_out: list[dict[str, Any]], *, steps: int) -> list[float]:
    """The held-out losses before and after steps of AdamW on all lines."""
    model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, betas=(0.9, 0.95), weight_decay=0.0)
    with torch.no_grad():
        losses = [float(loss_of(model, held_out))]
    model.train()
    for _ in range(steps):
        optimizer.zero_grad()
        loss_of(model, lines).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    model.eval()
    with torch.no_grad():
        return [*losses, float(loss_of(model, held_out))]


@pytest.mark.system
@RAY[1]
@RAY[2]
def test_held_out_loss_is_that_of_a_plain_loop_of_the_same_steps(tmp_path: Path) -> None:
    lines = chats(10)
    other = write(tmp_path / "other.jsonl", lines[8:])
    small = {"algorithm.optimizer.micro_batch_tokens": 128, "algorithm.sampling.temperature": 0.7}
    given = settings(tmp_path, lines[:8], **{"data.held_out_file": other, "data.epochs": 8, "data.batch": 8} | small)
    found = train(given, run="ours")
    before, after = plain_loop(str(tmp_path / "tiny"), lines[:8], lines[8:], steps=8)
    assert found.stopped == f"8 passes over {tmp_path}/chats.jsonl done"
    assert after < before - 0.3
    assert found.before["loss"] == pytest.approx(before, abs=1e-5)
    assert found.after["loss"] == pytest.approx(after, abs=1e-3)
    rows = read_metrics(metrics_file(given.train, "ours"))
    assert [row["step"] for row in rows] == [*range(9)]
    measured = [row.get(Metric.EVALUATED_LOSS) for row in rows]
    assert measured == [found.before["loss"], *[None] * 7, found.after["loss"]]
    assert "held-out conversations" in Path(found.page).read_text()


@pytest.mark.system
@RAY[1]
@RAY[2]
def test_resumed_fine_tuning_equals_one_that_never_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lora = {"algorithm.model.lora": {"rank": 2, "dropout": 0.1}, "evaluation.every": 2}
    often = {"data.epochs": 2, "data.held_out": 0.3, "train.checkpoint_every": 2}
    given = settings(tmp_path, chats(12), **often | lora)
    assert_goes_on(given, monkeypatch)
    with open_store(given.store_url) as db:
        latest, *_ = POLICIES.latest(db, run="parts")
    assert latest.data["file"] == f"{tmp_path}/chats.jsonl"
    assert latest.data["updates"] == latest.number
    write(tmp_path / "chats.jsonl", chats(11))
    with pytest.raises(ConfigError, match="the run has learnt from other conversations"):
        train(given, run="parts")
