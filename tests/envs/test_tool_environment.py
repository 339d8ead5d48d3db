"""ToolCall: what is paid is the state that is left, and nothing that was merely said."""

import json
import time
from contextlib import suppress
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from play_support import to_the_end

from loomrl.envs.tool import ToolCallEnvironment
from loomrl.envs.tool.amount import UnreadableAmount, same_answer, spelt, value_of
from loomrl.envs.tool.call import LONGEST, MOST, FunctionCall, MalformedCall, read_call, split_calls
from loomrl.envs.tool.corpus import find_pages, pages, state_fact, text_of
from loomrl.envs.tool.family.bank import DECOYS, TOOLS, TRANSFER
from loomrl.envs.tool.kit import Invalid, check_arguments, fields, text, whole
from loomrl.envs.tool.problem import Faults, ToolProblem, Turnstile
from loomrl.envs.tool.session import ToolSession, calls_needed, goal_of
from loomrl.envs.tool.world import MOST_FILES, MOST_ROWS, ToolError, ToolWorld
from loomrl.errors import ConfigError

DONE = "<answer>done</answer>"
PAY = FunctionCall("transfer", {"source": "A1", "target": "A2", "amount": 40})


async def open_task(family, level=1, seed=0, **settings):
    environment = ToolCallEnvironment(settings)
    (message,) = await environment.reset(environment.task(family, level, seed))
    return environment, message.content


def bank(**faults):
    accounts = [{"account": f"A{n}", "owner": "Ana", "balance": 100} for n in (1, 2)]
    return ToolProblem(
        "Pay.",
        ToolWorld(tables={"accounts": accounts}),
        TOOLS,
        (PAY,),
        check=lambda call: FunctionCall("list_transfers", {}),
        faults=Faults(**faults),
    )


def call_tools(session, call):
    return json.loads(session.call(json.dumps(call._asdict())))


def balances(session):
    return [row["balance"] for row in session.world.tables["accounts"]]


@pytest.mark.parametrize("family", ToolCallEnvironment.families)
async def test_known_way_earns_everything_in_spite_of_faults(family):
    environment, _ = await open_task(family, 10, 5)
    step = await to_the_end(environment)
    assert (step.reward.success, step.terminated) == (1.0, True)
    assert step.reward.total == pytest.approx(environment.reward_range[1])


@pytest.mark.parametrize("family", ["file", "api.booking", "api.bank", "api.inventory", "chain"])
async def test_saying_that_it_is_done_is_worth_nothing(family):
    for level in range(1, 11):
        environment, _ = await open_task(family, level)
        step = await environment.step(DONE)
        assert (step.reward.total, step.reward.success, step.terminated) == (0.0, 0.0, True)


async def test_state_counts_however_it_was_reached():
    environment, prompt = await open_task("file", 1)
    words = prompt.split("'")[1]
    path = prompt.split("the file ")[1].split(".txt")[0] + ".txt"
    calls = [FunctionCall("write_file", {"path": path, "text": text}) for text in ("wrong", f"{words}\r\n")]
    step = await environment.step("".join(map(str, calls)) + DONE)
    assert step.reward.success == 1.0
    assert step.reward.parts["tool_efficiency"] == pytest.approx(0.025)


async def test_whoever_does_more_than_asked_has_failed():
    for family in ("file", "api.booking", "api.bank", "api.inventory"):
        environment, _ = await open_task(family, 1, 3)
        call = environment.oracle()
        arguments = json.loads(call.removeprefix("<tool_call>").removesuffix("</tool_call>"))["arguments"]
        other = {"path": "extra.txt"} if family == "file" else {}
        again = FunctionCall(json.loads(call[11:-12])["name"], {**arguments, **other})
        if family == "api.booking":
            again = FunctionCall(again.name, {**again.arguments, "day": 9})
        step = await environment.step(f"{call}{again}{DONE}")
        assert step.reward.success == 0.0, family


async def test_right_answer_with_a_changed_world_has_failed():
    environment, _ = await open_task("chain", 4, 1)
    harmless = await environment.step(str(FunctionCall("write_file", {"path": "other.txt", "text": "x"})))
    assert "written" in harmless.observation[0].content
    assert (await to_the_end(environment)).reward.success == 0.0


async def test_answer_is_judged_by_what_follows_the_last_call():
    environment, _ = await open_task("calculator", 1)
    hidden = str(FunctionCall("calculate", {"expression": "1 + 1 <answer>5</answer>"}))
    step = await environment.step(hidden)
    assert not step.terminated
    step = await environment.step(f"<answer>1</answer>{FunctionCall('calculate', {'expression': '1'})}")
    assert not step.terminated


async def test_parts_say_what_was_not_so_good():
    environment, _ = await open_task("api.bank", 2, 1)
    await environment.step('<tool_call>{"name": "transfer", "arguments": {}}</tool_call>')
    await environment.step('<tool_call>{"name": "no_such", "arguments": {}}</tool_call>')
    unknown = str(FunctionCall("transfer", {"source": "A1", "target": "A2", "amount": 1}))
    for _ in range(2):
        await environment.step(unknown)
    parts = (await to_the_end(environment)).reward.parts
    assert parts == {
        "correctness": 1.0,
        "tool_selection": pytest.approx(0.05 * 4 / 5),
        "parameter_format": pytest.approx(0.05 * 3 / 5),
        "interpretation": pytest.approx(0.05 * 2 / 5),
        "tool_efficiency": pytest.approx(0.05 * 1 / 5),
    }


async def test_solving_without_any_call_earns_no_part_for_calls():
    environment, prompt = await open_task("calculator", 1)
    first, second = prompt.split("?")[0].removeprefix("What is ").split(" * ")
    step = await environment.step(f"<answer>{int(first) * int(second)}</answer>")
    assert (step.reward.total, step.reward.success) == (1.0, 1.0)


async def test_too_many_calls_at_once_are_not_carried_out():
    environment, _ = await open_task("api.bank", 1)
    step = await environment.step(environment.oracle() * 9 + DONE)
    assert "at most 8" in step.observation[0].content
    assert not step.terminated
    assert (await to_the_end(environment)).reward.success == 1.0


@pytest.mark.parametrize(
    ("listing", "sign"),
    [("brief", "calculate(expression):"), ("openai", '"type": "function"'), ("mcp", '"inputSchema"')],
)
async def test_tools_are_listed_as_it_was_set(listing, sign):
    _, prompt = await open_task("calculator", 10, listing=listing)
    assert sign in prompt
    if listing == "mcp":
        line = next(line for line in prompt.split("\n") if line.startswith("{"))
        assert {"name", "description", "inputSchema"} == set(json.loads(line)["tools"][0])
    with pytest.raises(ConfigError, match="listing"):
        ToolCallEnvironment({"listing": "xml"})


def test_passing_trouble_changes_nothing_and_passes():
    session = ToolSession(bank(broken=(0,)))
    assert call_tools(session, PAY)["error"]["status"] == 503
    assert balances(session) == [100, 100]
    assert call_tools(session, PAY)["result"]["amount"] == 40
    assert balances(session) == [60, 140]


def test_lost_confirmation_hides_what_was_carried_out_and_a_dropped_call_looks_the_same():
    lost = ToolSession(bank(lost=(0,)))
    dropped = ToolSession(bank(dropped=(0,)))
    assert call_tools(lost, PAY) == call_tools(dropped, PAY)
    assert (balances(lost), balances(dropped)) == ([60, 140], [100, 100])
    assert len(call_tools(lost, FunctionCall("list_transfers", {}))["result"]["items"]) == 1
    assert not call_tools(dropped, FunctionCall("list_transfers", {}))["result"]["items"]


def test_known_way_looks_before_it_calls_again():
    for faults, made in (({"lost": (0,)}, 2), ({"dropped": (0,)}, 3)):
        assert [row["balance"] for row in goal_of(bank(**faults)).tables["accounts"]] == [60, 140]
        assert calls_needed(bank(**faults)) == made


def test_calling_again_without_looking_pays_twice():
    session = ToolSession(bank(lost=(0,)))
    call_tools(session, PAY)
    call_tools(session, PAY)
    assert session.world.state != goal_of(bank(lost=(0,))).state
    assert session.count.heedless == 1


def test_rate_limit_tells_how_long_to_wait_and_waiting_helps():
    session = ToolSession(bank(burst=2, window_s=20))
    look = FunctionCall("get_account", {"account": "A1"})
    assert [("error" in call_tools(session, look)) for _ in range(2)] == [False, False]
    refused = call_tools(session, look)["error"]
    assert refused["status"] == 429
    call_tools(session, FunctionCall("wait", {"seconds": refused["retry_after_s"] - 1}))
    assert call_tools(session, FunctionCall("get_account", {"account": "A2"}))["result"]["owner"] == "Ana"


def test_session_ends_after_so_many_calls_and_login_begins_another():
    session = ToolSession(bank(session=1))
    assert call_tools(session, PAY)["error"]["status"] == 401
    call_tools(session, FunctionCall("login", {}))
    assert "result" in call_tools(session, PAY)
    assert call_tools(session, PAY)["error"]["status"] == 401
    assert balances(session) == [60, 140]


def test_a_rate_limit_ends_after_any_number_of_refused_calls():
    turnstile = Turnstile(Faults(burst=1, window_s=20))
    turnstile.admit()
    refused = 0
    while True:
        try:
            turnstile.admit()
            break
        except ToolError:
            refused += 1
    assert refused == 19


def test_money_is_neither_made_nor_lost_by_refused_transfers():
    session = ToolSession(bank())
    for arguments in ({"source": "A1", "target": "A1", "amount": 1}, {"source": "A1", "target": "A2", "amount": 101}):
        assert "error" in call_tools(session, FunctionCall("transfer", arguments))
    assert balances(session) == [100, 100]


def test_world_is_bounded():
    world = ToolWorld(tables={"orders": []})
    for number in range(MOST_FILES):
        world.write(f"{number}", "x")
    with pytest.raises(ToolError, match="room for"):
        world.write("more", "x")
    for _ in range(MOST_ROWS):
        world.add("orders", item="I1")
    with pytest.raises(ToolError, match="room for"):
        world.add("orders", item="I1")


def test_row_ids_and_order_are_no_part_of_the_state():
    first, second = ToolWorld(tables={"orders": []}), ToolWorld(tables={"orders": []})
    for world, items in ((first, "ab"), (second, "cba")):
        for item in items:
            world.add("orders", item=item)
    second.tables["orders"] = [row for row in second.tables["orders"] if row["item"] != "c"]
    assert first.state == second.state
    second.add("orders", item="a")
    assert first.state != second.state


@pytest.mark.parametrize(
    "query", ['"', "a OR b AND", "NEAR(x y)", "title:*", "'; DROP TABLE page; --", "^x", "((", "\x00", "-", "é"]
)
def test_a_query_is_words_and_never_syntax(query):
    assert isinstance(find_pages(query, 3), list)


def test_a_page_is_found_by_its_title_and_says_what_the_edition_says():
    for kind in ("town", "person", "company"):
        for page in pages(kind)[::40]:
            assert find_pages(page.title, 1) == [page]
            assert find_pages(f"tell me about {page.title}, please", 1) == [page]
            assert text_of(page, "1") != text_of(page, "2")
    town = pages("town")[0]
    mayor = state_fact(town, "mayor", "1")
    assert f"The mayor of {town.title} is {mayor.title}." in text_of(town, "1")


def test_decoys_leave_another_world_behind():
    problem = bank()
    for tool in ("transfer_express", "transfer_v1"):
        world = problem.world.copy()
        next(decoy for decoy in DECOYS if decoy.name == tool).run(world, PAY.arguments)
        right = problem.world.copy()
        TRANSFER.run(right, PAY.arguments)
        assert world.state != right.state


SCHEMA = fields(room=text("which", longest=5), hour=whole("when", 8, 17), optional=("hour",))


def test_calls_and_what_follows_them_are_told_apart():
    one = FunctionCall("a", {"x": 1})
    two = FunctionCall("b", {})
    assert split_calls(f"Let me see. {one} and {two}\n<answer>3</answer>") == (
        ['{"name": "a", "arguments": {"x": 1}}', '{"name": "b", "arguments": {}}'],
        "\n<answer>3</answer>",
    )


def test_last_call_need_not_be_closed():
    assert split_calls('<tool_call>{"name": "a"') == (['{"name": "a"'], "")


def test_flood_of_calls_is_not_read_to_its_end():
    calls, _ = split_calls("<tool_call>{}</tool_call>" * 10_000)
    assert len(calls) == MOST + 1


@given(
    name=st.text(max_size=20),
    arguments=st.dictionaries(st.text(max_size=9), st.integers(-(10**16), 10**16) | st.text(max_size=9)),
)
def test_every_call_that_was_written_is_read_again(name, arguments):
    raw = json.dumps({"name": name, "arguments": arguments})
    assert read_call(raw) == FunctionCall(name, arguments)
    assert read_call(f"\n{raw} \n").key == FunctionCall(name, dict(reversed(arguments.items()))).key


@pytest.mark.parametrize(
    ("raw", "word"),
    [
        ("", "no JSON"),
        ("null", "arguments"),
        ('{"name": "a"}', "arguments"),
        ('{"name": "a", "arguments": {}, "reward": 1}', "nothing else"),
        ('{"name": ["a"], "arguments": {}}', "string"),
        ('{"name": "a", "arguments": "{}"}', "object"),
        ('{"name": "a", "name": "b", "arguments": {}}', "twice"),
        ('{"name": "a", "arguments": {"x": NaN}}', "NaN"),
        ('{"name": "a", "arguments": {"x": -Infinity}}', "Infinity"),
        ('{"name": "a", "arguments": {"x": 1e999}}', "large"),
        ('{"name": "a", "arguments": {"x": ' + "9" * 3000 + "}}", "digits"),
        ('{"name": "a", "arguments": ' + "[" * 2000, "brackets"),
        ('{"name": "a", "arguments": {"x": "' + "y" * LONGEST + '"}}', "characters"),
    ],
)
def test_what_is_no_call_is_refused_with_the_reason(raw, word):
    with pytest.raises(MalformedCall, match=word):
        read_call(raw)


def test_arguments_that_fit_are_taken_and_whole_floats_become_integers():
    assert check_arguments({"room": "R1", "hour": 9.0}, SCHEMA) == {"room": "R1", "hour": 9}
    assert check_arguments({"room": "R1"}, SCHEMA) == {"room": "R1"}


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ({}, "missing"),
        ({"room": "R1", "day": 2}, "no property 'day'"),
        ({"room": 1}, "string expected, not integer"),
        ({"room": ""}, "characters"),
        ({"room": "R12345"}, "characters"),
        ({"room": "R1", "hour": "9"}, "integer expected, not string"),
        ({"room": "R1", "hour": True}, "integer expected, not boolean"),
        ({"room": "R1", "hour": 9.5}, "integer expected, not number"),
        ({"room": "R1", "hour": None}, "integer expected, not null"),
        ({"room": "R1", "hour": 18}, "8 to 17"),
        ({"room": "R1", "hour": [9]}, "integer expected, not array"),
    ],
)
def test_arguments_that_do_not_fit_are_refused_with_where_and_why(arguments, word):
    with pytest.raises(Invalid, match=word):
        check_arguments(arguments, SCHEMA)


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("2 + 3 * 4", "14"),
        ("(2 + 3) * 4", "20"),
        ("2 - 3 - 4", "-5"),
        ("-2^2", "-4"),
        ("2^10", "1024"),
        ("1 / 3 + 1 / 6", "0.5"),
        ("1 / 3", "1/3"),
        ("0.1 + 0.2", "0.3"),
        ("--3", "3"),
        ("12345678901234567890 * 98765432109876543210", "1219326311370217952237463801111263526900"),
    ],
)
def test_values_are_exact(expression, value):
    assert spelt(value_of(expression)) == value


@pytest.mark.parametrize(
    "expression",
    [
        "",
        "2 +",
        "(2",
        "2)",
        "2 3",
        "1/0",
        "9^9^9",
        "9^99",
        "99^40^2",
        "1e5",
        "abs(2)",
        "٣",
        "²",
        "2**3",
        "(" * 50 + "1",
        "9" * 50,
    ],
)
def test_what_has_no_value_is_refused(expression):
    with pytest.raises(UnreadableAmount):
        value_of(expression)


@given(st.integers(-(10**9), 10**9), st.integers(1, 10**6))
def test_numbers_are_spelt_so_that_they_are_read_as_the_same(numerator, denominator):
    value = Fraction(numerator, denominator)
    assert same_answer(spelt(value), spelt(value))
    assert not same_answer(spelt(value), spelt(value + 1))


@given(st.text(alphabet="0123456789+-*/^(). ", max_size=120))
def test_no_expression_is_slow_or_raises_anything_else(expression):
    start = time.process_time()
    with suppress(UnreadableAmount):
        spelt(value_of(expression))
    assert time.process_time() - start < 0.05


@pytest.mark.parametrize(
    ("wanted", "given", "same"),
    [
        ("1760", "1,760", True),
        ("1760", "1760.0", True),
        ("1760", "1760.", True),
        ("0.5", "1/2", True),
        ("0.5", "2/4", False),
        ("1760", "176000/100", False),
        ("1760", "1760/1", False),
        ("-3", " -3 ", True),
        ("1760", "1760 or 1761", False),
        ("1760", "17,60", False),
        ("1760", "１７６０", False),
        ("1760", "1760 1761", False),
        ("Golvel Sateth", "golvel  sateth.", True),
        ("Golvel Sateth", "Golvel Sateth or Damy Sateth", False),
        ("Golvel Sateth", "Sateth", False),
        ("1/3", "2/0", False),
        ("42", "The answer is **42**.", True),
        ("42", "The answer is not 42", False),
        ("42", "84/2", False),
    ],
)
def test_answers_are_compared_by_what_they_say(wanted, given, same):
    assert same_answer(wanted, given) is same


CALL = '{"name": "a", "arguments": {"x": 1}}'


@pytest.mark.parametrize(
    "text",
    [
        f"I call it.\n```json\n{CALL}\n```\nThen I wait.", f"~~~\n{CALL}\n~~~\nThen I wait.",
        f"<tool_call>```json\n{CALL}\n```</tool_call>\nThen I wait.",
        f"```\n{CALL.replace('arguments', 'parameters')}\n```\nThen I wait.",
        f"<tool_call>{CALL.replace('arguments', 'parameters')}</tool_call>\nThen I wait.",
    ],
)  # fmt: skip
def test_a_call_may_be_fenced_and_have_parameters(text):
    (raw,), rest = split_calls(text)
    assert read_call(raw) == FunctionCall("a", {"x": 1})
    assert rest == "\nThen I wait."


@pytest.mark.parametrize(
    "text",
    ['```json\n{"result": 1}\n```', f"```json\n{CALL}", f"```json\n[{CALL}]\n```", f"I would call `{CALL}`.", CALL],
)
def test_other_blocks_are_no_calls(text):
    assert split_calls(text) == ([], text)


def test_both_words_for_arguments_at_once_are_refused():
    with pytest.raises(MalformedCall, match="nothing else"):
        read_call('{"name": "a", "arguments": {}, "parameters": {}}')
