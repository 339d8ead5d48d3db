"""The names of a run's metrics, with their meanings. Learner, sinks, doctor and report all take them from here.

A metric that is split by environment, family, part or boundary is written under its own name and once more for each:
`Metric.SUCCESS.of("Math/algebra.linear")` is `success/Math/algebra.linear`. An action is a token of a language policy,
or a step's action of a control policy.
"""

from collections.abc import Iterable
from enum import StrEnum


class Metric(StrEnum):
    """A name, and its `meaning` in one line. Every value is that of one update unless the line says otherwise."""

    meaning: str

    def __new__(cls, name: str, meaning: str) -> "Metric":
        """The name is the member's value; the meaning is carried along."""
        member = str.__new__(cls, name)
        member._value_ = name
        member.meaning = meaning
        return member

    SUCCESS = "success", "Mean success of the attempts, 0 to 1; also per environment/family."
    LEVEL = "level", "Mean level of the tasks that were attempted; also per environment/family."
    REWARD_TOTAL = "reward/total", "Mean reward of an attempt."
    REWARD_DEVIATION = "reward/deviation", "Standard deviation of the attempts' rewards."
    REWARD_CHECKED = "reward/checked", "Mean success by environments' second checks, of the attempts that have one."
    REWARD_UNEARNED = "reward/unearned", "Mean success that those attempts were paid for and the check does not find."
    REWARD_HACKED = "reward/hacked", "1 once that is proved to have begun to rise, else 0."
    REWARD_PART = "reward/part", "Mean of one named part of the reward; the parts sum to the unclipped total."

    JUDGE_DISAGREEMENT = (
        "judge/disagreement",
        "Share of pairs that a judge ranks otherwise in the opposite order, of groups ranked twice; only by part.",
    )

    EVALUATED = (
        "evaluation/success",
        "Mean success on held-out tasks where the policy was evaluated, and only then; also per environment/family.",
    )
    EVALUATED_LOSS = (
        "evaluation/loss",
        "Negative log-likelihood of the assistant's tokens in held-out conversations, in nats per token, where the "
        "policy was evaluated.",
    )
    EVALUATED_PAIRS = (
        "evaluation/pairs",
        "Share of held-out pairs of which a reward model scores the preferred answer higher, where it was evaluated.",
    )
    EVALUATED_REWARD = "evaluation/reward", "Mean reward on held-out tasks where the policy was evaluated."

    RETURN = "return/training", "Mean return of the latest 100 episodes; absent until one has ended."
    SUCCESS_TOLD = "success/training", 'Mean `info["is_success"]` of the latest 100 episodes, if environments tell it.'
    RETURN_EVALUATED = "return/evaluation", "Mean return of the greedy policy where it was evaluated, and only then."
    RETURN_AHEAD = (
        "return/greedy_ahead",
        "Mean return of the evaluation less that of training, where both are in the same environment.",
    )
    RETURN_IDLE = "return/idle", "Mean return of actions that are all zero, in the episodes of the evaluation."
    RETURN_OBJECTIVE = (
        "return/objective",
        "Mean discounted return by objective, of the latest 100 episodes; only by objective.",
    )
    FRONT_HYPERVOLUME = "front/hypervolume", "Volume between the reference and the front where it was evaluated."
    STAGE = "curriculum/stage", "Number of the curriculum's stage, counted from 1."

    REWARD_CURIOSITY = "reward/curiosity", "Mean of what a step was paid for novelty, which is no reward of an attempt."

    POLICY_LOSS = "policy/loss", "What the policy's gradient descends."
    POLICY_KL = (
        "policy/kl",
        "KL to the policy with which reinforcement began, in nats per token; of a data set, the KL from that policy.",
    )
    POLICY_STEP_KL = "policy/step_kl", "KL between the policy before and after the update, in nats per action."
    POLICY_ENTROPY = "policy/entropy", "Mean entropy of the next action, in nats."
    POLICY_RANDOM = "policy/random", "Share of the choices that are random (ε)."
    POLICY_CLIP_FRACTION = "policy/clip_fraction", "Share of actions that the clip kept from teaching."
    POLICY_SATURATED = "policy/saturated", "Share of the numbers in real-valued actions that are at a bound."
    POLICY_DEVIATION = (
        "policy/deviation",
        "Mean standard deviation of real-valued actions, where half of the way between their bounds is 1.",
    )
    POLICY_DRIFT = (
        "policy/drift",
        "Mean difference of learner and engine over the log-probability of a token of the present policy.",
    )
    POLICY_DRIFT_ALARM = "policy/drift_alarm", "1 where that difference is more than engine.checks.drift, else 0."
    POLICY_IMPORTANCE = "policy/importance", "Mean weight of a token against engine-learner mismatch; 1 is no mismatch."

    SUPERVISED_LOSS = "supervised/loss", "Negative log-likelihood of demonstrated tokens, in nats per token."

    VALUE_LOSS = "value/loss", "Squared error of the value function."
    VALUE_EXPLAINED_VARIANCE = (
        "value/explained_variance",
        "Share of the returns' variance the value function foretells.",
    )

    VALUE_DISAGREEMENT = "value/disagreement", "Mean deviation between critics over what they expect of a step."

    VALUE_CALIBRATION = (
        "value/calibration",
        "Mean squared error of critics over what they were trusted to have; 1 is calibrated, above is too sure.",
    )

    EXPERT_USE = "expert/use", "Mean weight of an expert over steps; only by expert."
    EXPERT_IMBALANCE = "expert/imbalance", "Nats missing to even use of the experts, on average over steps; 0 is even."
    EXPERT_DIVERSITY = "expert/diversity", "Nats by which an action tells which expert took it, on average over steps."

    PREFERENCE = "preference", "Weight of an objective that adapts to those that lag; only by objective."
    CONSTRAINT = "constraint", "Multiplier of an objective that is held above a threshold; only by objective."

    LEAGUE_POINTS = (
        "league/points",
        "Mean points of a game, a draw being half of one; also by opponent: past, present, scripted.",
    )
    LEAGUE_RATING = "league/rating", "Rating of the present policy in Elo, the first version's is 0; also low and high."
    LEAGUE_MEMBERS = "league/members", "Past versions in the pool."
    LEAGUE_ILLEGAL = "league/illegal", "Mean illegal moves of an opponent in a game, which were replaced by chance."

    NODE_STEPS = "node/steps", "Environment steps that a runner brought; only by runner."
    NODE_RETURN = "node/return", "Mean return of the episodes that ended in a runner; only by runner."
    NODE_PREFERENCE = "node/preference", "Mean weight of the first objective in a runner's steps; only by runner."

    PREFERENCE_ACCURACY = (
        "preference/accuracy",
        "Share of pairs in which the better attempt leads; of judged answers, of those on their side of the baseline.",
    )
    PREFERENCE_MARGIN = (
        "preference/margin",
        "Mean lead of the better attempt, or of a judged answer, in log-probability gained, times beta.",
    )
    PREFERENCE_BASELINE = "preference/baseline", "Log-probability that answers to other prompts have gained on average."

    GRADIENT_NORM = "gradient/norm", "Mean length of the gradient before clipping."
    GRADIENT_CLIPPED = "gradient/clipped", "Share of optimizer steps whose gradient was shortened."
    LEARNING_RATE = "learning_rate", "Step size of the optimizer at the end of the update."

    LENGTH_ACTION = "length/action", "Mean tokens that the policy wrote in an attempt."
    LENGTH_PROMPT = "length/prompt", "Mean tokens of an attempt that the policy did not write."
    LENGTH_TURNS = "length/turns", "Mean turns of an attempt."
    EPISODE_STEPS = "length/episode", "Mean steps of the latest 100 episodes."

    GROUPS_DROPPED = "groups/dropped", "Groups that were attempted and not learnt from."
    GROUPS_WITHOUT_SIGNAL = "groups/without_signal", "Share of groups in which all attempts earned the same."
    FAILURES = "failures", "Attempts that failed, which is never a reward; also per boundary."

    TIME_ROLLOUT = "time/rollout", "Seconds in which the learner waited for the policy to act."
    TIME_ENGINE = "time/engine", "Seconds of the update in which the engines computed, on average over the runners."
    TIME_ENGINE_IDLE = (
        "time/engine_idle",
        "Seconds in which the engines did not compute; only if rollouts overlap with it.",
    )
    TIME_QUEUE = "time/queue", "Mean seconds from the end of a group to its update; only if rollouts overlap with it."
    TIME_HUB = "time/hub", "Seconds spent leasing from the hub and acknowledging."
    TIME_LEARN = "time/learn", "Seconds of the learner's forward passes, backward passes and steps."
    TIME_PUBLISH = "time/publish", "Seconds until the engines had the new weights and had proved it; also by part."
    PUBLISH_DISTANCE = "publish/distance", "Largest such difference over the tokens that the engines were probed with."
    PUBLISH_REPEATED = "publish/repeated", "Publications of the run so far that an engine needed twice."

    TIME_EVALUATE = "time/evaluate", "Seconds in which the policy was evaluated."
    TIME_CHECKPOINT = "time/checkpoint", "Seconds in which the checkpoint before the update, if any, was written."
    TIME_IDLE = "time/idle", "All other seconds; the phases sum to the duration of the update."

    OVERLAP = "overlap", "Share of the update in which engines and learner computed at the same time."
    STALENESS_MEAN = "staleness/mean", "Mean number of updates since a token was sampled, when it was learnt from."
    STALENESS_MAX = "staleness/max", "The most updates since any token of the update was sampled; no replayed one."
    REPLAY_SHARE = "replay/share", "Share of the tokens learnt from that an earlier update had learnt from already."
    REPLAY_AGE_MEAN = "replay/age_mean", "Mean number of updates since a replayed token was sampled."
    REPLAY_AGE_MAX = "replay/age_max", "The most updates since any replayed token was sampled."

    ENGINE_TOKENS_PER_S = "throughput/engine_tokens_per_s", "Tokens the engines generated per second of rollout."
    LEARNER_TOKENS_PER_S = "throughput/learner_tokens_per_s", "Tokens learnt from per second of learning, per epoch."
    IDLE = (
        "throughput/idle",
        "Share of an update, without its evaluation and checkpoint, in which neither engines nor learner computed.",
    )
    UPDATES_PER_S = "throughput/updates_per_s", "Updates from logged episodes per second."
    ENV_STEPS_PER_S = "throughput/env_steps_per_s", "Environment steps per second of the whole update."

    def of(self, part: str) -> str:
        """The name of this metric for one environment/family, reward part or boundary."""
        return f"{self.value}/{part}"

    def parts(self, names: Iterable[str]) -> list[str]:
        """The parts by which this metric is split in `names`, sorted."""
        prefix = f"{self.value}/"
        return sorted({name.removeprefix(prefix) for name in names if name.startswith(prefix)})


def meaning_of(name: str) -> str:
    """The meaning of a metric, or of one that is split by environment, family, part or boundary; else nothing."""
    known = {str(metric): metric.meaning for metric in Metric}
    bases = (name, name.rpartition("/")[0], name.partition("/")[0])
    return next((known[base] for base in bases if base in known), "")


PHASES = (
    Metric.TIME_ROLLOUT,
    Metric.TIME_LEARN,
    Metric.TIME_PUBLISH,
    Metric.TIME_HUB,
    Metric.TIME_EVALUATE,
    Metric.TIME_CHECKPOINT,
    Metric.TIME_IDLE,
)
"""The phases of an update, in seconds."""
