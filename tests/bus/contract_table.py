"""The contracts as they are written, independent of our types: a line for each property.

`*` is required, `[]` an element of a list, `{}` a value of a map with free keys, `a|b` one of these words or types.
"""

TABLE = """
agent.rl.trajectory.v1
trajectory_id*                                   uuid
session_id*                                      string
agent_id*                                        string
subordinate_profile                              'researcher'|'developer'|'hacker'|'rl-trainer'|null
start_timestamp*                                 date-time
end_timestamp*                                   date-time
turns*                                           array >=1
turns[]                                          object
turns[].turn_id*                                 integer >=1
turns[].timestamp*                               date-time
turns[].observation*                             object
turns[].observation.type*                        'user_message'|'tool_result'|'subordinate_response'|'system_message'
turns[].observation.content*                     string|free
turns[].observation.context                      object
turns[].observation.context.memory_state         free
turns[].observation.context.available_tools      array
turns[].observation.context.available_tools[]    string
turns[].observation.context.subordinates_active  integer >=0
turns[].thought_process                          array
turns[].thought_process[]                        string
turns[].action*                                  object
turns[].action.type*                             'tool_call'|'subordinate_call'|'response'|'memory_update'
turns[].action.tool_name                         string
turns[].action.tool_args                         free
turns[].action.raw_response                      string
turns[].result*                                  object
turns[].result.success*                          boolean
turns[].result.output                            string|free|null
turns[].result.error                             string|null
turns[].result.execution_time_ms                 number >=0
task_context*                                    object
task_context.task_id*                            string
task_context.instructions*                       string
task_context.complexity_score                    number >=0 <=1
task_context.domain                              'coding'|'research'|'data_analysis'|'general'|'debugging'|'writing'
metadata*                                        object
metadata.model*                                  string
metadata.temperature                             number >=0 <=2
metadata.total_tokens                            integer >=0
metadata.total_cost_usd                          number >=0

agent.rl.reward.v1
reward_id*                                       uuid
trajectory_id*                                   uuid
session_id*                                      string
timestamp*                                       date-time
reward_components*                               map
reward_components{}                              object
reward_components{}.score*                       number
reward_components{}.weight*                      number >=0 <=1
reward_components{}.source*                      'automated'|'human'|'linter'|'test_results'|'benchmark'
reward_components{}.reasoning                    string
reward_components{}.raw_data                     free
total_reward*                                    number
reward_type*                                     'dense'|'sparse'
normalization                                    object
normalization.method                             'z-score'|'min-max'|'none'
normalization.mean                               number
normalization.std                                number >=0
normalization.min                                number
normalization.max                                number
metadata*                                        object
metadata.evaluator*                              string
metadata.evaluation_method*                      'automated'|'human'|'hybrid'|'model-based'
metadata.confidence                              number >=0 <=1

agent.rl.training.request.v1
training_job_id*                                 uuid
timestamp*                                       date-time
requester*                                       string
trigger_reason*                                  'scheduled'|'threshold_reached'|'manual'|'performance_degradation'
training_config*                                 object
training_config.algorithm*                       'ppo'|'dpo'|'rloo'|'grpo'|'reinforce'
training_config.base_model*                      string
training_config.dataset*                         object
training_config.dataset.source*                  'nats_stream'|'clickhouse'|'s3'|'local'
training_config.dataset.sample_size*             integer >=1
training_config.dataset.stream_name              string
training_config.dataset.filter                   object
training_config.dataset.filter.min_reward        number
training_config.dataset.filter.max_trajectory_length  integer >=1
training_config.dataset.filter.date_range        object
training_config.dataset.filter.date_range.start  date-time
training_config.dataset.filter.date_range.end    date-time
training_config.dataset.filter.task_domains      array
training_config.dataset.filter.task_domains[]    'coding'|'research'|'data_analysis'|'general'|'debugging'|'writing'
training_config.dataset.filter.exclude_subordinate_profiles    array
training_config.dataset.filter.exclude_subordinate_profiles[]  string
training_config.hyperparameters*                 object
training_config.hyperparameters.learning_rate    number
training_config.hyperparameters.batch_size       integer >=1
training_config.hyperparameters.epochs           integer >=1
training_config.hyperparameters.clip_epsilon     number >=0
training_config.hyperparameters.gamma            number >=0 <=1
training_config.hyperparameters.gae_lambda       number >=0 <=1
training_config.compute                          object
training_config.compute.gpu_count                integer >=0
training_config.compute.gpu_type                 string
training_config.compute.distributed              boolean
training_config.compute.mixed_precision          'fp32'|'fp16'|'bf16'
training_config.checkpointing                    object
training_config.checkpointing.save_interval      integer >=1
training_config.checkpointing.max_checkpoints    integer >=1
training_config.checkpointing.storage_path       string
evaluation                                       object
evaluation.enabled                               boolean
evaluation.holdout_size                          number >=0 <=1
evaluation.metrics                               array
evaluation.metrics[]                             'reward'|'task_completion'|'efficiency'|'loss'|'kl_divergence'
evaluation.benchmark_tasks                       array
evaluation.benchmark_tasks[]                     string
priority                                         'low'|'normal'|'high'|'urgent'
metadata                                         object
metadata.requested_by                            string
metadata.previous_training_job                   uuid|null
metadata.notes                                   string

agent.rl.training.status.v1
training_job_id*                                 uuid
timestamp*                                       date-time
status*                                          'queued'|'running'|'completed'|'failed'|'cancelled'
progress                                         object
progress.current_epoch                           integer
progress.total_epochs                            integer >=1
progress.current_step                            integer
progress.total_steps                             integer >=1
progress.percent_complete                        number >=0 <=100
progress.eta_seconds                             number >=0
metrics                                          object
metrics.current                                  object
metrics.current.loss                             number
metrics.current.reward_mean                      number
metrics.current.reward_std                       number >=0
metrics.current.policy_entropy                   number
metrics.current.kl_divergence                    number >=0
metrics.current.learning_rate                    number >=0
metrics.best                                     object
metrics.best.epoch                               integer
metrics.best.step                                integer
metrics.best.reward_mean                         number
metrics.best.checkpoint_path                     string
evaluation_results                               object
evaluation_results.holdout_reward                number
evaluation_results.benchmark_scores              map
evaluation_results.benchmark_scores{}            number
evaluation_results.improvement_over_baseline     number
artifacts                                        object
artifacts.final_checkpoint                       string
artifacts.tensorboard_logs                       string
artifacts.training_curves                        string
artifacts.model_card                             string
resource_usage                                   object
resource_usage.gpu_hours                         number
resource_usage.cost_usd                          number
resource_usage.peak_memory_gb                    number
resource_usage.total_training_time_seconds       number
error                                            object
error.code                                       'OOM'|'CONVERGENCE'|'DATA'|'INFRA'|'TIMEOUT'|'UNKNOWN'
error.message                                    string
error.traceback                                  string
metadata                                         object
metadata.training_platform                       string
metadata.cuda_version                            string
metadata.pytorch_version                         string

agent.rl.model.deployed.v1
deployment_id*                                   uuid
training_job_id*                                 uuid
timestamp*                                       date-time
model_info*                                      object
model_info.model_id*                             string
model_info.base_model*                           string
model_info.checkpoint_path*                      string
model_info.training_date                         string
model_info.training_samples                      integer >=1
model_info.final_reward                          number
deployment_config*                               object
deployment_config.serving_platform*              'tensorzero'|'vllm'|'tgi'|'ollama'
deployment_config.endpoint*                      uri
deployment_config.model_name*                    string
deployment_config.rollout_strategy*              'canary'|'blue_green'|'immediate'
deployment_config.traffic_percentage             number >=0 <=100
deployment_config.ramp_schedule                  array
deployment_config.ramp_schedule[]                object
deployment_config.ramp_schedule[].timestamp*     date-time
deployment_config.ramp_schedule[].percentage*    number >=0 <=100
validation_results*                              object
validation_results.benchmark_passed*             boolean
validation_results.safety_checks_passed*         boolean
validation_results.performance_regression*       boolean
validation_results.human_eval_score              number >=0 <=1
validation_results.benchmark_scores              map
validation_results.benchmark_scores{}            number
metadata                                         object
metadata.deployed_by                             string
metadata.approval_status                         'automated'|'manual_approved'|'emergency_override'
metadata.previous_model                          string
"""
"""`object` has the properties of the lines below it, and may have others; `free` is any object; the top is closed."""


def contracts() -> dict[str, list[tuple[str, bool, str]]]:
    """Subject → path, is required, and kind of every property."""
    found: dict[str, list[tuple[str, bool, str]]] = {}
    for block in TABLE.strip().split("\n\n"):
        subject, *lines = block.splitlines()
        rows = [line.split(None, 1) for line in lines]
        found[subject] = [(path.rstrip("*"), path.endswith("*"), kind.strip()) for path, kind in rows]
    return found
