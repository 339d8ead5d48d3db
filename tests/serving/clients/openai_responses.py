"""`openai`: responses, whole and streamed, a conversation with a tool of two turns each."""

import json
import sys

from openai import NotFoundError, OpenAI

MODEL = "sum"
TOOL = {
    "type": "function",
    "name": "add",
    "description": "The sum of two numbers.",
    "parameters": {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}},
    "strict": False,
}


def whole(client, items):
    return client.responses.create(model=MODEL, input=items, instructions="Use the tool.", tools=[TOOL])


def streamed(client, items):
    with client.responses.stream(model=MODEL, input=items, instructions="Use the tool.", tools=[TOOL]) as stream:
        text = "".join(event.delta for event in stream if event.type == "response.output_text.delta")
        response = stream.get_final_response()
    assert text == response.output_text, (text, response)
    return response


def conversation(client, ask):
    items, said = [], []
    for question in ("What is 2 + 3?", "And 10 + 20?"):
        items.append({"role": "user", "content": question})
        while True:
            response = ask(client, items)
            items += response.output
            calls = [item for item in response.output if item.type == "function_call"]
            if not calls:
                said.append(response.output_text)
                break
            for call in calls:
                given = json.loads(call.arguments)
                output = str(given["a"] + given["b"])
                items.append({"type": "function_call_output", "call_id": call.call_id, "output": output})
    return said


def refusal(client):
    try:
        client.responses.create(model=MODEL, input="a", previous_response_id="resp_1")
    except NotFoundError as error:
        return error.param
    return None


with OpenAI(base_url=f"{sys.argv[1]}/v1", api_key="key", max_retries=0) as client:
    answers = conversation(client, whole) + conversation(client, streamed)
    print(json.dumps({"answers": answers, "refused": refusal(client)}))
