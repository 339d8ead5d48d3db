"""`anthropic`: messages, whole and streamed, a conversation with a tool of two turns each."""

import json
import sys

from anthropic import Anthropic, BadRequestError

MODEL = "sum"
TOOL = {
    "name": "add",
    "description": "The sum of two numbers.",
    "input_schema": {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}},
}


def settings(messages):
    return {"model": MODEL, "max_tokens": 200, "system": "Use the tool.", "tools": [TOOL], "messages": messages}


def whole(client, messages):
    return client.messages.create(**settings(messages))


def streamed(client, messages):
    with client.messages.stream(**settings(messages)) as stream:
        text = "".join(stream.text_stream)
        message = stream.get_final_message()
    assert text == "".join(block.text for block in message.content if block.type == "text")
    assert message.usage.output_tokens > 0
    assert message.usage.input_tokens > 0
    return message


def conversation(client, ask):
    messages, said = [], []
    for question in ("What is 2 + 3?", "And 10 + 20?"):
        messages.append({"role": "user", "content": question})
        while True:
            message = ask(client, messages)
            messages.append({"role": "assistant", "content": message.content})
            calls = [block for block in message.content if block.type == "tool_use"]
            assert (message.stop_reason == "tool_use") == bool(calls)
            if not calls:
                said.append(message.content[0].text)
                break
            results = [
                {"type": "tool_result", "tool_use_id": call.id, "content": str(call.input["a"] + call.input["b"])}
                for call in calls
            ]
            messages.append({"role": "user", "content": results})
    return said


def refusal(client):
    try:
        client.messages.create(**settings([{"role": "user", "content": "a"}]), thinking={"type": "adaptive"})
    except BadRequestError as error:
        return error.body["error"]["message"].split(":")[0]
    return None


with Anthropic(base_url=sys.argv[1], api_key="key", max_retries=0) as client:
    answers = conversation(client, whole) + conversation(client, streamed)
    models = [model.id for model in client.models.list()]
    assert client.models.retrieve(MODEL).id == MODEL in models, models
    print(json.dumps({"answers": answers, "refused": refusal(client)}))
