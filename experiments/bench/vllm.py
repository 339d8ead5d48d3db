"""Sampled tokens per second of vLLM on this machine, for `loomrl bench language` to compare with. A script."""

import json
import statistics
import sys
import time

import numpy as np


def main() -> None:
    """`FOLDER PROMPT ANSWER REQUESTS CONCURRENT ROUNDS` → `{"tokens_per_s": …}` on the last line."""
    from vllm import LLM, SamplingParams

    folder, *numbers = sys.argv[1:]
    prompt, answer, requests, concurrent, rounds = map(int, numbers)
    llm = LLM(
        model=folder,
        skip_tokenizer_init=True,
        dtype="float32",
        max_model_len=prompt + answer,
        max_num_seqs=concurrent,
        enable_prefix_caching=False,
    )
    vocabulary = llm.llm_engine.model_config.get_vocab_size()
    prompts = np.random.default_rng(0).integers(10, vocabulary, (requests, prompt)).tolist()
    batch = [{"prompt_token_ids": ids} for ids in prompts]
    sampling = SamplingParams(temperature=1.0, max_tokens=answer, ignore_eos=True, detokenize=False, logprobs=0)
    llm.generate(batch[:concurrent], sampling, use_tqdm=False)
    rates = []
    for _ in range(rounds):
        begun = time.perf_counter()
        llm.generate(batch, sampling, use_tqdm=False)
        rates.append(requests * answer / (time.perf_counter() - begun))
    print(json.dumps({"tokens_per_s": statistics.median(rates)}))


if __name__ == "__main__":
    main()
