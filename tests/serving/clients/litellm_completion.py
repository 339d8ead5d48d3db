"""`litellm`: to OpenAI's chat completions and to Anthropic's messages, whole and streamed."""

import json
import sys

import litellm

TOOL = {
    "type": "function",
    "function": {
        "name": "add",
        "description": "The sum of two numbers.",
        "parameters": {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}},
    },
}


def ask(model, base, messages, *, stream):
    answer = litellm.completion(
        model=model, api_base=base, api_key="key", messages=messages, tools=[TOOL], stream=stream, max_tokens=200
    )
    if stream:
        answer = litellm.stream_chunk_builder(list(answer), messages=messages)
    return answer.choices[0].message


def conversation(model, base, *, stream):
    messages, said = [], []
    for question in ("What is 2 + 3?", "And 10 + 20?"):
        messages.append({"role": "user", "content": question})
        while True:
            message = ask(model, base, messages, stream=stream)
            messages.append(message)
            if not message.tool_calls:
                said.append(message.content)
                break
            for call in message.tool_calls:
                given = json.loads(call.function.arguments)
                result = str(given["a"] + given["b"])
                messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
    return said


url = sys.argv[1]
answers = []
for stream in (False, True):
    answers += conversation("openai/sum", f"{url}/v1", stream=stream)
    answers += conversation("anthropic/sum", url, stream=stream)
print(json.dumps({"answers": answers}))
