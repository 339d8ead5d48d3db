"""`instructor` over OpenAI's chat completions and Anthropic's messages, whole and streamed. It has no agents."""

import instructor
from anthropic import Anthropic
from asked import URL, Verdict, tell

messages = [{"role": "user", "content": "Judge it."}]
verdicts = []
openai = instructor.from_provider("openai/tiny", base_url=f"{URL}/v1", api_key="key")
anthropic = instructor.from_anthropic(Anthropic(base_url=URL, api_key="key"), model="tiny", max_tokens=1000)
for client in (openai, anthropic):
    verdicts.append(client.create(response_model=Verdict, messages=messages))
    *_, last = client.create_partial(response_model=Verdict, messages=messages)
    verdicts.append(last)
tell([], verdicts)
