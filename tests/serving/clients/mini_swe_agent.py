"""`mini-swe-agent`: two tasks with its tool, a shell."""

import yaml
from asked import QUESTIONS, URL, tell
from minisweagent import package_dir
from minisweagent.agents.default import DefaultAgent
from minisweagent.environments.local import LocalEnvironment
from minisweagent.models.litellm_model import LitellmModel

config = yaml.safe_load((package_dir / "config" / "mini.yaml").read_text())
config["agent"].pop("mode")  # of its interactive agent
model = LitellmModel(
    model_name="openai/sum",
    model_kwargs={"api_base": f"{URL}/v1", "api_key": "key", **config["model"].pop("model_kwargs")},
    cost_tracking="ignore_errors",  # it stops at a model whose price it does not know
    **config["model"],
)
agent = DefaultAgent(model, LocalEnvironment(**config["environment"]), **config["agent"])
tell([agent.run(question)["submission"].strip() for question in QUESTIONS], [])
