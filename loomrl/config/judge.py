"""Models that judge."""

from loomrl.config.basic import ServerUrl
from loomrl.schema import Config


class JudgeModel(Config):
    """A model behind a server that speaks OpenAI's chat completions."""

    url: ServerUrl
    """Such as http://127.0.0.1:8000/v1."""
    model: str
    """The model's name on that server."""
    key_variable: str = "OPENAI_API_KEY"
    """The environment variable that holds the key, if one is needed."""
