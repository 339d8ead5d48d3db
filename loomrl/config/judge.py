"""Models that judge."""

from loomrl.config.basic import ServerUrl
from loomrl.schema import Config


class JudgeModel(Config):
    """A model behind a server with OpenAI's chat completions API."""

    url: ServerUrl
    """The server's URL, such as http://127.0.0.1:8000/v1."""
    model: str
    """The model's name on that server."""
    key_variable: str = "OPENAI_API_KEY"
    """Name of the environment variable that holds the API key, if one is needed."""
