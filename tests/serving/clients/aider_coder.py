"""`aider`: two edits of one file. It streams, and writes its edits as text."""

import os
import tempfile
from pathlib import Path

from asked import URL, tell

os.environ |= {"OPENAI_API_BASE": f"{URL}/v1", "OPENAI_API_KEY": "key"}
os.chdir(tempfile.mkdtemp())

from aider.coders import Coder  # noqa: E402 - it reads the environment
from aider.io import InputOutput  # noqa: E402
from aider.models import Model  # noqa: E402

file = Path("sum.txt")
file.touch()
coder = Coder.create(main_model=Model("openai/sum"), io=InputOutput(yes=True), fnames=[str(file)])
answers = []
for text in ("The sum is 5.", "The sum is 30."):
    coder.run(f"<answer>\nsum.txt\n```\n{text}\n```\n</answer>")
    answers.append(file.read_text().strip())
tell(answers, [])
