"""One event of each contract with all of its properties, and a schema with their values as examples."""

from collections.abc import Mapping, Sequence
from typing import Any

MOST = 3
"""Examples of one property."""
TRAJECTORY: Mapping[str, Any] = {
    "trajectory_id": "0b0f9a34-6a8e-4f5e-9c3c-0e8e9d0c8a11",
    "session_id": "s-1",
    "agent_id": "support",
    "subordinate_profile": "researcher",
    "start_timestamp": "2026-01-31T12:00:00Z",
    "end_timestamp": "2026-01-31T12:01:00Z",
    "turns": [
        {
            "turn_id": 1,
            "timestamp": "2026-01-31T12:00:30Z",
            "observation": {
                "type": "user_message",
                "content": "Where is order 4711?",
                "context": {
                    "memory_state": {"customer": "since 2024"},
                    "available_tools": ["orders"],
                    "subordinates_active": 0,
                },
            },
            "thought_process": ["The order is in the table of orders."],
            "action": {"type": "tool_call", "tool_name": "orders", "tool_args": {"number": 4711}},
            "result": {"success": True, "output": {"state": "on its way"}, "error": None, "execution_time_ms": 12.5},
        },
        {
            "turn_id": 2,
            "timestamp": "2026-01-31T12:00:59Z",
            "observation": {"type": "tool_result", "content": {"state": "on its way"}},
            "action": {"type": "response", "raw_response": "It arrives on Friday."},
            "result": {"success": True, "output": "It arrives on Friday."},
        },
    ],
    "task_context": {
        "task_id": "t-1",
        "instructions": "Help the customers of the shop.",
        "complexity_score": 0.2,
        "domain": "general",
    },
    "metadata": {"model": "their-model", "temperature": 0.7, "total_tokens": 321, "total_cost_usd": 0.002},
}
REWARD: Mapping[str, Any] = {
    "reward_id": "5e0a1c52-51a5-4f0e-8a55-5a5cf3f2f0d1",
    "trajectory_id": TRAJECTORY["trajectory_id"],
    "session_id": "s-1",
    "timestamp": "2026-01-31T12:01:01Z",
    "reward_components": {
        "task_completion": {
            "score": 1.0,
            "weight": 0.4,
            "source": "automated",
            "reasoning": "The caller said that it was done.",
            "raw_data": {"value": 1.0},
        },
        "user_feedback": {"score": 0.8, "weight": 0.6, "source": "human", "raw_data": {"stars": 4}},
    },
    "total_reward": 0.88,
    "reward_type": "sparse",
    "normalization": {"method": "z-score", "mean": 0.6, "std": 0.2, "min": 0.0, "max": 1.0},
    "metadata": {"evaluator": "loomrl", "evaluation_method": "hybrid", "confidence": 1.0},
}
TRAINING_REQUEST: Mapping[str, Any] = {
    "training_job_id": "9d0b6f0e-3a53-4f3e-b2ad-6a8b0d5e7c11",
    "timestamp": "2026-02-01T02:00:00Z",
    "requester": "rl-trainer",
    "trigger_reason": "threshold_reached",
    "training_config": {
        "algorithm": "grpo",
        "base_model": "math-1/40",
        "dataset": {
            "source": "nats_stream",
            "sample_size": 5000,
            "stream_name": "RL_TRAJECTORIES",
            "filter": {
                "min_reward": 0.5,
                "max_trajectory_length": 50,
                "date_range": {"start": "2026-01-02T00:00:00Z", "end": "2026-02-01T00:00:00Z"},
                "task_domains": ["coding", "research"],
                "exclude_subordinate_profiles": ["hacker"],
            },
        },
        "hyperparameters": {
            "learning_rate": 1e-5,
            "batch_size": 32,
            "epochs": 3,
            "clip_epsilon": 0.2,
            "gamma": 1.0,
            "gae_lambda": 0.95,
        },
        "compute": {"gpu_count": 1, "gpu_type": "H100", "distributed": False, "mixed_precision": "bf16"},
        "checkpointing": {"save_interval": 10, "max_checkpoints": 3, "storage_path": "s3://loom/checkpoints"},
    },
    "evaluation": {
        "enabled": True,
        "holdout_size": 0.1,
        "metrics": ["reward", "task_completion"],
        "benchmark_tasks": ["code_generation"],
    },
    "priority": "normal",
    "metadata": {
        "requested_by": "ada",
        "previous_training_job": "c2d8a1de-7f0e-4a30-9df4-0f1f5a0a9b22",
        "notes": "5,000 trajectories since the last training.",
    },
}
TRAINING_STATUS: Mapping[str, Any] = {
    "training_job_id": TRAINING_REQUEST["training_job_id"],
    "timestamp": "2026-02-01T02:30:00Z",
    "status": "failed",
    "progress": {
        "current_epoch": 1,
        "total_epochs": 3,
        "current_step": 40,
        "total_steps": 120,
        "percent_complete": 33.3,
        "eta_seconds": 3600.0,
    },
    "metrics": {
        "current": {
            "loss": 0.12,
            "reward_mean": 0.71,
            "reward_std": 0.2,
            "policy_entropy": 0.9,
            "kl_divergence": 0.02,
            "learning_rate": 1e-5,
        },
        "best": {"epoch": 1, "step": 30, "reward_mean": 0.73, "checkpoint_path": "runs/math-2/000030"},
    },
    "evaluation_results": {
        "holdout_reward": 0.7,
        "benchmark_scores": {"code_generation": 0.62},
        "improvement_over_baseline": 0.05,
    },
    "artifacts": {
        "final_checkpoint": "runs/math-2/000040",
        "tensorboard_logs": "runs/math-2/tensorboard",
        "training_curves": "runs/math-2/metrics.jsonl",
        "model_card": "runs/math-2/report.html",
    },
    "resource_usage": {
        "gpu_hours": 0.5,
        "cost_usd": 1.2,
        "peak_memory_gb": 61.5,
        "total_training_time_seconds": 1800.0,
    },
    "error": {"code": "OOM", "message": "The learner was out of memory.", "traceback": "OutOfMemoryError: …"},
    "metadata": {"training_platform": "loomrl 0.1.0", "cuda_version": "12.8", "pytorch_version": "2.9.0"},
}
MODEL_DEPLOYED: Mapping[str, Any] = {
    "deployment_id": "1f3a6ab0-0b8e-4f43-8a5a-3c0c8a0f7e33",
    "training_job_id": TRAINING_REQUEST["training_job_id"],
    "timestamp": "2026-02-01T04:00:00Z",
    "model_info": {
        "model_id": "math-2/120",
        "base_model": "math-1/40",
        "checkpoint_path": "runs/math-2/000120",
        "training_date": "2026-02-01T03:40:00Z",
        "training_samples": 5000,
        "final_reward": 0.78,
    },
    "deployment_config": {
        "serving_platform": "vllm",
        "endpoint": "http://127.0.0.1:8000/v1",
        "model_name": "policy",
        "rollout_strategy": "canary",
        "traffic_percentage": 10.0,
        "ramp_schedule": [
            {"timestamp": "2026-02-01T04:00:00Z", "percentage": 10.0},
            {"timestamp": "2026-02-01T05:00:00Z", "percentage": 25.0},
        ],
    },
    "validation_results": {
        "benchmark_passed": True,
        "safety_checks_passed": True,
        "performance_regression": False,
        "human_eval_score": 0.8,
        "benchmark_scores": {"code_generation": 0.66},
    },
    "metadata": {"deployed_by": "ada", "approval_status": "automated", "previous_model": "math-1/40"},
}


def with_examples(schema: dict[str, Any], event: Mapping[str, Any]) -> dict[str, Any]:
    """The schema with the event as its example, and with the event's values as examples of each property."""
    _add_examples(schema, schema, [event])
    schema["examples"] = [event]
    return schema


def _add_examples(schema: dict[str, Any], node: dict[str, Any], values: Sequence[Any]) -> None:
    """Add examples to the properties of one node, by the values that stand there."""
    if "$ref" in node:
        node = schema["$defs"][node["$ref"].rpartition("/")[2]]
    objects = [value for value in values if isinstance(value, Mapping)]
    for name, part in node.get("properties", {}).items():
        found = [value[name] for value in objects if name in value]
        part["examples"] = [value for place, value in enumerate(found) if value not in found[:place]][:MOST]
        _add_examples(schema, part, found)
    if isinstance(node.get("items"), dict):
        _add_examples(schema, node["items"], [one for value in values for one in value])
    if isinstance(node.get("additionalProperties"), dict):
        _add_examples(schema, node["additionalProperties"], [one for value in objects for one in value.values()])


EXAMPLES: Mapping[str, Mapping[str, Any]] = {
    "agent.rl.trajectory.v1": TRAJECTORY,
    "agent.rl.reward.v1": REWARD,
    "agent.rl.training.request.v1": TRAINING_REQUEST,
    "agent.rl.training.status.v1": TRAINING_STATUS,
    "agent.rl.model.deployed.v1": MODEL_DEPLOYED,
}
