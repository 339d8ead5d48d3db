"""`openai`: chat completions, whole and streamed, a conversation with a tool of two turns each."""

import json
import sys

from openai import BadRequestError, OpenAI

MODEL = "sum"
TOOL = {
    "type": "function",
    "function": {
        "name": "add",
        "description": "The sum of two numbers.",
        "parameters": {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}},
    },
}


def results(calls):
    for call in calls:
        given = json.loads(call.function.arguments)
        yield {"role": "tool", "tool_call_id": call.id, "content": str(given["a"] + given["b"])}


def whole(client, messages):
    while True:
        message = client.chat.completions.create(model=MODEL, messages=messages, tools=[TOOL]).choices[0].message
        messages.append(message)
        if not message.tool_calls:
            return message.content
        messages.extend(results(message.tool_calls))


def streamed(client, messages):
    while True:
        options = {"include_usage": True}
        with client.chat.completions.stream(
            model=MODEL, messages=messages, tools=[TOOL], stream_options=options
        ) as stream:
            text = "".join(event.delta for event in stream if event.type == "content.delta")
            done = stream.get_final_completion()
        message = done.choices[0].message
        assert text == (message.content or ""), (text, message)
        assert done.usage.total_tokens == done.usage.prompt_tokens + done.usage.completion_tokens
        messages.append(message)
        if not message.tool_calls:
            return message.content
        messages.extend(results(message.tool_calls))


def conversation(client, answer):
    messages, said = [{"role": "system", "content": "Use the tool."}], []
    for question in ("What is 2 + 3?", "And 10 + 20?"):
        messages.append({"role": "user", "content": question})
        said.append(answer(client, messages))
    return said


def refusal(client):
    try:
        messages = [{"role": "user", "content": "a"}]
        client.chat.completions.create(model=MODEL, messages=messages, modalities=["text", "audio"])
    except BadRequestError as error:
        return error.param
    return None


with OpenAI(base_url=f"{sys.argv[1]}/v1", api_key="key", max_retries=0) as client:
    drawn = client.chat.completions.create(
        model=MODEL, messages=[{"role": "user", "content": "Hello"}], logprobs=True, top_logprobs=1, n=2, seed=1
    )
    told = ["".join(token.token for token in choice.logprobs.content) for choice in drawn.choices]
    assert told == [choice.message.content for choice in drawn.choices], told
    completion = client.completions.create(model=MODEL, prompt="Hello", echo=True)
    pieces = client.completions.create(model=MODEL, prompt="Hello", stream=True)
    assert completion.choices[0].text == "Hello" + "".join(piece.choices[0].text for piece in pieces)
    answers = conversation(client, whole) + conversation(client, streamed)
    models = [model.id for model in client.models.list()]
    assert client.models.retrieve(MODEL).id == MODEL in models, models
    print(json.dumps({"answers": answers, "refused": refusal(client)}))
