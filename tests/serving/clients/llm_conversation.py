"""`llm`: a conversation with a tool, whole and streamed, over chat and over responses."""

import json
import os
import tempfile
from pathlib import Path

from asked import QUESTIONS, URL, Verdict, add, tell

os.environ["LLM_USER_PATH"] = folder = tempfile.mkdtemp()
server = {"api_base": f"{URL}/v1", "supports_tools": True, "supports_schema": True}
models = [
    {"model_id": f"{name}-{responses}", "model_name": name, "responses": responses, **server}
    for name in ("sum", "tiny")
    for responses in (False, True)
]
Path(folder, "extra-openai-models.yaml").write_text(json.dumps(models))

import llm  # noqa: E402 - it reads the file above

answers, verdicts = [], []
for responses in (False, True):
    for stream in (False, True):
        conversation = llm.get_model(f"sum-{responses}").conversation(tools=[add])
        for question in QUESTIONS:
            chain = conversation.chain(question, stream=stream, key="key")
            answers.append([response.text() for response in chain.responses()][-1])
        judged = llm.get_model(f"tiny-{responses}").prompt("Judge it.", schema=Verdict, stream=stream, key="key")
        verdicts.append(Verdict.model_validate_json(judged.text()))
tell(answers, verdicts)
