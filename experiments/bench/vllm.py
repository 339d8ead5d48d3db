"""Sampled tokens per second of vLLM on this machine, for `loomrl bench language` to compare with. A script."""

import json
import statistics
import sys
import time

import numpy as np

from loomrl.experiments.bench.control.contender import cpu_s


def main() -> None:
    """`FOLDER PROMPT ANSWER REQUESTS GROUP CONCURRENT ROUNDS` → tokens per second and per CPU second, on the last line.

    Prompts are cached where there are `GROUP` > 1 attempts at each, and forgotten before every round: in training, the
    weights are others by then.
    """
    from vllm import LLM, SamplingParams

    folder, *numbers = sys.argv[1:]
    prompt, answer, requests, group, concurrent, rounds = map(int, numbers)
    llm = LLM(
        model=folder,
        skip_tokenizer_init=True,
        dtype="float32",
        max_model_len=prompt + answer,
        max_num_seqs=concurrent,
        enable_prefix_caching=group > 1,
    )
    vocabulary = llm.llm_engine.model_config.get_vocab_size()
    different = np.random.default_rng(0).integers(10, vocabulary, (requests // group, prompt))
    prompts = np.repeat(different, group, axis=0).tolist()
    batch = [{"prompt_token_ids": ids} for ids in prompts]
    sampling = SamplingParams(temperature=1.0, max_tokens=answer, ignore_eos=True, detokenize=False, logprobs=0)
    llm.generate(batch[:concurrent], sampling, use_tqdm=False)
    rates = []
    cpu_rates = []
    for _ in range(rounds):
        llm.reset_prefix_cache()
        begun = time.perf_counter()
        used = cpu_s()
        llm.generate(batch, sampling, use_tqdm=False)
        rates.append(requests * answer / (time.perf_counter() - begun))
        cpu_rates.append(requests * answer / (cpu_s() - used))
    print(json.dumps({"tokens_per_s": statistics.median(rates), "tokens_per_cpu_s": statistics.median(cpu_rates)}))


if __name__ == "__main__":
    main()
