"""The real client trains: `train.py URL BASE DATA [COMMAND]`, and prints what was computed.

A server with that command (JSON) is killed and started again between every two calls.
"""

import json
import os
import signal
import subprocess
import sys

import tinker
from tinker import types

url, base, data, *command = sys.argv[1:]


class Server:
    """The server, if it is ours to kill."""

    def __init__(self) -> None:
        self.process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        if command:
            self.process = subprocess.Popen(json.loads(command[0]), stdout=subprocess.PIPE, text=True)
            assert self.process.stdout is not None
            self.process.stdout.readline()

    def kill(self) -> None:
        if self.process is not None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
            self.start()


server = Server()
server.start()
os.environ.setdefault("TINKER_API_KEY", "tml-local")
client = tinker.ServiceClient(base_url=url)
training = client.create_lora_training_client(base_model=base, rank=3, seed=1).result()
server.kill()
batches = [
    [
        types.Datum(
            model_input=types.ModelInput.from_ints(each["ids"]),
            loss_fn_inputs={"target_tokens": each["target_tokens"], "weights": each["weights"]},
        )
        for each in batch
    ]
    for batch in json.loads(data)
]
losses = []
adam = types.AdamParams(learning_rate=0.01, beta1=0.9, beta2=0.95, eps=1e-8)
for batch in batches[:-1]:
    computed = training.forward_backward(batch, "cross_entropy")
    losses.append(computed.result().metrics["loss:sum"])
    server.kill()
    training.optim_step(adam).result()
    server.kill()
computed = training.forward_backward(batches[-1], "cross_entropy")
stepped = training.optim_step(adam)
server.kill()  # sent or not, done or not
losses.append(computed.result().metrics["loss:sum"])
stepped.result()
server.kill()


def doubled(data, logprobs):
    loss = sum(
        -2 * (logp * each.loss_fn_inputs["weights"].to_torch()).sum() for each, logp in zip(data, logprobs, strict=True)
    )
    return loss, {"own": loss.item()}


custom = training.forward_backward_custom(batches[0], doubled).result()
plain = training.forward(batches[0], "cross_entropy").result()
server.kill()
path = training.save_state("half").result().path
server.kill()
sampling = training.save_weights_and_get_sampling_client().result()
server.kill()
prompt = types.ModelInput.from_ints([7, 8, 9])
drawn = sampling.sample(prompt, 2, types.SamplingParams(max_tokens=6, seed=1, stop=[])).result()
tokens = [list(one.tokens) for one in drawn.sequences]
scored = sampling.compute_logprobs(types.ModelInput.from_ints([7, 8, 9, *tokens[0]])).result()
server.kill()
other = client.create_training_client_from_state_with_optimizer(path).result()
again = other.forward(batches[0], "cross_entropy").result()
try:
    other.forward(batches[0], "gspo").result()
    refused = ""
except tinker.RequestFailedError as error:
    refused = str(error)
if server.process is not None:
    client.close("success").result()
    server.process.kill()
    server.process.wait()
print(
    json.dumps(
        {
            "losses": losses,
            "custom": [custom.metrics["loss:sum"], plain.metrics["loss:sum"]],
            "again": again.metrics["loss:sum"],
            "logprobs": [list(drawn.sequences[0].logprobs), scored[3:]],
            "tokens": tokens,
            "refused": refused,
        }
    )
)
