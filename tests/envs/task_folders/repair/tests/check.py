import json
import os
import subprocess
import sys


def prints(count: int) -> list[str]:
    command = [sys.executable, "/app/src/fibonacci.py", str(count)]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.split()


def right(count: int) -> bool:
    numbers = [1, 1]
    while len(numbers) < count:
        numbers.append(numbers[-1] + numbers[-2])
    return prints(count) == [str(number) for number in numbers[:count]]


few = right(1) and right(2)
many = all(map(right, range(3, int(os.environ["LARGEST"]))))
json.dump({"reward": (few + many) / 2, "few": float(few), "many": float(many)}, sys.stdout)
