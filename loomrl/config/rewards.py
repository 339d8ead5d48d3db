"""Settings of rewards: rubrics, parts beside the environments' own, and the pipeline that judges what was served."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from loomrl.config.basic import EntryPoint, NonNegative, PathText, Positive, PositiveInt, Seconds, ServerUrl, Share
from loomrl.config.monitor import TextRuleChoice
from loomrl.schema import Config

Identifier = Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_]*$", max_length=64)]


class JudgeModel(Config):
    """A model behind a server with OpenAI's chat completions API."""

    url: ServerUrl
    """The server's URL, such as http://127.0.0.1:8000/v1."""
    model: str
    """The model's name on that server."""
    key_variable: str = "OPENAI_API_KEY"
    """Name of the environment variable that holds the API key, if one is needed."""


class Criterion(Config):
    """A statement that is true of a good attempt."""

    name: Identifier
    """Name of the criterion in the judge's answer and in reports."""
    says: Annotated[str, Field(pattern=r"\w", max_length=2000)]
    """A plain statement, such as: The answer names its source."""
    weight: Positive = 1.0
    """Weight of the criterion; the weights of a rubric are divided by their sum."""


class JudgedPart(Config):
    """A part that a model behind a server judges."""

    judge: JudgeModel
    """The judge model."""
    weight: Positive = 1.0
    """Weight of this part in the reward."""
    together: PositiveInt = 8
    """Requests at a time."""
    max_tokens: PositiveInt = 1024
    """Maximum tokens of an answer, which has a sentence for each criterion or attempt."""
    timeout_s: Seconds = 45.0
    """Time limit of an answer, tries included."""
    structured: bool = True
    """Send the form of the answer as `response_format: json_schema`. False is for servers that refuse it: their model
    must find the form by the words of the request alone."""


class RubricPart(JudgedPart):
    """A judge's opinion per criterion: the weighted share of true statements, from 0 to 1."""

    kind: Literal["rubric"] = "rubric"
    name: Identifier = "rubric"
    """Name of the part in rewards; rubrics need different names."""
    criteria: Annotated[tuple[Criterion, ...], Field(min_length=1, max_length=20)]
    """Criteria to judge, all in one request."""
    votes: Annotated[int, Field(ge=1, le=9)] = 1
    """Number of judge answers per attempt, odd; the median per criterion counts. Each answer sees the criteria and
    verdicts in a different order."""
    calibration: PathText | None = None
    """File that maps this judge's scores to people's, made by `loomrl rewards calibrate`; null leaves scores
    unchanged."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        for texts in ([one.name for one in self.criteria], [" ".join(one.says.split()) for one in self.criteria]):
            twice = sorted({text for text in texts if texts.count(text) > 1})
            if twice:
                raise ValueError(f"criteria: {twice[0]!r} is there more than once. Change one of them")
        if not self.votes % 2:
            raise ValueError(f"votes={self.votes} is even, and has no vote in the middle. Take {self.votes + 1}")
        return self


class RankPart(JudgedPart):
    """A judge's ranking of a group's attempts, all in one request: the share of the others that an attempt beats, where
    a tie is half. In training only, and with groups of at least two."""

    kind: Literal["rank"] = "rank"
    name: Identifier = "rank"
    """Name of the part in rewards; rankings need different names."""
    question: Annotated[str, Field(pattern=r"\w", max_length=2000)] = (
        "Which attempts do better what was asked for: completely, correctly and in the form asked for?"
    )
    """The criterion by which attempts are compared."""
    twice: Share = 0.25
    """Share of groups that are ranked again in the opposite order; the mean of both counts, and by how much they differ
    is on record."""


class ClassifierPart(Config):
    """A reward model: a Hugging Face sequence classifier's score of an attempt."""

    kind: Literal["classifier"] = "classifier"
    name: Identifier = "classifier"
    """Name of the part in rewards; classifiers need different names."""
    path: PathText
    """The classifier's folder."""
    label: str | None = None
    """Label that makes an attempt good; null for a classifier with one logit."""
    scale: Literal["probability", "logit"] = "probability"
    """Score: the label's probability, from 0 to 1, or its logit, which has no bounds."""
    weight: Positive = 1.0
    """Weight of this part in the reward."""
    calibration: PathText | None = None
    """File that maps the probability to people's scores, made by `loomrl rewards calibrate`; null leaves it
    unchanged."""
    batch: PositiveInt = 8
    """Attempts that are scored at a time."""
    device: Literal["cpu", "cuda"] = "cpu"
    """Device of the process that shapes rewards: cpu in float32, or cuda in the folder's own precision."""

    @model_validator(mode="after")
    def _check_scale(self) -> Self:
        if self.scale == "logit" and self.calibration is not None:
            raise ValueError(
                f"scale=logit with calibration={self.calibration!r}, which maps probabilities: leave one out"
            )
        return self


Phrase = Annotated[str, Field(pattern=r"^\w[\w' -]*$", max_length=100)]


class CustomPart(Config):
    """A `loomrl.rewards.RewardComponent`, or a class that makes one from `settings`."""

    kind: Literal["custom"] = "custom"
    entry_point: EntryPoint
    """The component or its class as `package.module:name`."""
    settings: dict[str, Any] = Field(default_factory=dict)
    """Keyword arguments of the class."""
    weight: float | None = None
    """Weight of this part in the reward; null takes the component's own."""


class NoveltyPart(Config):
    """Novelty: a bonus for answers to a task that were rarely trained on before."""

    kind: Literal["novelty"] = "novelty"
    weight: float = 0.1
    """Weight of this part in the reward."""


class EfficiencyPart(Config):
    """Success discounted by length: half the success at a hundred words."""

    kind: Literal["efficiency"] = "efficiency"
    weight: float = 0.1
    """Weight of this part in the reward."""


class BrevityPart(Config):
    """Brevity regardless of success: 1 for no tokens, falling to 0 at `tokens`."""

    kind: Literal["brevity"] = "brevity"
    tokens: PositiveInt
    """Tokens of all answers of an attempt at which the part reaches 0; words where tokens are unknown."""
    weight: float = 1.0
    """Weight of this part in the reward."""


class CourtesyPart(Config):
    """Politeness in few tokens, regardless of success: the share of polite turns × (1 − (n / `tokens`)^ `power`) with n
    tokens in all."""

    kind: Literal["courtesy"] = "courtesy"
    phrases: Annotated[tuple[Phrase, ...], Field(min_length=1)] = ("please", "thank you")
    """Phrases that make a turn polite: whole words, in any case."""
    tokens: PositiveInt
    """Tokens of all answers of an attempt at which the part reaches 0; words where tokens are unknown."""
    power: Positive = 1.0
    """Shape of the discount: above 1, every further token costs more than the one before."""
    weight: float = 1.0
    """Weight of this part in the reward."""


class RulesPart(Config):
    """A constraint: minus the share of turns that break one of these rules, which are those of a gateway's monitor."""

    kind: Literal["rules"] = "rules"
    rules: Annotated[tuple[TextRuleChoice, ...], Field(min_length=1)]
    """The rules."""
    weight: Positive = 1.0
    """Weight of this part in the reward."""


class RewardConfig(Config):
    """Parts of the reward in addition to the environments' own, in training only; success is not affected."""

    parts: tuple[
        Annotated[
            CustomPart
            | NoveltyPart
            | EfficiencyPart
            | BrevityPart
            | CourtesyPart
            | RulesPart
            | RubricPart
            | RankPart
            | ClassifierPart,
            Field(discriminator="kind"),
        ],
        ...,
    ] = ()
    """Further parts of the reward."""
    adaptation: NonNegative = 0.0
    """Rate at which weight moves, after every update, to the parts with low mean scores; 0 keeps the weights."""

    @model_validator(mode="after")
    def _check_ranking(self) -> Self:
        if self.adaptation and self.ranks:
            raise ValueError(
                f"adaptation={self.adaptation:g} compares mean scores, and that of {self.ranks[0].name!r}, a ranking, "
                "is always 0.5. Set adaptation=0"
            )
        return self

    @property
    def ranks(self) -> list[RankPart]:
        """The parts that compare the attempts of a group."""
        return [part for part in self.parts if isinstance(part, RankPart)]


class RewardWeights(Config):
    """Weights of the components; they are divided by their sum."""

    task_completion: NonNegative = 0.40
    """Weight of task completion."""
    efficiency: NonNegative = 0.20
    """Weight of efficiency, compared with tasks of the same type."""
    code_quality: NonNegative = 0.15
    """Weight of the quality of Python code in the answers."""
    user_feedback: NonNegative = 0.25
    """Weight of people's feedback and of signals in the session."""


class RewardWatch(Config):
    """Detection of reward hacking: components that diverge between a window and those before it."""

    window: Annotated[int, Field(ge=50)] = 1000
    """Rewards in a window."""
    reference: Annotated[int, Field(ge=1, le=20)] = 4
    """Number of earlier windows to compare with."""
    error_rate: Annotated[float, Field(gt=0, le=0.5)] = 0.05
    """Probability of any false alarm, for any duration."""


def _custom_by_default(raw: Any) -> Any:
    return {"kind": "custom", **raw} if isinstance(raw, Mapping) else raw


Part = Annotated[
    Annotated[CustomPart | RubricPart | ClassifierPart, Field(discriminator="kind")],
    BeforeValidator(_custom_by_default),
]


class RewardPipeline(Config):
    """The pipeline that turns what was served into rewards between 0 and 1; 0.5 means no evidence."""

    weights: RewardWeights = RewardWeights()
    parts: tuple[Part, ...] = ()
    """Rubrics, classifiers and custom components (`loomrl.rewards.RewardComponent`) with scores within 0..1."""
    normalization: Literal["z_score", "min_max", "none"] = "z_score"
    """Normalisation of every component by the trajectories judged before. `z_score`: two standard deviations below the
    mean are 0, two above are 1. `min_max`: the lowest score is 0, the highest is 1."""
    window: Annotated[int, Field(ge=2, le=100_000)] = 1000
    """Number of earlier trajectories for normalisation, and of the same task type for efficiency."""
    least: Annotated[int, Field(ge=2)] = 30
    """Minimum number of scores to normalise a component or to judge efficiency."""
    judge: JudgeModel | None = None
    """Model that judges completion where no outcome was reported."""
    code: Literal["auto", "off"] = "auto"
    """Measure the quality of Python code in answers; `auto` does so where a sandbox is found."""
    watch: RewardWatch = RewardWatch()

    @model_validator(mode="after")
    def _check(self) -> Self:
        if not sum(self.weights.plain.values()):
            raise ValueError("weights: all are 0, and nothing would count. Give one of them a weight above 0")
        if self.least > self.window:
            raise ValueError(f"least={self.least} must not be above window={self.window}: nothing would be normalised")
        custom = [part for part in self.parts if isinstance(part, CustomPart)]
        unweighted = [part.entry_point for part in custom if part.weight is not None and part.weight < 0]
        for part in self.parts:
            if isinstance(part, ClassifierPart) and part.scale == "logit":
                raise ValueError(f"parts: scale=logit of {part.name!r} is not within 0..1. Set scale=probability")
        if unweighted:
            raise ValueError(f"parts: {unweighted[0]} has a negative weight. Let the score fall instead")
        return self
